from __future__ import annotations

import dataclasses

import pytest

from rhino.client.overview import Overview, query_names
from rhino.client.verdict import judge, whole_copies
from rhino.page.sums import OfQuery, OnWorker, by_query, by_worker, on_worker
from rhino_core.ids import JobSettings
from tests.rhino.client.views import JOB
from tests.rhino.page.imagined import large, small

OVERVIEW = small().overview


def test_sums_by_worker() -> None:
    assert by_worker(OVERVIEW) == {
        "a": OnWorker(runs=2, desired=1, task_s=0.75, whole_copies=1, catching_up=1, versions_behind=1),
        "b": OnWorker(runs=0, desired=1, task_s=0.0, whole_copies=2, versions_behind=2),
        "c": OnWorker(),
        "d": OnWorker(desired=1, whole_copies=1, catching_up=1, versions_behind=8),
    }, "lost copies do not count, and a query without a driver is no load"


def test_a_task_time_is_unknown_if_one_is() -> None:
    jobs = tuple(dataclasses.replace(job, connected=True) for job in OVERVIEW.jobs)
    assert by_worker(dataclasses.replace(OVERVIEW, jobs=jobs))["d"].task_s is None


def test_sums_by_query() -> None:
    names = query_names(OVERVIEW.jobs)
    found = by_query(OVERVIEW, names)
    assert found[JOB] == OfQuery(
        full=1, below=1, none=1, lag_versions=8, state_bytes=327, lacking=["counts/0/2", "counts/0/1"]
    )
    assert (found["other"].full, found["other"].below) == (0, 1)
    three = JobSettings(2)
    groups = tuple(dataclasses.replace(group, settings=three) for group in OVERVIEW.groups[:1])
    assert by_query(dataclasses.replace(OVERVIEW, groups=groups), names)[JOB].short == 1


@pytest.mark.parametrize("overview", [OVERVIEW, large(20, 400, 2).overview])
def test_sums_say_the_same_as_the_verdict_and_the_groups(overview: Overview) -> None:
    found = by_query(overview, query_names(overview.jobs)).values()
    gone = [group for group in overview.groups if not whole_copies(group)]
    below = [group for group in overview.groups if whole_copies(group) and group.degraded]
    assert sum(one.none for one in found) == len(gone)
    assert sum(one.below for one in found) == len(below)
    assert sum(one.full + one.short + one.below + one.none for one in found) == len(overview.groups)
    reasons = " ".join(judge(overview).reasons)
    assert (f"{len(below)} of {len(overview.groups)} replica groups ha" in reasons) is bool(below)
    copies = sum(member.whole and member.state != "lost" for group in overview.groups for member in group.members)
    assert sum(one.whole_copies for one in by_worker(overview).values()) == copies


def test_virtual_nodes_on_a_worker_are_ranges() -> None:
    found = list(on_worker(OVERVIEW, "a", query_names(OVERVIEW.jobs)))
    assert found == [{"job": JOB, "query": "counts", "nodes": ["0/0-1"]}]
    assert not list(on_worker(OVERVIEW, "nobody", query_names(OVERVIEW.jobs)))
