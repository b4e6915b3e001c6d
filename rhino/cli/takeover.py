"""`rhino adopt` and `rhino release`. Data on stdout, progress on stderr."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from rich.console import Console
from rich.filesize import decimal

from rhino.cli import exit_codes
from rhino.errors import ConflictError
from rhino.ids import JobSettings
from rhino.rpc.overview import fetch_overview
from spark_connector.checkpoint import rhino_checkpoint
from spark_connector.rpc.sidecar import SidecarSession
from spark_connector.takeover import Outcome, adopt, release
from spark_connector.takeover.checkpoint import QueryCheckpoint


@dataclasses.dataclass(frozen=True, slots=True)
class TakeoverArguments:
    """`through` and `replication_factor` matter to adopt only."""

    checkpoint: Path
    socket: Path
    dry_run: bool
    quiet_s: float
    as_json: bool
    through: str = "provider"
    replication_factor: int = 1


def run_adopt(arguments: TakeoverArguments) -> int:
    """Carries out the command; returns its exit code. RhinoErrors are left to the caller."""
    settings = JobSettings(replication_factor=arguments.replication_factor)
    outcome = _carry_out(arguments, settings, "adopt")
    if not arguments.as_json:
        console = Console(soft_wrap=True, highlight=False)
        verb = "would adopt" if arguments.dry_run else "adopted"
        console.print(f"{verb} {_what(outcome)} into worker {outcome.worker_id}, which owns it until it is handed over")
        if arguments.through == "checkpoint":
            console.print(f"run it with checkpointLocation {rhino_checkpoint(arguments.checkpoint.absolute())}")
        elif outcome.backup:
            console.print(f"the checkpoint names {outcome.provider} now; its former offset log is in {outcome.backup}")
        console.print(f"the files in {arguments.checkpoint / 'state'} stay as they are, and are not used from now on")
    return exit_codes.OK


def run_release(arguments: TakeoverArguments) -> int:
    """As `run_adopt`."""
    outcome = _carry_out(arguments, JobSettings(), "release")
    if not arguments.as_json:
        console = Console(soft_wrap=True, highlight=False)
        console.print(f"{'would release' if arguments.dry_run else 'released'} {_what(outcome)}")
        if outcome.backup:
            console.print(f"the checkpoint names {outcome.provider} now; its former offset log is in {outcome.backup}")
        console.print(f"Rhino keeps its copies until: rhino forget --job {outcome.job}")
    return exit_codes.OK


def _what(outcome: Outcome) -> str:
    return (
        f"job {outcome.job} as of batch {outcome.batch_id}: {outcome.stores} stores, {outcome.files} files, "
        f"{decimal(outcome.bytes)}"
    )


def _carry_out(arguments: TakeoverArguments, settings: JobSettings, command: str) -> Outcome:
    folder, dry_run, quiet_s = arguments.checkpoint, arguments.dry_run, arguments.quiet_s
    job = QueryCheckpoint(folder).job
    with (
        SidecarSession(arguments.socket, settings, client=f"rhino {command}") as session,
        Console(stderr=True).status("reading the checkpoint") as status,
    ):
        _refuse_running(session.manager, job)

        def say(done: int, total: int, size_bytes: int) -> None:
            status.update(f"{done} of {total} stores, {decimal(size_bytes)}")

        if command == "adopt":
            through = arguments.through
            outcome = adopt(folder, session, through=through, dry_run=dry_run, quiet_s=quiet_s, say=say)
        else:
            outcome = release(folder, session, dry_run=dry_run, quiet_s=quiet_s, say=say)
    if arguments.as_json:
        print(json.dumps({"dry_run": dry_run, **dataclasses.asdict(outcome)}, indent=2))
    return outcome


def _refuse_running(manager: str, job: str) -> None:
    if any(known.job == job and known.connected for known in fetch_overview(manager).jobs):
        raise ConflictError(f"job {job}: its driver is connected to the manager at {manager}: stop the query first")
