"""`--tls-dir` and `--cluster-key`, the options by which a command is known. Every command with `--manager` has them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from rhino.client import connection
from rhino_core.security.choice import client_transport
from rhino_core.settings import CLUSTER_KEY_VARIABLE, TLS_DIR_VARIABLE

TlsDirOption = Annotated[
    str,
    typer.Option(
        "--tls-dir",
        envvar=TLS_DIR_VARIABLE,
        metavar="FOLDER",
        help="Folder with a certificate of an operator or reader: ca.crt, tls.crt and tls.key.",
    ),
]
ClusterKeyOption = Annotated[
    str,
    typer.Option(
        "--cluster-key",
        envvar=CLUSTER_KEY_VARIABLE,
        metavar="FILE",
        help="File with the key of the cluster. Its holder is an operator.",
    ),
]
_OPTIONS = {"tls_dir": TlsDirOption, "cluster_key": ClusterKeyOption}


def attach(app: typer.Typer) -> None:
    """Adds the options to all commands with `--manager`, except daemons."""
    for group in app.registered_groups:
        if group.typer_instance is not None:
            attach(group.typer_instance)
    for command in app.registered_commands:
        function = command.callback
        if function is not None and command.name not in ("sidecar", "manager") and _calls_the_manager(function):
            command.callback = _with_access(function)


def _calls_the_manager(function: Callable[..., Any]) -> bool:
    parameters = inspect.signature(function).parameters
    return "manager" in parameters and "tls_dir" not in parameters


def _with_access(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def command(*args: Any, tls_dir: str, cluster_key: str, **rest: Any) -> Any:
        connection.use(client_transport(tls_dir, cluster_key))
        return function(*args, **rest)

    signature = inspect.signature(function, eval_str=True)
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default="", annotation=annotation)
        for name, annotation in _OPTIONS.items()
    ]
    parameters = [*signature.parameters.values(), *added]
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    return command
