"""`rhino rewind`: resets a query checkpoint to a batch with available state. Data on stdout."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rhino.cli import exit_codes
from rhino.cli.output import confirm, say, say_json
from rhino.client.handover_client import HandoverClient
from rhino.client.inventories import add_archived, collect_files, require_stopped
from rhino.client.running import refuse_running
from rhino_archive.bucket import Bucket
from rhino_core.errors import InvalidRequestError, UnknownError
from rhino_core.ids import GroupId
from rhino_core.text import count
from spark_connector.query_checkpoint import QueryCheckpoint
from spark_connector.rewind.files import backup_name, checkpoint_files, local_path, move_away, sink_log_files
from spark_connector.rewind.plan import RewindPlan, StoredFiles, plan_rewind


@dataclass(frozen=True, slots=True)
class RewindArguments:
    checkpoint: str
    file_sink: str
    no_file_sink: bool
    dry_run: bool
    yes: bool
    as_json: bool


def run_rewind(manager: str, arguments: RewindArguments) -> int:
    if arguments.file_sink and arguments.no_file_sink:
        raise InvalidRequestError("--file-sink and --no-file-sink: give only one of them")
    checkpoint = QueryCheckpoint(local_path(arguments.checkpoint))
    job = checkpoint.job
    refuse_running(manager, checkpoint)
    logs = checkpoint.logs()
    groups = {GroupId(job, *key) for batch in logs.commits.values() for key in batch.ids}
    stored = collect_files(manager, sorted(groups))
    archived = _add_archived(manager, job, stored)
    try:
        require_stopped(manager, job)
    except UnknownError:  # no worker stores anything of it
        if not archived:
            raise
    plan = plan_rewind(logs, stored)
    files = checkpoint_files(checkpoint.folder, plan)
    output = local_path(arguments.file_sink) if arguments.file_sink else None
    sink_files = sink_log_files(output, plan.batch) if output and plan.needed else []
    backup = backup_name()
    moving = plan.needed and not arguments.dry_run
    if moving:
        _check_sink_named(arguments)
        _ask(plan, len(files) + len(sink_files), yes=arguments.yes)
        refuse_running(manager, checkpoint)  # the query may have been started meanwhile
        if output:  # first, so that a crash in between makes the query fail, not silently skip batches
            move_away(sink_files, output, output / f"_{backup}")
        move_away(files, checkpoint.folder, checkpoint.folder / backup)
    _report(plan, [*sink_files, *files], checkpoint.folder / backup if moving else None, as_json=arguments.as_json)
    return exit_codes.OK


def _add_archived(manager: str, job: str, stored: StoredFiles) -> bool:
    with HandoverClient(manager) as client:
        url = client.archive().url
    return bool(url) and asyncio.run(add_archived(Bucket(url), job, stored))


def _ask(plan: RewindPlan, files: int, *, yes: bool) -> None:
    for line in _consequences(plan):
        say(line, error=True)
    confirm(
        f"This resets query {plan.job} from batch {plan.newest} to batch {plan.batch}, and moves {files} files away",
        yes=yes,
    )


def _check_sink_named(arguments: RewindArguments) -> None:
    if not arguments.file_sink and not arguments.no_file_sink:
        raise InvalidRequestError(
            "--file-sink FOLDER or --no-file-sink is missing: does the query write with Spark's file sink (parquet, "
            "json, csv, text, orc)? The checkpoint does not say it. That sink skips batches of its own log, and "
            "the command then has to move entries of that log, too"
        )


def _report(plan: RewindPlan, files: list[Path], backup: Path | None, *, as_json: bool) -> None:
    if as_json:
        say_json(_plain(plan, files, backup))
        return
    if not plan.needed:
        say(f"query {plan.job}: the state of its newest batch {plan.newest} is complete, so there is nothing to do")
        return
    for batch in plan.skipped:
        say(f"batch {batch.batch}: no worker holds {batch.versions} of its versions, for example {batch.example}")
    verb = "is" if backup else "would be"
    say(f"query {plan.job} {verb} reset from batch {plan.newest} to batch {plan.batch}")
    say(f"{count(len(files), 'file')} {f'moved to {backup}' if backup else 'to move'}")
    for line in _consequences(plan):
        say(line)


def _consequences(plan: RewindPlan) -> list[str]:
    lines = []
    if plan.replayed is not None:
        lines.append(f"batch {plan.replayed} is computed again with the same rows, and the sink gets it again")
    if plan.recomputed > 1:
        first, last = plan.batch + 2, plan.batch + plan.recomputed
        lines.append(
            f"batches {first} to {last} are planned anew and may have other rows: unless the sink upserts by key, "
            "delete its output of these batch ids; see `rhino rewind --help`"
        )
    return lines


def _plain(plan: RewindPlan, files: list[Path], backup: Path | None) -> dict[str, Any]:
    return {
        "job": plan.job,
        "newest_batch": plan.newest,
        "batch": plan.batch,
        "needed": plan.needed,
        "done": backup is not None,
        "replayed_batch": plan.replayed,
        "recomputed_batches": plan.recomputed if plan.needed else 0,
        "skipped": [
            {"batch": batch.batch, "versions": batch.versions, "example": batch.example} for batch in plan.skipped
        ],
        "files": [str(path) for path in files],
        "backup": str(backup) if backup else None,
    }
