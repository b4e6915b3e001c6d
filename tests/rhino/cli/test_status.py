"""What `rhino status` prints, and its exit codes for scripts."""

from __future__ import annotations

import dataclasses
import io
import json

import pytest
from rich.console import Console
from typer.testing import CliRunner

from rhino.cli import status_command
from rhino.cli.main import app
from rhino.cli.status import SECTIONS, archive_line, archive_usage_line, render
from rhino.client.overview import Overview, query_names
from rhino_core.errors import UnavailableError
from rhino_core.version import rhino_version
from rhino_model.archives import Archive, ArchivedQuery, ArchiveUsage, DrillCounts
from tests.rhino.client.views import JOB, group, job, node, overview, worker

CLUSTER = overview(
    [worker(f"worker-{n}", "lost" if n == 0 else "live", host=f"127.0.0.{n}") for n in range(3)],
    [group(0, "worker-0! worker-1"), group(1, "worker-1 worker-2")],
    [job(node(0, "worker-1", "worker-2", rows=None), node(1, "worker-1", "worker-1"), missed=1)],
)
WELL = overview([worker("a"), worker("b")], [group(0, "a b")], [job(node(0, "a", "a"))])
LOST = overview([worker("a"), worker("b", "lost")], [group(0, "a- b!")], [job(node(0, "a", "a"))])


def printed(seen: Overview, *sections: str, width: int = 80) -> list[str]:
    out = io.StringIO()
    render(seen, Console(file=out, width=width), sections)
    return out.getvalue().splitlines()


def test_the_verdict_is_first_with_its_reasons() -> None:
    lines = printed(CLUSTER)
    assert lines[0] == "DEGRADED: 1 of 3 workers lost: worker-0"
    assert lines[1].endswith("1 of 2 replica groups has fewer complete copies than minCopies: counts/0/0")
    assert "note: 1 virtual node ran elsewhere than desired in the newest batch: counts" in lines[3]
    assert printed(WELL)[0] == "OK: 2 of 2 workers live, 1 query, 1 replica group"
    assert printed(LOST)[0].startswith("CRITICAL: 1 of 1 replica groups has no complete copy")


@pytest.mark.parametrize("width", [20, 80])
def test_every_name_can_be_found_in_a_line_of_its_own_at_any_width(width: int) -> None:
    lines = printed(CLUSTER, *SECTIONS, width=width)
    for name in ("worker-0", "worker-1", "worker-2"):
        assert [line for line in lines if line.startswith(f"{name} ")]
    assert lines == printed(CLUSTER, *SECTIONS, width=400)


def test_the_tables_of_a_usual_cluster_fit_80_columns() -> None:
    tables = [line for line in printed(CLUSTER) if line[:1].strip()][1:]
    assert [line for line in tables if len(line) > 80] == []
    assert len(tables) > 8


def test_a_forgotten_query_is_shown_with_the_time_left_and_leaves_its_name_to_a_new_one() -> None:
    old = dataclasses.replace(WELL.jobs[0], connected=False, delete_in_s=86390.0, forgotten_ms=1)
    old = dataclasses.replace(old, forgotten_by="rhino://c/operator/alice")
    lines = printed(dataclasses.replace(WELL, jobs=(old,)))
    assert lines[0].startswith("OK")
    assert lines[1].startswith(
        "  note: query counts is forgotten, and its state is deleted in 23 h 59 min; `rhino forget"
    )
    assert lines[1].endswith("`rhino forget --job counts --undo` takes it back")
    assert len([line for line in lines if line.startswith("counts  forgotten")]) == 1
    at = lines.index(next(line for line in lines if line.startswith("QUERY") and "FORGOTTEN" in line))
    assert lines[at + 1].split()[:2] == ["counts", JOB]
    assert lines[at + 1].split()[3:] == ["rhino://c/operator/alice", "23", "h", "59", "min"]
    new = dataclasses.replace(WELL.jobs[0], job="new")
    both = printed(dataclasses.replace(WELL, jobs=(new, old)), "forgotten")
    assert [line.split()[:2] for line in both if line.startswith("counts@")] == [[f"counts@{JOB[:8]}", JOB]]
    assert query_names((new, old)) == {"new": "counts", JOB: f"counts@{JOB[:8]}"}
    assert "FORGOTTEN" not in "".join(printed(WELL))


def test_workers_are_summed_and_what_was_not_measured_is_no_zero() -> None:
    lines = printed(CLUSTER, "balance")
    at = next(number for number, line in enumerate(lines) if line.startswith("QUERY"))
    rows = [line.split() for line in lines[at + 1 :]]
    assert rows[0][:6] == ["counts", "worker-1", "1", "2", "50%", "10"]
    assert rows[1][:6] == ["counts", "worker-2", "1", "0", "50%", "?"]
    assert rows[2][:6] == ["counts", "(all)", "2", "2", "100%", "?"]
    assert len(rows) == 3


def test_only_the_sections_that_are_asked_for_are_shown() -> None:
    heads = {line.split()[0] for line in printed(CLUSTER, "groups") if line.isupper() or line.startswith("GROUP")}
    assert heads == {"GROUP"}
    assert not any("counts" in line and "worker-1 " in line for line in printed(CLUSTER, "workers")[5:])


def test_versions_name_each_process_and_each_driver_by_its_queries() -> None:
    queries = [
        dataclasses.replace(job(name=name, job_id=name), application_id=application, rhino_version=version)
        for name, application, version in (("a", "app-1", "1.1"), ("b", "app-1", "1.1"), ("c", "app-2", ""))
    ]
    gone = dataclasses.replace(job(name="gone", job_id="gone"), connected=False)
    seen = dataclasses.replace(overview([worker("w")], (), [*queries, gone]), rhino_version="1.1")
    rows = [line.rsplit(maxsplit=1) for line in printed(seen, "versions")]
    at = next(number for number, row in enumerate(rows) if row and row[0] == "PROCESS")
    assert rows[at + 1 :] == [
        ["(manager)", "1.1"],
        ["(this command)", rhino_version()],
        ["w", "?"],
        ["(driver of a, b)", "1.1"],
        ["(driver of c)", "?"],
    ]


@pytest.mark.parametrize(("seen", "code"), [(WELL, 0), (CLUSTER, 6), (LOST, 7)])
def test_check_ends_with_the_level(monkeypatch: pytest.MonkeyPatch, seen: Overview, code: int) -> None:
    monkeypatch.setattr(status_command, "fetch_overview", lambda manager, timeout_s: seen)
    assert CliRunner().invoke(app, ["status", "--check"]).exit_code == code
    assert CliRunner().invoke(app, ["status"]).exit_code == 0
    result = CliRunner().invoke(app, ["status", "--check", "--json"])
    assert result.exit_code == code
    assert json.loads(result.stdout)["verdict"]["level"] == {0: "ok", 6: "degraded", 7: "critical"}[code]


def test_watch_goes_on_without_the_manager(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter((WELL, UnavailableError("manager at h:1: gone"), CLUSTER))

    def fetch(manager: str, *, timeout_s: float) -> Overview:
        answer = next(answers, None)
        if answer is None:
            raise KeyboardInterrupt
        if isinstance(answer, UnavailableError):
            raise answer
        return answer

    monkeypatch.setattr(status_command, "fetch_overview", fetch)
    monkeypatch.setattr(status_command, "sleep", lambda seconds: None)
    result = CliRunner().invoke(app, ["status", "--watch", "--json"])
    levels = [json.loads(line)["verdict"]["level"] for line in result.stdout.splitlines()]
    assert levels == ["ok", "degraded"]
    assert "manager at h:1: gone" in result.stderr
    assert result.exit_code == 130


def test_the_archive_has_a_line_if_there_is_one() -> None:
    assert not any("archive" in line for line in printed(WELL))
    query = ArchivedQuery(JOB, "counts", 3, 1, 2, 4, False, 12.7, True, "")
    drills = DrillCounts(300.0, passed=3, unproven=1, passed_age_s=125.0)
    seen = dataclasses.replace(WELL, archive=Archive("s3://b/rhino", "c", (query,), 10.0, drills=drills))
    line = (
        "archive s3://b/rhino: 1 query, 12 s behind; restore drills: 3 passed, the last one 2 min 5 s ago, 1 unproven"
    )
    assert line in printed(seen, width=200)
    early = Archive("/a", "c", (), 10.0, drills=DrillCounts(300.0, not_run=1, passed_age_s=3.0, why="no worker"))
    assert (
        archive_line(early)
        == "archive /a: 0 queries, up to date; restore drills: 0 passed, none yet, 1 not run (no worker)"
    )
    assert archive_line(Archive("/a", "c", ())) == "archive /a: 0 queries, up to date; no restore drills"
    slow = dataclasses.replace(query, every_s=45.0, why="the uploads")
    assert (
        archive_line(Archive("/a", "c", (slow,), 10.0))
        == "archive /a: 1 query, 12 s behind, a batch every 45 s (the uploads); no restore drills"
    )


def test_the_requests_to_the_archive_have_a_price() -> None:
    # 95,040 writes and 10,000 reads a day are $0.4752 and $0.004.
    assert (
        archive_usage_line(ArchiveUsage(seconds=43_200, writes=47_520, reads=5_000, uploaded_bytes=1_500_000_000))
        == "a day, as in the last 12 h 0 min: 95,040 requests to write and 10,000 to read "
        "($0.48 at the list prices of S3), 3.0 GB uploaded"
    )
