"""A query that is started again with other settings gets what it asks for now."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rhino import rhino_conf
from rhino.client.overview import GroupView, fetch_overview
from rhino.testing import LocalCluster
from tests.spark.conftest import wait_for
from tests.spark.support.bad_input import run_sessions

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(300)]


def groups_of(cluster: LocalCluster, job: str) -> list[GroupView]:
    return [group for group in fetch_overview(cluster.manager).groups if group.group.job == job]


def copies(group: GroupView) -> int:
    return sum(member.whole and member.state == "live" for member in group.members)


def test_one_copy_becomes_two(tmp_path: Path, cluster: LocalCluster) -> None:
    conf = rhino_conf(cluster.manager, socket=cluster.socket.replace("{host}", cluster.workers[0].host))
    factor, least = "spark.rhino.replicationFactor", "spark.rhino.minCopies"
    alone, _ = run_sessions(tmp_path, {"query:alone": conf | {factor: "0", least: "1"}})
    assert alone["query:alone"].done, alone["query:alone"].error
    job = json.loads((tmp_path / "query" / "metadata").read_text())["id"]
    assert {(g.replication_factor, g.min_copies, copies(g)) for g in groups_of(cluster, job)} == {(0, 1, 1)}

    pair = conf | {factor: "1", least: "2"}
    after, _ = run_sessions(tmp_path, {"query:pair": pair})
    assert after["query:pair"].done, after["query:pair"].error
    wait_for(lambda: all(copies(g) == 2 for g in groups_of(cluster, job)), "two whole copies of every group")
    found = groups_of(cluster, job)
    assert {(g.replication_factor, g.min_copies, g.required_copies) for g in found} == {(1, 2, 2)}
