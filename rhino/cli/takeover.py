"""`rhino adopt` and `rhino release`. Data on stdout, progress on stderr."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from rich.filesize import decimal

from rhino.cli import exit_codes
from rhino.cli.output import console, say, say_json
from rhino.client.codec import plain
from rhino.client.overview import fetch_overview
from rhino_core.errors import ConflictError
from rhino_core.ids import JobSettings
from spark_connector.checkpoint import rhino_checkpoint
from spark_connector.query_checkpoint import QueryCheckpoint
from spark_connector.rpc.sidecar import SidecarSession
from spark_connector.takeover import Outcome, adopt, release


@dataclasses.dataclass(frozen=True, slots=True)
class TakeoverArguments:
    """`integration` and `replication_factor` are for adopt only."""

    checkpoint: Path
    socket: Path
    dry_run: bool
    idle_s: float
    as_json: bool
    integration: str = "provider"
    replication_factor: int = 1


def run_adopt(arguments: TakeoverArguments) -> int:
    """Executes the command and returns its exit code. The caller handles RhinoErrors."""
    settings = JobSettings(replication_factor=arguments.replication_factor)
    outcome = _carry_out(arguments, settings, "adopt")
    if not arguments.as_json:
        verb = "would adopt" if arguments.dry_run else "adopted"
        say(f"{verb} {_what(outcome)} into worker {outcome.worker_id}, which owns it until it is handed over")
        if arguments.integration == "checkpoint":
            say(f"run the query with checkpointLocation {rhino_checkpoint(arguments.checkpoint.absolute())}")
        elif outcome.backup:
            say(f"the checkpoint now names {outcome.provider}; its former offset log is in {outcome.backup}")
        say(f"the files in {arguments.checkpoint / 'state'} stay as they are; nobody uses them from now on")
    return exit_codes.OK


def run_release(arguments: TakeoverArguments) -> int:
    """Like `run_adopt`."""
    outcome = _carry_out(arguments, JobSettings(), "release")
    if not arguments.as_json:
        say(f"{'would release' if arguments.dry_run else 'released'} {_what(outcome)}")
        if outcome.backup:
            say(f"the checkpoint now names {outcome.provider}; its former offset log is in {outcome.backup}")
        say(f"Rhino keeps its copies until you delete them: rhino forget --job {outcome.job}")
    return exit_codes.OK


def _what(outcome: Outcome) -> str:
    return (
        f"job {outcome.job} as of batch {outcome.batch_id}: {outcome.stores} stores, {outcome.files} files, "
        f"{decimal(outcome.bytes)}"
    )


def _carry_out(arguments: TakeoverArguments, settings: JobSettings, command: str) -> Outcome:
    folder, dry_run, idle_s = arguments.checkpoint, arguments.dry_run, arguments.idle_s
    job = QueryCheckpoint(folder).job
    with (
        SidecarSession(arguments.socket, settings, client=f"rhino {command}") as session,
        console(error=True).status("reading the checkpoint") as status,
    ):
        _refuse_running(session.manager, job)

        def report(done: int, total: int, size_bytes: int) -> None:
            status.update(f"{done} of {total} stores, {decimal(size_bytes)}")

        if command == "adopt":
            mode = arguments.integration
            outcome = adopt(folder, session, integration=mode, dry_run=dry_run, idle_s=idle_s, report=report)
        else:
            outcome = release(folder, session, dry_run=dry_run, idle_s=idle_s, report=report)
    if arguments.as_json:
        say_json({"dry_run": dry_run, **plain(outcome)})
    return outcome


def _refuse_running(manager: str, job: str) -> None:
    if any(known.job == job and known.connected for known in fetch_overview(manager).jobs):
        raise ConflictError(f"query {job}: its driver is connected to the manager at {manager}; stop the query first")
