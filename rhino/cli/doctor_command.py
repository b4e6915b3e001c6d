"""The command `rhino doctor`. Its work is in doctor.py and node_doctor.py, which other commands need not import."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from rhino.cli.option_groups import expanded
from rhino.cli.options import CallOptions
from rhino_core.settings import DEFAULT_SOCKET


@dataclass(frozen=True, slots=True)
class CheckpointOptions:
    """The checkpoint to examine. Without one, the command examines this node."""

    checkpoint: Annotated[
        str, typer.Option(metavar="LOCATION", help="The checkpointLocation: a folder, s3://, gs:// or az://.")
    ] = ""
    quick: Annotated[bool, typer.Option("--quick", help="Read only what the newest batch needs, and no data file.")] = (
        False
    )
    repair_into: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Make a copy there that opens. The checkpoint is not changed.")
    ] = None
    named: Annotated[
        str, typer.Option(metavar="LOCATION", help="With --repair-into: where Spark will find the copy, if elsewhere.")
    ] = ""


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """Parts of this node. Folders of None are not looked at."""

    socket: Annotated[Path, typer.Option(help="Socket of the sidecar on this node.")] = DEFAULT_SOCKET
    data_dir: Annotated[Path | None, typer.Option(help="Data folder of this node's sidecar.")] = None
    spark_local_dir: Annotated[Path | None, typer.Option(help="Folder of the executors: spark.local.dir.")] = None
    certificates: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Folder with the certificate of this node's daemon.")
    ] = None
    spark_conf: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Settings of Spark: conf/spark-defaults.conf, or a properties file."),
    ] = None


def register(app: typer.Typer, panel: str) -> None:
    app.command("doctor", rich_help_panel=panel)(expanded(doctor))


def doctor(asked: CheckpointOptions, node: NodeOptions, call: CallOptions) -> None:
    """Examine a query checkpoint, also of stock Spark, or this node and its cluster.

    Of a checkpoint: damage by name, the newest batch that opens, its cost on an object store, a move to Rhino. That
    needs no Spark, no Java and no cluster. Exit code 1: something is wrong; 5: a repaired copy was made.
    """
    if asked.checkpoint:
        from rhino.cli.doctor import run_doctor

        raise typer.Exit(run_doctor(asked, as_json=call.as_json))
    from rhino.cli.node_doctor import run_node_doctor

    raise typer.Exit(run_node_doctor(node, call))
