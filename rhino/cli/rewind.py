"""`rhino rewind`: takes a query checkpoint back to a batch whose state is still held. Data on stdout."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from rhino.cli import exit_codes
from rhino.errors import InvalidRequestError
from rhino.ids import GroupId
from spark_connector.rewind.plan import RewindPlan, plan_rewind
from spark_connector.rewind.query_checkpoint import (
    QueryCheckpoint,
    backup_name,
    local_path,
    move_away,
    sink_log_files,
)
from spark_connector.rpc.held import ask_all, check_over


@dataclass(frozen=True, slots=True)
class RewindArguments:
    checkpoint: str
    file_sink: str
    no_file_sink: bool
    dry_run: bool
    as_json: bool


def run_rewind(manager: str, arguments: RewindArguments) -> int:
    """Carries out the command; returns its exit code. RhinoErrors are left to the caller."""
    if arguments.file_sink and arguments.no_file_sink:
        raise InvalidRequestError("rewind takes one of --file-sink and --no-file-sink")
    checkpoint = QueryCheckpoint(local_path(arguments.checkpoint))
    job = checkpoint.job()
    check_over(manager, job)
    logs = checkpoint.logs()
    groups = {GroupId(job, *key) for batch in logs.commits.values() for key in batch.ids}
    plan = plan_rewind(logs, ask_all(manager, sorted(groups)))
    files = checkpoint.files_of(plan)
    output = local_path(arguments.file_sink) if arguments.file_sink else None
    sink_files = sink_log_files(output, plan.batch) if output and plan.needed else []
    backup = backup_name()
    moving = plan.needed and not arguments.dry_run
    if moving:
        _check_sink_named(arguments)
        check_over(manager, job)  # it may have been started meanwhile
        if output:  # first: without its entries the query fails, with them alone it would silently leave batches out
            move_away(sink_files, output, output / f"_{backup}")
        move_away(files, checkpoint.folder, checkpoint.folder / backup)
    _report(plan, [*sink_files, *files], checkpoint.folder / backup if moving else None, as_json=arguments.as_json)
    return exit_codes.OK


def _check_sink_named(arguments: RewindArguments) -> None:
    if not arguments.file_sink and not arguments.no_file_sink:
        raise InvalidRequestError(
            "does the query write to Spark's file sink (parquet, json, csv, text, orc)? Say --file-sink <its output "
            "folder> or --no-file-sink: the checkpoint does not tell, and a file sink leaves out batches that its own "
            "log has"
        )


def _report(plan: RewindPlan, files: list[Path], backup: Path | None, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(_plain(plan, files, backup), indent=2))
        return
    console = Console(highlight=False, markup=False, soft_wrap=True)
    if not plan.needed:
        console.print(f"query {plan.job}: its newest batch {plan.newest} is held in full, nothing to do")
        return
    for passed in plan.passed_over:
        console.print(
            f"batch {passed.batch}: {passed.versions} versions are held by nobody, among them {passed.example}"
        )
    verb = "is" if backup else "would be"
    console.print(f"query {plan.job} {verb} taken back from batch {plan.newest} to {plan.batch}; {len(files)} files")
    if backup:
        console.print(f"moved to {backup}")
    for line in _consequences(plan):
        console.print(line)


def _consequences(plan: RewindPlan) -> list[str]:
    lines = []
    if plan.replayed is not None:
        lines.append(f"batch {plan.replayed} is computed again with the same rows, and the sink is given it again")
    if plan.recomputed > 1:
        first, last = plan.batch + 2, plan.batch + plan.recomputed
        lines.append(
            f"batches {first} to {last} are planned anew and may hold other rows: delete the output that the sink "
            "keeps under these batch ids, unless it upserts by key; see `rhino rewind --help`"
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
        "passed_over": [
            {"batch": passed.batch, "versions": passed.versions, "example": passed.example}
            for passed in plan.passed_over
        ],
        "files": [str(path) for path in files],
        "backup": str(backup) if backup else None,
    }
