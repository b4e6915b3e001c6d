"""`rhino conf` and `rhino jar`: the needs of a Spark application, for the tools that start one."""

from __future__ import annotations

import enum
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from rhino.cli.arguments import seconds
from rhino.cli.option_groups import expanded
from rhino.cli.options import ManagerOption
from rhino.cli.output import say, say_json
from rhino_core.errors import InvalidSettingError
from rhino_core.settings import CLUSTER_KEY_VARIABLE, DEFAULT_MANAGER, DEFAULT_SOCKET
from spark_connector.conf import PROVIDER_CLASSES, application_settings
from spark_connector.driver_certificate import DRIVER_DIR_VARIABLE, tls_conf
from spark_connector.jar import COMPILE_TIMEOUT_S, ensure_jar
from spark_connector.jar_place import ALLOWED, JARS, PACKAGES


class Format(enum.StrEnum):
    """How `rhino conf` prints settings."""

    PROPERTIES = "properties"
    ARGUMENTS = "arguments"
    JSON = "json"


CONF_HELP = """\
Print the Spark settings of an application that uses Rhino.

They are those of `rhino_conf()` in Python, for the Spark that is installed here: SPARK_HOME, or the PySpark package.

\b
rhino conf --manager host:7461 >> $SPARK_HOME/conf/spark-defaults.conf
spark-submit $(rhino conf --manager host:7461 --format arguments) app.py
pyspark $(rhino conf --manager host:7461 --format arguments)
"""
JAR_HELP = """Print the path of the jar for the Spark that is installed here. Build it first if it is missing.

\b
rhino jar
rhino jar --output-dir /opt/rhino
"""


def register(app: typer.Typer, panel: str) -> None:
    app.command("conf", rich_help_panel=panel, help=CONF_HELP)(expanded(conf))
    app.command(rich_help_panel=panel, help=JAR_HELP)(jar)


@dataclass(frozen=True, slots=True)
class IdentityOptions:
    """The identity of the driver."""

    tls_dir: Annotated[
        str,
        typer.Option(
            envvar=DRIVER_DIR_VARIABLE,
            metavar="FOLDER",
            help="Folder on the driver's machine with its certificate, from `rhino cert driver`.",
        ),
    ] = ""
    cluster_key: Annotated[
        str,
        typer.Option(
            envvar=CLUSTER_KEY_VARIABLE,
            metavar="FILE",
            help="File with the key of the cluster. The driver's certificate is made from it, on this machine.",
        ),
    ] = ""


def conf(
    identity: IdentityOptions,
    manager: ManagerOption = DEFAULT_MANAGER,
    format: Annotated[
        Format,
        typer.Option(
            help="properties: for spark-defaults.conf or --properties-file; arguments: for the command line of"
            " spark-submit, pyspark and spark-shell."
        ),
    ] = Format.PROPERTIES,
    integration: Annotated[str, typer.Option(help=f"Integration mode: {' or '.join(PROVIDER_CLASSES)}.")] = "provider",
    replication_factor: Annotated[int, typer.Option(help="Number of secondary copies.")] = 1,
    socket: Annotated[str, typer.Option(help="Socket of the sidecar on every node.")] = str(DEFAULT_SOCKET),
    recovery: Annotated[
        bool,
        typer.Option(
            help="Also print what shortens a recovery: time-outs and retries of the whole application. On machines with"
            " too little time, Spark may then drop executors that are only slow."
        ),
    ] = True,
    jar: Annotated[
        str | None,
        typer.Option(
            metavar="PLACE",
            help=f"Jar of Rhino: {ALLOWED}. Default: the file that `rhino jar` prints.",
        ),
    ] = None,
) -> None:
    settings = application_settings(
        manager,
        socket=socket,
        replication_factor=replication_factor,
        recovery=recovery,
        integration=integration,
        jar=jar,
    )
    settings |= tls_conf(
        {**os.environ, DRIVER_DIR_VARIABLE: identity.tls_dir, CLUSTER_KEY_VARIABLE: identity.cluster_key}
    )
    if format is Format.JSON:
        say_json(settings)
    elif format is Format.ARGUMENTS:
        say(_arguments(settings))
    else:
        width = max(map(len, settings)) + 1
        for name, value in settings.items():
            say(f"{name:<{width}} {value}")


def _arguments(settings: dict[str, str]) -> str:
    """Raises InvalidSettingError for a value that the shell would split."""
    for name, value in settings.items():
        if any(character.isspace() for character in value):
            raise InvalidSettingError(
                f"{name} = {value!r}: the shell splits arguments at white space; use --format properties"
            )
    options = {JARS: "--jars ", PACKAGES: "--packages "}
    return " ".join(f"{options.get(name, f'--conf {name}=')}{value}" for name, value in settings.items())


def jar(
    output_dir: Annotated[
        Path | None, typer.Option(help="Folder of the jar. Default: this installation, or else the user's cache.")
    ] = None,
    timeout_s: Annotated[
        float,
        typer.Option(
            help="Give up when the compiler takes longer than this many seconds.",
            callback=seconds("--timeout-s", positive=True),
        ),
    ] = COMPILE_TIMEOUT_S,
) -> None:
    say(str(ensure_jar(output_dir, say=True, timeout_s=timeout_s)))
