"""The `rhino` command. It starts the daemons and calls them. It may import every package; no module imports it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from rhino.cli import daemon_commands, exit_codes, handover_commands, spark_commands
from rhino.cli import status as status_view
from rhino.cli.arguments import check_encoding, one_of, seconds
from rhino.cli.former import refuse_former
from rhino.cli.options import DryRunOption, JsonOption, ManagerOption
from rhino.cli.output import console, say, say_json
from rhino.cli.rewind_help import HELP as REWIND_HELP
from rhino.client.overview import fetch_overview
from rhino_core.errors import RhinoError
from rhino_core.settings import DEFAULT_MANAGER, DEFAULT_SOCKET
from spark_connector.conf import PROVIDER_CLASSES

DAEMONS, STATE, CARE, CHECKPOINTS = "Daemons", "Queries and their state", "Stored state", "Query checkpoints"
SPARK = "Spark applications"
app = typer.Typer(
    help="State replication and live handover for Spark Structured Streaming.",
    epilog=exit_codes.HELP,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

daemon_commands.register(app, DAEMONS)
spark_commands.register(app, SPARK)


@app.command(rich_help_panel=STATE)
def status(
    manager: ManagerOption = DEFAULT_MANAGER,
    as_json: JsonOption = False,
    timeout_s: Annotated[
        float, typer.Option(help="Give up after this many seconds.", callback=seconds("--timeout-s", positive=True))
    ] = 5.0,
) -> None:
    """Show workers, virtual nodes, replica groups and their lag."""
    overview = fetch_overview(manager, timeout_s=timeout_s)
    if as_json:
        say_json(overview)
    else:
        status_view.render(overview, console())


handover_commands.register(app, STATE)


@app.command(rich_help_panel=CARE)
def scrub(
    worker: Annotated[
        list[str] | None, typer.Option(help="Worker id. Repeat the option for more workers. Default: all live ones.")
    ] = None,
    manager: ManagerOption = DEFAULT_MANAGER,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the end. The exit code says what was found.")] = False,
    repair_wait_s: Annotated[
        float,
        typer.Option(
            help="With --wait: seconds to wait for repairs after the end.", callback=seconds("--repair-wait-s")
        ),
    ] = 60.0,
    as_json: JsonOption = False,
) -> None:
    """Check every stored file now, at full pace. Damaged files are fetched again from other workers."""
    from rhino.cli.scrub import run_scrub

    raise typer.Exit(run_scrub(manager, worker or [], wait=wait, repair_wait_s=repair_wait_s, as_json=as_json))


@app.command(rich_help_panel=CARE)
def verify(
    job: Annotated[str, typer.Option(help="Query id, from the file `metadata` of the checkpoint.")],
    data_dir: Annotated[Path, typer.Option(help="Data folder of this node's sidecar. The sidecar may be running.")],
    partition: Annotated[
        list[int] | None, typer.Option(help="Partition. Repeat the option for more partitions. Default: all.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Open the copies of a query's stores on this node as databases, and read them completely."""
    from rhino.cli.verify import run_verify

    raise typer.Exit(run_verify(data_dir, job, partition or [], as_json=as_json))


@app.command(rich_help_panel=CARE)
def forget(
    job: Annotated[
        str, typer.Option(help="A query that will not run again: its id, or its name if it is unique.")
    ] = "",
    worker: Annotated[str, typer.Option(help="A worker that is lost and will not come back: its id.")] = "",
    manager: ManagerOption = DEFAULT_MANAGER,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Delete all state of a query that will not run again, or give up a worker that will not come back."""
    from rhino.cli.forget import run_forget

    raise typer.Exit(run_forget(manager, job, worker, dry_run=dry_run, as_json=as_json))


@app.command(rich_help_panel=CHECKPOINTS)
def moved(
    job: Annotated[str, typer.Option(help="The stopped query: its id, or its name if it is unique.")],
    to: Annotated[
        str, typer.Option(metavar="LOCATION", help="New location of its checkpoint, such as hdfs://nn/ckpt/q.")
    ],
    manager: ManagerOption = DEFAULT_MANAGER,
    as_json: JsonOption = False,
) -> None:
    """Tell the manager that the checkpoint of a stopped query was moved. Not for copies: they would share one state."""
    from rhino.cli.moved import run_moved

    raise typer.Exit(run_moved(manager, job, to, as_json=as_json))


@app.command(help=REWIND_HELP, rich_help_panel=CHECKPOINTS)
def rewind(
    checkpoint: Annotated[str, typer.Argument(metavar="CHECKPOINT", help="The checkpointLocation of the query.")],
    manager: ManagerOption = DEFAULT_MANAGER,
    file_sink: Annotated[
        str, typer.Option(metavar="FOLDER", help="Output folder, if the query writes with Spark's file sink.")
    ] = "",
    no_file_sink: Annotated[
        bool, typer.Option("--no-file-sink", help="The query does not write with Spark's file sink.")
    ] = False,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    from rhino.cli.rewind import RewindArguments, run_rewind

    raise typer.Exit(run_rewind(manager, RewindArguments(checkpoint, file_sink, no_file_sink, dry_run, as_json)))


CheckpointArgument = Annotated[
    Path, typer.Argument(metavar="CHECKPOINT", help="Checkpoint folder of the stopped query.")
]
SocketOption = Annotated[Path, typer.Option(help="Socket of the sidecar on this node.")]
IdleOption = Annotated[
    float,
    typer.Option(
        help="Refuse a checkpoint whose logs changed less than this many seconds ago.", callback=seconds("--idle-s")
    ),
]


@app.command(rich_help_panel=CHECKPOINTS)
def adopt(
    checkpoint: CheckpointArgument,
    integration: Annotated[
        str,
        typer.Option(
            help="Integration mode: provider, or checkpoint (rhino://, required for transformWithState).",
            callback=one_of("--integration", PROVIDER_CLASSES),
        ),
    ] = "provider",
    replication_factor: Annotated[int, typer.Option(max=1000, help="Number of secondary copies.")] = 1,
    socket: SocketOption = DEFAULT_SOCKET,
    idle_s: IdleOption = 30.0,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Import the state of a query that ran with Spark's own RocksDB provider. Run it on the node of a worker."""
    from rhino.cli.takeover import TakeoverArguments, run_adopt

    arguments = TakeoverArguments(checkpoint, socket, dry_run, idle_s, as_json, integration, replication_factor)
    raise typer.Exit(run_adopt(arguments))


@app.command(rich_help_panel=CHECKPOINTS)
def release(
    checkpoint: CheckpointArgument,
    socket: SocketOption = DEFAULT_SOCKET,
    idle_s: IdleOption = 30.0,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Export the state of a query to Spark's own RocksDB provider. Run it on the node of a worker."""
    from rhino.cli.takeover import TakeoverArguments, run_release

    raise typer.Exit(run_release(TakeoverArguments(checkpoint, socket, dry_run, idle_s, as_json)))


def main() -> None:
    """Entry point. Every RhinoError becomes `error: ...` on stderr and a documented exit code."""
    try:
        check_encoding(sys.argv[1:])
        refuse_former(sys.argv[1:])
        app()
    except RhinoError as error:
        _end(error)
    except ExceptionGroup as group:  # from a daemon, whose tasks run concurrently
        known, others = group.split(RhinoError)
        if known is None or others is not None:
            raise
        _end(_first(known))
    except KeyboardInterrupt:
        sys.exit(exit_codes.INTERRUPTED)


def _first(group: ExceptionGroup[RhinoError]) -> RhinoError:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, ExceptionGroup) else error


def _end(error: RhinoError) -> None:
    say(f"error: {error}", error=True)
    sys.exit(exit_codes.of_error(error))


if __name__ == "__main__":
    main()
