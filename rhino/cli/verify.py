"""`rhino verify`: an independent check of this node's copies of a job. Data on stdout, progress on stderr."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rhino.cli import exit_codes
from rhino.cli.columns import Cell, Row, show_columns
from rhino.cli.output import console, say, say_json
from worker_runtime.storage.disk.files import storage_error
from worker_runtime.verify.verifier import StoreReport, Verdict, verify_job

_COLOURS = {Verdict.SOUND: "green", Verdict.UNPROVEN: "yellow", Verdict.BAD: "red"}


def run_verify(data_dir: Path, job: str, partitions: list[int], *, as_json: bool) -> int:
    reports: list[StoreReport] = []
    try:
        with console(error=True).status("reading") as status:
            for report in verify_job(data_dir, job, partitions):
                reports.append(report)
                status.update(f"{len(reports)} stores read, {sum(r.verdict is Verdict.BAD for r in reports)} bad")
    except OSError as error:
        raise storage_error(error, f"verifying {data_dir}") from error
    if as_json:
        say_json({"job": job, "stores": [_plain(report) for report in reports]})
    else:
        _show(reports)
    return exit_codes.FAILED if any(r.verdict is Verdict.BAD for r in reports) else exit_codes.OK


def _plain(report: StoreReport) -> dict[str, Any]:
    return {
        "operator": report.store.operator,
        "partition": report.store.partition,
        "store": report.store.store,
        "version": str(report.version) if report.version else None,
        "snapshot_version": str(report.snapshot) if report.snapshot else None,
        "changelogs": report.changelogs,
        "keys": report.keys,
        "verdict": report.verdict.value,
        "problems": report.problems,
        "unproven": report.unproven,
    }


def _show(reports: list[StoreReport]) -> None:
    rows: list[Row] = []
    for r in reports:
        numbers = [str(v.version) if v else "none" for v in (r.version, r.snapshot)]
        keys = "?" if r.keys is None else str(r.keys)
        verdict = Cell(r.verdict.value, _COLOURS[r.verdict])
        rows.append((str(r.store).partition("/")[2], *numbers, str(r.changelogs), keys, verdict))
    show_columns(console(), ("store", "version", "snapshot", "changelogs", "keys", "verdict"), rows)
    for r in reports:
        for reason in (*r.problems, *r.unproven):
            say(f"{r.store}: {reason}")
