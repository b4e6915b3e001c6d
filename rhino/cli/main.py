"""The `rhino` command: composes the processes and talks to them. Imports everything, imported by nothing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from rhino.cli import daemon, exit_codes, handover_commands
from rhino.cli import status as status_view
from rhino.cli.options import DEFAULT_MANAGER, JsonOption, ManagerOption
from rhino.cli.rewind_help import HELP as REWIND_HELP
from rhino.errors import RhinoError
from rhino.log import configure_logging
from rhino.rpc.overview import fetch_overview
from rhino.settings import MIB, ManagerSettings, SidecarSettings

DAY_S = 24 * 3600.0
app = typer.Typer(
    help="State replication and live handover for Spark Structured Streaming.",
    epilog=exit_codes.HELP,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

MetricsOption = Annotated[int, typer.Option(metavar="PORT", help="Serve /metrics for Prometheus there; 0: not.")]
LogLevelOption = Annotated[str, typer.Option(help="debug, info, warning or error.")]
ParentOption = Annotated[bool, typer.Option("--exit-with-parent", help="Stop when the parent process ends.")]


@app.command()
def sidecar(
    data_dir: Annotated[Path, typer.Option(help="Store, index and inbox; on the file system of spark.local.dir.")],
    worker_id: Annotated[str, typer.Option(help="Stable, unique name of this worker. Default: the host.")] = "",
    host: Annotated[str, typer.Option(help="Name by which Spark knows this node's executors.")] = "",
    socket: Annotated[Path, typer.Option(help="Unix socket for the executors.")] = Path("/run/rhino/sidecar.sock"),
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Peer service; port 0: a free one.")] = "",
    manager: ManagerOption = DEFAULT_MANAGER,
    memory_limit_mb: Annotated[int, typer.Option(help="Bound of replication buffers, MiB.")] = 128,
    commit_timeout_s: Annotated[float, typer.Option(help="How long a commit may wait for copies.")] = 60.0,
    catch_up_mb_per_s: Annotated[int, typer.Option(help="Bandwidth limit of catch-up, MiB/s; 0: none.")] = 0,
    push_port: Annotated[int, typer.Option(help="Where files of other sidecars come in; 0: a free port.")] = 0,
    reserve_mb: Annotated[int, typer.Option(help="Free disk space that is kept, MiB.")] = 256,
    excess_grace_min: Annotated[
        float, typer.Option(help="A copy that others have taken over stays this long after its last use, minutes.")
    ] = 10.0,
    scrub_period_days: Annotated[float, typer.Option(help="Every file is checked this often; 0: never.")] = 7.0,
    scrub_mb_per_s: Annotated[int, typer.Option(help="Pace of these checks, MiB/s; 0: none.")] = 16,
    metrics_port: MetricsOption = 0,
    log_level: LogLevelOption = "info",
    exit_with_parent: ParentOption = False,
) -> None:
    """Run the sidecar of this worker until SIGTERM or Ctrl-C."""
    from rhino.ids import Worker
    from worker_runtime.sidecar import run_sidecar

    configure_logging(log_level)
    name = host or daemon.default_host()
    settings = SidecarSettings(
        worker_id=worker_id or name,
        host=name,
        data_dir=data_dir,
        socket=socket,
        listen=listen or f"{name}:7462",
        manager=manager,
        memory_limit_bytes=memory_limit_mb * MIB,
        commit_timeout_s=commit_timeout_s,
        catch_up_bytes_per_s=catch_up_mb_per_s * MIB,
        push_port=push_port,
        reserve_bytes=reserve_mb * MIB,
        excess_grace_s=excess_grace_min * 60.0,
        scrub_period_s=scrub_period_days * DAY_S,
        scrub_bytes_per_s=scrub_mb_per_s * MIB,
        metrics_port=metrics_port,
    )

    def ready(worker: Worker) -> None:
        daemon.announce(
            {
                "service": "sidecar",
                "worker_id": worker.worker_id,
                "peer_address": worker.peer_address,
                "socket": str(socket),
            }
        )

    daemon.run(run_sidecar(settings, ready), exit_with_parent=exit_with_parent)


@app.command()
def manager(
    data_dir: Annotated[Path, typer.Option(help="The journal of the managers.")],
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Port 0: a free one.")] = DEFAULT_MANAGER,
    bootstrap: Annotated[bool, typer.Option("--bootstrap", help="Start with an empty journal.")] = False,
    lease_s: Annotated[float, typer.Option(help="A worker silent for this long is lost.")] = 5.0,
    suspect_lease_s: Annotated[float, typer.Option(help="The same once its connection has broken.")] = 1.0,
    lag_cap_s: Annotated[
        float, typer.Option(help="A member so far behind with a commit is replaced in its group; 0: never.")
    ] = 20.0,
    lag_cap_mb: Annotated[int, typer.Option(help="The same for all that is owed to it, MiB; 0: never.")] = 32768,
    metrics_port: MetricsOption = 0,
    log_level: LogLevelOption = "info",
    exit_with_parent: ParentOption = False,
) -> None:
    """Run the replication manager and the handover manager until SIGTERM or Ctrl-C."""
    from rhino.cli.manager_process import run_manager

    configure_logging(log_level)
    settings = ManagerSettings(
        data_dir=data_dir,
        listen=listen,
        bootstrap=bootstrap,
        lease_s=lease_s,
        suspect_lease_s=suspect_lease_s,
        lag_cap_s=lag_cap_s,
        lag_cap_bytes=lag_cap_mb * MIB,
        metrics_port=metrics_port,
    )

    def ready(address: str) -> None:
        daemon.announce({"service": "manager", "address": address})

    daemon.run(run_manager(settings, ready), exit_with_parent=exit_with_parent)


@app.command()
def status(
    manager: ManagerOption = DEFAULT_MANAGER,
    as_json: JsonOption = False,
    timeout_s: Annotated[float, typer.Option(help="How long the manager may take.")] = 5.0,
) -> None:
    """Show workers, virtual nodes, replica groups and their lag."""
    overview = fetch_overview(manager, timeout_s=timeout_s)
    if as_json:
        print(status_view.to_json(overview))
    else:
        status_view.render(overview, Console())


@app.command()
def scrub(
    worker: Annotated[list[str] | None, typer.Option(help="Worker id; again for more. Default: all live ones.")] = None,
    manager: ManagerOption = DEFAULT_MANAGER,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the end; the exit code tells what was found.")] = False,
    repair_wait_s: Annotated[float, typer.Option(help="With --wait: time for repairs after the end.")] = 60.0,
    as_json: JsonOption = False,
) -> None:
    """Check every stored file now, at full pace; damaged ones are fetched again from other workers."""
    from rhino.cli.scrub import run_scrub

    raise typer.Exit(run_scrub(manager, worker or [], wait=wait, repair_wait_s=repair_wait_s, as_json=as_json))


@app.command()
def verify(
    job: Annotated[str, typer.Option(help="Query id: the one in the checkpoint's metadata file.")],
    data_dir: Annotated[Path, typer.Option(help="The --data-dir of this node's sidecar, which may be running.")],
    partition: Annotated[list[int] | None, typer.Option(help="Partition; again for more. Default: all.")] = None,
    as_json: JsonOption = False,
) -> None:
    """On a worker's node: open its copies of a job's stores as databases and read them to the end."""
    from rhino.cli.verify import run_verify

    raise typer.Exit(run_verify(data_dir, job, partition or [], as_json=as_json))


@app.command()
def forget(
    job: Annotated[str, typer.Option(help="A query that has ended for good: its id or unique name.")] = "",
    worker: Annotated[str, typer.Option(help="A worker that is lost and will not come back.")] = "",
    manager: ManagerOption = DEFAULT_MANAGER,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go, change nothing.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Delete everything of a job that has ended for good, or give up a worker that is lost for good."""
    from rhino.cli.forget import run_forget

    raise typer.Exit(run_forget(manager, job, worker, dry_run=dry_run, as_json=as_json))


@app.command(help=REWIND_HELP)
def rewind(
    checkpoint: Annotated[str, typer.Argument(metavar="CHECKPOINT", help="The query's checkpointLocation.")],
    manager: ManagerOption = DEFAULT_MANAGER,
    file_sink: Annotated[str, typer.Option(metavar="FOLDER", help="Output of Spark's file sink.")] = "",
    no_file_sink: Annotated[bool, typer.Option("--no-file-sink", help="The query writes elsewhere.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, change nothing.")] = False,
    as_json: JsonOption = False,
) -> None:
    from rhino.cli.rewind import RewindArguments, run_rewind

    raise typer.Exit(run_rewind(manager, RewindArguments(checkpoint, file_sink, no_file_sink, dry_run, as_json)))


CheckpointArgument = Annotated[Path, typer.Argument(help="Folder of the stopped query's checkpoint.")]
SocketOption = Annotated[Path, typer.Option(help="Socket of this node's sidecar.")]
QuietOption = Annotated[float, typer.Option(help="Refuse if the checkpoint's logs changed in these last seconds.")]
DEFAULT_SOCKET = Path("/run/rhino/sidecar.sock")


@app.command()
def adopt(
    checkpoint: CheckpointArgument,
    through: Annotated[
        str, typer.Option(help="provider, or checkpoint (rhino://; for transformWithState).")
    ] = "provider",
    replication_factor: Annotated[int, typer.Option(help="Secondary copies beside the owner's.")] = 1,
    socket: SocketOption = DEFAULT_SOCKET,
    quiet_s: QuietOption = 30.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check and count, change nothing.")] = False,
    as_json: JsonOption = False,
) -> None:
    """On a worker's node: take over the state of a query that ran with Spark's own RocksDB provider."""
    from rhino.cli.takeover import TakeoverArguments, run_adopt

    arguments = TakeoverArguments(checkpoint, socket, dry_run, quiet_s, as_json, through, replication_factor)
    raise typer.Exit(run_adopt(arguments))


@app.command()
def release(
    checkpoint: CheckpointArgument,
    socket: SocketOption = DEFAULT_SOCKET,
    quiet_s: QuietOption = 30.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check and count, change nothing.")] = False,
    as_json: JsonOption = False,
) -> None:
    """On a worker's node: give a query's state back to Spark's own RocksDB provider."""
    from rhino.cli.takeover import TakeoverArguments, run_release

    raise typer.Exit(run_release(TakeoverArguments(checkpoint, socket, dry_run, quiet_s, as_json)))


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []})
def demo(context: typer.Context) -> None:
    """NEXMark NBQ8 on a local cluster, with a live handover and a lost worker; see `rhino demo --help`."""
    from deploy.demo.run import main as run_demo

    raise typer.Exit(run_demo(context.args))


handover_commands.register(app)


def main() -> None:
    """Entry point; every RhinoError becomes `error: ...` on stderr and a documented exit code."""
    try:
        app()
    except RhinoError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(exit_codes.of_error(error))
    except KeyboardInterrupt:
        sys.exit(exit_codes.INTERRUPTED)


if __name__ == "__main__":
    main()
