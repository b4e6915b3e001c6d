"""`rhino doctor`: examines a query checkpoint, also of stock Spark. Data on stdout, progress on stderr."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

from rich.filesize import decimal

from rhino.cli import exit_codes
from rhino.cli.doctor_command import CheckpointOptions
from rhino.cli.output import console, say, say_json
from rhino_core.errors import PreconditionError
from rhino_core.text import count
from spark_connector.doctor.cost import Cost, cost_of
from spark_connector.doctor.examine import LIVE_S, Diagnosis, first_look, whole_look
from spark_connector.doctor.files import Files
from spark_connector.doctor.finding import Finding
from spark_connector.doctor.move import Move, move_of, provider_name
from spark_connector.doctor.repair import Repair, carry_out, plan_repair
from spark_connector.doctor.tree import opened

_SHOWN_MAX = 40


def run_doctor(asked: CheckpointOptions, *, as_json: bool) -> int:
    begun = time.monotonic()
    files = Files(opened(asked.checkpoint))
    with console(error=True).status("looking at the logs and the newest batch"):
        diagnosis = first_look(files)
    say(f"first look, after {time.monotonic() - begun:.1f} s: {_verdict(diagnosis)}", error=True)
    if not asked.quick or asked.repair_into is not None:
        size_bytes = sum(file.size_bytes for file in files.listed.values())
        with console(error=True).status(f"reading {count(len(files.listed), 'file')}, {decimal(size_bytes)}"):
            diagnosis = whole_look(files)
    repair = None
    if asked.repair_into is not None:
        _require_idle(diagnosis)
        repair = plan_repair(diagnosis, asked.repair_into, asked.named)
        with console(error=True).status(f"copying {count(len(repair.copied), 'file')}"):
            carry_out(repair, files, asked.repair_into)
    cost, move = cost_of(diagnosis), move_of(diagnosis)
    if as_json:
        say_json(_plain(diagnosis, cost, move, repair, asked))
    else:
        _show(diagnosis, cost, move)
        if repair is not None:
            _show_repair(repair, asked)
    if repair is not None and diagnosis.damaged:
        return exit_codes.REPAIRED
    return exit_codes.FAILED if diagnosis.damaged else exit_codes.OK


def _require_idle(diagnosis: Diagnosis) -> None:
    query = diagnosis.query
    names = [*query.layout.offsets.values(), *query.layout.commits.values()]
    age_s = time.time() - max(query.files[name].changed_s for name in names)
    if age_s < LIVE_S:
        raise PreconditionError(
            f"{query.files.tree.location}: the logs changed {age_s:.0f} s ago, so the query may be running. Stop "
            f"it, and try again after {LIVE_S:.0f} s"
        )


def _verdict(diagnosis: Diagnosis) -> str:
    newest, opens = diagnosis.query.newest_commit, diagnosis.opens
    if diagnosis.as_it_is:
        return f"batch {newest}, the newest committed one, opens" if newest >= 0 else "no batch is committed yet"
    if opens is None:
        return f"DAMAGED: no batch opens; the newest committed one is {newest}"
    if opens == newest:
        return f"DAMAGED: batch {newest}, the newest committed one, opens in a repaired copy"
    if opens < 0:
        return f"DAMAGED: of batches up to {newest} none opens; a copy can begin with batch 0 again"
    return f"DAMAGED: batch {newest} does not open; batch {opens} does in a repaired copy"


def _show(diagnosis: Diagnosis, cost: Cost | None, move: Move | None) -> None:
    query = diagnosis.query
    state = f"{count(len(query.places), 'store')}, {decimal(diagnosis.state_bytes)} of state"
    say(f"query {query.files.fact('metadata').value or 'of no legible id'}: {_kind(diagnosis)}; {state}")
    say(_verdict(diagnosis))
    for finding in diagnosis.findings[:_SHOWN_MAX]:
        say(f"{finding.severity:8} {_about(finding)}{finding.text}")
        say(f"{'':8} -> {finding.way_out}")
    if more := diagnosis.findings[_SHOWN_MAX:]:
        say(f"and {count(len(more), 'finding')} more: see --json")
    if not query.files.deep:
        say("data files were compared by their sizes only, and older files were not read: leave out --quick for that")
    if cost is not None:
        say(
            f"cost on an object store: {cost.puts_a_batch:.0f} PUT for a batch each {cost.interval_s:,.1f} s, "
            f"{cost.puts:,} a month: ${cost.request_dollars:,.2f}; {decimal(cost.stored_bytes)}: "
            f"${cost.storage_dollars:,.2f} a month ({cost.assumed})"
        )
    if move is not None:
        say(f"to move it to Rhino: {move.command} ({decimal(move.state_bytes)})")
        for text in move.blockers:
            say(f"  first: {text}")
        for text in move.notes:
            say(f"  needs {text}")


def _about(finding: Finding) -> str:
    named = [f"operator and partition {finding.where}"] if finding.where else []
    named += [f"batch {finding.batch}"] if finding.batch >= 0 else []
    about = f" ({', '.join(named)})" if named else ""
    return f"{finding.file}{about}: " if finding.file else ""


def _kind(diagnosis: Diagnosis) -> str:
    query = diagnosis.query
    planned = f", {query.newest_offset} planned" if query.newest_offset > query.newest_commit else ""
    oldest = min(query.layout.commits, default=0)
    commits = f"batches {oldest} to {query.newest_commit} committed" if query.layout.commits else "no batch committed"
    return f"{provider_name(query)}, checkpoint format {query.format}, {commits}{planned}"


def _show_repair(repair: Repair, asked: CheckpointOptions) -> None:
    batch = f"batch {repair.batch}" if repair.batch >= 0 else "the beginning"
    say(f"{asked.repair_into}: a copy that opens at {batch}; {asked.checkpoint} was not changed")
    for text in repair.consequences:
        say(f"  {text}")


def _plain(
    diagnosis: Diagnosis, cost: Cost | None, move: Move | None, repair: Repair | None, asked: CheckpointOptions
) -> dict[str, Any]:
    query = diagnosis.query
    return {
        "checkpoint": query.files.tree.location,
        "query_id": query.files.fact("metadata").value,
        "provider": query.provider,
        "format": query.format,
        "newest_planned_batch": query.newest_offset,
        "newest_committed_batch": query.newest_commit,
        "opens": diagnosis.opens,
        "as_it_is": diagnosis.as_it_is,
        "all_files_read": query.files.deep,
        "stores": len(query.places),
        "state_bytes": diagnosis.state_bytes,
        "findings": [_plain_finding(finding) for finding in diagnosis.findings],
        "cost": asdict(cost) if cost else None,
        "move": asdict(move) if move else None,
        "repaired": {
            "folder": str(asked.repair_into),
            "batch": repair.batch,
            "files": len(repair.copied) + len(repair.written),
            "consequences": list(repair.consequences),
        }
        if repair
        else None,
    }


def _plain_finding(finding: Finding) -> dict[str, Any]:
    fields = asdict(finding)
    return {key: None if value == -1 else value for key, value in fields.items()}
