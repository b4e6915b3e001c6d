"""The `rhino` command. It starts the daemons and calls them. It may import every package; no module imports it."""

from __future__ import annotations

import atexit
import os
import sys
from contextlib import suppress
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from rhino.cli import (
    access,
    archive,
    cert,
    daemon_commands,
    doctor_command,
    examples,
    exit_codes,
    handover_commands,
    local,
    spark_commands,
    ui,
)
from rhino.cli.arguments import check_encoding, one_of, seconds
from rhino.cli.invocation import Invocation
from rhino.cli.option_groups import expanded
from rhino.cli.options import CallOptions, DryRunOption, JsonOption, ManagerOption, YesOption
from rhino.cli.output import say
from rhino.cli.rewind_help import HELP as REWIND_HELP
from rhino.cli.status_command import StatusOptions, run_status
from rhino_core.errors import RhinoError
from rhino_core.settings import DEFAULT_MANAGER, DEFAULT_SOCKET
from rhino_core.version import version_line
from spark_connector.conf import PROVIDER_CLASSES

USAGE_ERROR: Any = typer.BadParameter.__base__  # UsageError of the click that Typer uses, its own or the package
EXTRAS = {"pyspark": "spark", "psutil": "testing", "lz4": "verify", "xxhash": "verify", "grpc_tools": "spark"}
EXTRAS |= dict.fromkeys(("starlette", "uvicorn"), "ui")
DAEMONS, STATE, CARE, CHECKPOINTS = "Daemons", "Queries and their state", "Stored state", "Query checkpoints"
SPARK = "Spark applications"
app = typer.Typer(
    epilog=exit_codes.HELP,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _show_version(asked: bool) -> None:
    if asked:
        say(version_line())
        raise typer.Exit(exit_codes.OK)


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """State replication and live handover for Spark Structured Streaming."""


daemon_commands.register(app, DAEMONS)
spark_commands.register(app, SPARK)


def status(asked: StatusOptions, call: CallOptions) -> None:
    """Show whether the cluster is well, then its workers, queries, balance and running handovers.

    The first line is the verdict: OK, DEGRADED or CRITICAL, with the reason. No name is ever cut or wrapped.
    """
    raise typer.Exit(run_status(call, asked))


app.command("status", rich_help_panel=STATE)(expanded(status))


@app.command(rich_help_panel=STATE)
def top(
    manager: ManagerOption = DEFAULT_MANAGER,
    interval_s: Annotated[
        float, typer.Option(help="Seconds between two looks.", callback=seconds("--interval-s", positive=True))
    ] = 1.0,
) -> None:
    """Show the running queries and the workers live, the busiest first, until Ctrl-C.

    Durations are those of batches since the command began. For scripts, `rhino status --json` has all figures.
    """
    from rhino.cli.top import run_top

    run_top(manager, interval_s)


ui.register(app, STATE)
handover_commands.register(app, STATE)
for found in entry_points(group="rhino.commands"):
    if find_spec(found.module.partition(".")[0]):  # the engine works without the packages above it
        found.load()(app)


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
    now: Annotated[bool, typer.Option("--now", help="Delete the state at once. It cannot be undone.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Take `forget --job` back, while the state is there.")] = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Delete all state of a query that will not run again, or give up a worker that will not come back.

    Shows what would be deleted and asks first. The state of a query stays for a day (`rhino manager --forget-grace-h`):
    until then the query does not start, and --undo takes it back. A worker can come back as long as it has its disk.
    """
    from rhino.cli.query_record import ForgetArguments, run_forget

    raise typer.Exit(run_forget(manager, ForgetArguments(job, worker, now, undo, dry_run, yes, as_json)))


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
    from rhino.cli.query_record import run_moved

    raise typer.Exit(run_moved(manager, job, to, as_json=as_json))


@app.command(rich_help_panel=STATE)
def owner(
    job: Annotated[str, typer.Option(help="The query: its id, or its name if it is unique.")],
    to: Annotated[
        str, typer.Option(metavar="NAME", help="Name in the certificate of the driver that may run it.")
    ] = "",
    next_driver: Annotated[bool, typer.Option("--next-driver", help="The next driver that runs it gets it.")] = False,
    manager: ManagerOption = DEFAULT_MANAGER,
    as_json: JsonOption = False,
) -> None:
    """Say which driver may run a query. With certificates, that is the driver that ran it first."""
    from rhino.cli.query_record import run_owner

    raise typer.Exit(run_owner(manager, job, to, next_driver=next_driver, as_json=as_json))


@app.command(rich_help_panel=STATE)
def history(
    job: Annotated[str, typer.Option(help="Only what was done to this query: its id or name.")] = "",
    worker: Annotated[str, typer.Option(help="Only what was done to this worker: its id.")] = "",
    manager: ManagerOption = DEFAULT_MANAGER,
    as_json: JsonOption = False,
) -> None:
    """Show what people have done to the cluster: who, when, and how it ended. The newest 1000 are kept.

    Handovers, drains, forgotten queries and workers, owners of queries and moved checkpoints are here. Refused calls
    are in the audit log only.
    """
    from rhino.cli.history import run_history

    raise typer.Exit(run_history(manager, job, worker, as_json=as_json))


@app.command("support-bundle", rich_help_panel=STATE)
def support_bundle(
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="New file. Default: rhino-support-TIME.tar.gz in this folder.")
    ] = None,
    log: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="A log of a daemon or driver. Repeat for more logs.")
    ] = None,
    manager: ManagerOption = DEFAULT_MANAGER,
) -> None:
    """Collect what a maintainer asks for in one file: states, handovers, history, figures of sidecars, named logs.

    It has no keys and no content of state. Its file about.txt says what else is in it: read it before you send it.
    """
    from rhino.cli.support_bundle import run_support_bundle

    raise typer.Exit(run_support_bundle(manager, output, log or []))


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
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    from rhino.cli.rewind import RewindArguments, run_rewind

    arguments = RewindArguments(checkpoint, file_sink, no_file_sink, dry_run, yes, as_json)
    raise typer.Exit(run_rewind(manager, arguments))


app.add_typer(cert.app, name="cert", rich_help_panel=DAEMONS)
app.add_typer(archive.app, name="archive", rich_help_panel=CARE)
app.add_typer(local.app, name="local", rich_help_panel=CARE)

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
    to_format: Annotated[
        int | None,
        typer.Option(
            min=2,
            max=2,
            help="2: also convert RocksDB state of checkpoint format 1, and state of the HDFS-backed provider.",
        ),
    ] = None,
    socket: SocketOption = DEFAULT_SOCKET,
    idle_s: IdleOption = 30.0,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Import the state of a query that ran with Spark's own provider. Run it on the node of a worker."""
    from rhino.cli.takeover import TakeoverArguments, run_adopt

    arguments = TakeoverArguments(
        checkpoint, socket, dry_run, idle_s, as_json, integration, replication_factor, to_format
    )
    raise typer.Exit(run_adopt(arguments))


@app.command(rich_help_panel=CHECKPOINTS)
def release(
    checkpoint: CheckpointArgument,
    socket: SocketOption = DEFAULT_SOCKET,
    idle_s: IdleOption = 30.0,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Export the state of a query to Spark's own RocksDB provider. Run it on the node of a worker."""
    from rhino.cli.takeover import TakeoverArguments, run_release

    raise typer.Exit(run_release(TakeoverArguments(checkpoint, socket, dry_run, idle_s, as_json, yes=yes)))


doctor_command.register(app, CHECKPOINTS)
access.attach(app)
examples.attach(app)


def main() -> None:
    """Entry point. Every RhinoError becomes `error: ...` on stderr and a documented exit code."""
    arguments = sys.argv[1:]
    invocation = Invocation(arguments)
    try:
        code = _run(invocation)
        sys.stdout.flush()
    except RhinoError as error:
        code = invocation.fail(error)
    except ExceptionGroup as group:  # from a daemon, whose tasks run concurrently
        known, others = group.split(RhinoError)
        if known is None or others is not None:
            raise
        code = invocation.fail(_first(known))
    except BrokenPipeError:  # whoever read our output has ended, such as `head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = exit_codes.PIPE_CLOSED
    except (KeyboardInterrupt, typer.Abort):
        code = exit_codes.INTERRUPTED
    _leave(code)


def _leave(code: int) -> NoReturn:
    """Ends the process with this exit code.

    A thread of obstore uses the interpreter for a moment after its answer. If Python is taking the interpreter down by
    then, the thread aborts the process, even after a success: PyO3/pyo3-async-runtimes#40. So this function ends the
    process without taking the interpreter down.
    """
    if "obstore" not in sys.modules:
        sys.exit(code)
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):  # nobody reads it any more
            stream.flush()
    os._exit(code)


def _run(invocation: Invocation) -> int:
    """Executes the command line and returns the exit code. Raises RhinoErrors and KeyboardInterrupt."""
    try:
        check_encoding(invocation.arguments)
        code = app(list(invocation.arguments), prog_name="rhino", standalone_mode=False, obj=invocation)
    except USAGE_ERROR as error:
        if not error.format_message():  # the command line is empty
            error.show()
        else:
            usage = error.ctx.command_path if error.ctx else "rhino"
            invocation.report(
                "UsageError", f"{error.format_message().rstrip('.')}; see `{usage} --help`", exit_codes.USAGE
            )
        return exit_codes.USAGE
    except ModuleNotFoundError as error:
        extra = EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        text = f"this command needs {error.name}: pip install 'rhino-state[{extra}]'"
        invocation.report("MissingModule", text, exit_codes.REFUSED)
        return exit_codes.REFUSED
    return code if isinstance(code, int) else exit_codes.OK


def _first(group: ExceptionGroup[RhinoError]) -> RhinoError:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, ExceptionGroup) else error


if __name__ == "__main__":
    main()
