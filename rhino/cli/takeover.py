"""`rhino adopt` and `rhino release`. Data on stdout, progress on stderr."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from rich.filesize import decimal

from rhino.cli import exit_codes
from rhino.cli.output import confirm, console, say, say_json
from rhino.client.overview import Overview, fetch_overview
from rhino.client.running import refuse_running
from rhino_core.errors import PreconditionError
from rhino_core.ids import JobSettings
from rhino_model.codec import plain
from spark_connector.checkpoint import rhino_checkpoint
from spark_connector.query_checkpoint import QueryCheckpoint
from spark_connector.rpc.sidecar import SidecarSession
from spark_connector.takeover import AdoptOptions, Outcome, Progress, adopt, check_released, release


@dataclasses.dataclass(frozen=True, slots=True)
class TakeoverArguments:
    """`integration`, `replication_factor` and `to_format` are for adopt only, `yes` for release."""

    checkpoint: Path
    socket: Path
    dry_run: bool
    idle_s: float
    as_json: bool
    integration: str = "provider"
    replication_factor: int = 1
    to_format: int | None = None
    yes: bool = False


def run_adopt(arguments: TakeoverArguments) -> int:
    settings = JobSettings(replication_factor=arguments.replication_factor)
    options = AdoptOptions(arguments.integration, arguments.to_format, arguments.dry_run, arguments.idle_s)
    folder = arguments.checkpoint
    checkpoint = QueryCheckpoint(folder)
    with (
        SidecarSession(arguments.socket, settings, client="rhino adopt") as session,
        _progress() as report,
    ):
        stopped = partial(refuse_running, session.manager, checkpoint)
        stopped()
        refuse_forgotten(fetch_overview(session.manager), checkpoint.job)
        outcome = adopt(folder, session, options, report=report, refuse_running=stopped)
    if arguments.as_json:
        say_json({"dry_run": arguments.dry_run, **plain(outcome)})
    else:
        _say_adopted(arguments, outcome)
    return exit_codes.OK


def _say_adopted(arguments: TakeoverArguments, outcome: Outcome) -> None:
    verb = "would adopt" if arguments.dry_run else "adopted"
    say(f"{verb} {_what(outcome)} into worker {outcome.worker_id}, which owns it until it is handed over")
    say(f"found: {outcome.found}")
    if arguments.dry_run and arguments.to_format:
        say(f"would change the logs of {arguments.checkpoint}, after a copy of them into a folder backup-<time> there")
    elif outcome.backup:
        say(f"the checkpoint now names {outcome.provider}; its former logs are in {outcome.backup}")
    if arguments.integration == "checkpoint":
        say(f"run the query with checkpointLocation {rhino_checkpoint(arguments.checkpoint.absolute())}")
    say(f"the files in {arguments.checkpoint / 'state'} stay as they are; Rhino does not use them")


def run_release(arguments: TakeoverArguments) -> int:
    folder = arguments.checkpoint
    checkpoint = QueryCheckpoint(folder)
    with (
        SidecarSession(arguments.socket, JobSettings(), client="rhino release") as session,
        _progress() as report,
    ):
        overview = fetch_overview(session.manager)
        check_released(folder, stored=any(known.group.job == checkpoint.job for known in overview.groups))
        stopped = partial(refuse_running, session.manager, checkpoint)
        stopped()
        if not arguments.dry_run:
            what = f"query {checkpoint.job} runs without Rhino from then on"
            confirm(f"This rewrites {folder}, so that {what}", yes=arguments.yes)
        outcome = release(
            folder,
            session,
            dry_run=arguments.dry_run,
            idle_s=arguments.idle_s,
            report=report,
            refuse_running=stopped,
        )
    if arguments.as_json:
        say_json({"dry_run": arguments.dry_run, **plain(outcome)})
        return exit_codes.OK
    say(f"{'would release' if arguments.dry_run else 'released'} {_what(outcome)}")
    if outcome.backup:
        say(f"the checkpoint now names {outcome.provider}; its former logs are in {outcome.backup}")
    say(f"Rhino keeps its copies until you delete them: rhino forget --job {outcome.job}")
    return exit_codes.OK


def _what(outcome: Outcome) -> str:
    return (
        f"job {outcome.job} as of batch {outcome.batch_id}: {outcome.stores} stores, {outcome.files} files, "
        f"{decimal(outcome.bytes)}"
    )


@contextmanager
def _progress() -> Iterator[Progress]:
    """A changing line on stderr: the present work, the number of stores, and the bytes."""
    with console(error=True).status("reading the checkpoint") as status:

        def report(what: str, done: int, total: int, size_bytes: int) -> None:
            size = f", {decimal(size_bytes)}" if size_bytes else ""
            status.update(f"{what} {done} of {total} stores{size}" if total else what)

        yield report


def refuse_forgotten(overview: Overview, job: str) -> None:
    """Raises PreconditionError for a forgotten query: adopted state would be deleted with its other state."""
    if any(known.job == job and known.delete_in_s is not None for known in overview.jobs):
        raise PreconditionError(
            f"query {job} is forgotten, and its state will be deleted: take that back first, with `rhino forget --job "
            f"{job} --undo`"
        )
