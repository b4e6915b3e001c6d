"""What a view of the cluster costs: as much as has changed, however many virtual nodes there are."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from handover_manager import events as ev
from handover_manager.machine import SETTLE_S
from handover_manager.queries.desired_map import DesiredMap
from handover_manager.view import ClusterView, TaskGroup
from replication_manager.protocol import events as replication_ev
from replication_manager.protocol.workers.worker_record import Report
from replication_manager.service.service import ReplicationService
from rhino.daemons.cluster_port import ClusterPort
from rhino_core.ids import NO_EPOCH, GroupId, JobSettings
from rhino_core.journal import Journal
from rhino_core.settings import ManagerSettings
from tests.simulation.sizes import sizes
from workloads.adaptation.scene import JOB, Cluster, Play, group, worker

G0 = group(0, 0)


class Counted:
    """A play whose views say what has changed, and the maps that were made for them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cluster = Cluster("w1", "w2", "w3")
        self.cluster.chain(G0, "w1 w2")
        self.revisions = {JOB: 1}
        self.play = Play(self.cluster)
        self.play.begin(TaskGroup(0, (0,), 2))
        self.play.now = SETTLE_S
        self.made = 0
        choose = DesiredMap.choose

        def counting(desired: DesiredMap, view: ClusterView) -> bool:
            self.made += 1
            return choose(desired, view)

        monkeypatch.setattr(DesiredMap, "choose", counting)

    def take_view(self) -> int:
        """Maps that it made."""
        before = self.made
        view = dataclasses.replace(self.cluster.view, revisions=dict(self.revisions))
        self.play(ev.ClusterSeen(view))
        return self.made - before


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(monkeypatch)


def test_a_map_is_made_again_only_when_its_groups_or_the_workers_have_changed(counted: Counted) -> None:
    play, cluster = counted.play, counted.cluster
    assert [counted.take_view() for _ in range(3)] == [1, 0, 0]
    assert play.desired("0/0") == "w1"
    cluster.chain(G0, "w2 w1")
    counted.revisions[JOB] += 1
    assert [counted.take_view() for _ in range(2)] == [1, 0]
    assert play.desired("0/0") == "w2"
    cluster.lose("w2")
    assert [counted.take_view() for _ in range(2)] == [1, 0]
    assert play.desired("0/0") == "w1"
    cluster.worker("w1", free_bytes=7)
    assert counted.take_view() == 0
    cluster.worker("w1", draining=True)
    assert counted.take_view() == 1
    play.begin(TaskGroup(0, (0,), 2), session=1, run_id="run-2")
    assert play.of(ev.PushLocations), "a run gets its map without a view"
    counted.revisions["job-b"] = 1
    assert counted.take_view() == 0


def test_a_handover_goes_on_without_changes(counted: Counted) -> None:
    """A handover that waits for time only, such as its deadline."""
    counted.take_view()
    handover = counted.play.start("w3", "0/0", deadline_s=5)
    counted.take_view()
    counted.play.now += 6
    counted.take_view()
    assert "deadline of 5 s" in handover.reason


@asynccontextmanager
async def replication(folder: Path) -> AsyncIterator[ReplicationService]:
    journal = Journal(folder, bootstrap=True)
    service = ReplicationService(journal, ManagerSettings(folder, "127.0.0.1:0"))
    running = asyncio.create_task(service.run())
    await asyncio.sleep(0)
    try:
        yield service
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        journal.close()


async def test_a_view_has_what_the_replication_manager_knows(tmp_path: Path) -> None:
    async with replication(tmp_path) as service:
        cluster = ClusterPort(service)
        for name in ("a", "b", "c"):
            service.handle(replication_ev.Registered(worker(name), name, NO_EPOCH, ()))
        assert cluster.view(asked_at=1.0).groups == {}
        g0, g1 = GroupId("job", 0, 0), GroupId("job", 0, 1)
        for made in (g0, g1):
            service.handle(replication_ev.Resolve(made, "a", JobSettings()))
        first = cluster.view(asked_at=2.0)
        assert set(first.groups) == {g0, g1}
        assert set(first.workers) == {"a", "b", "c"}
        assert (first.workers["b"].live, first.workers["b"].draining, first.asked_at) == (True, False, 2.0)
        revision = (first.revisions or {})["job"]
        seen = first.groups[g1]
        other = next(w for w in ("b", "c") if not first.groups[g0].has(w))

        report = Report(g0, first.groups[g0].group.epoch, False, stored_bytes=7)
        service.handle(replication_ev.Beat(other, worker(other).incarnation, 0, 55, 0, 0, (report,)))
        second = cluster.view(asked_at=3.0)
        assert dict(second.groups[g0].stored_bytes) == {other: 7}
        assert second.workers[other].free_bytes == 55
        assert (second.revisions or {})["job"] == revision, "bytes are no change of a map"

        cluster.change_group(ev.ChangeGroup("", g0, add_member=other))
        cluster.set_draining("b", True)
        third = cluster.view(asked_at=4.0)
        assert third.groups[g0].has(other)
        assert (third.revisions or {})["job"] > revision
        assert third.workers["b"].draining
        if not third.groups[g1].has("b"):
            assert third.groups[g1] is seen, "what has not changed is not made again"

        cluster.set_draining(other, True)  # else it would be waited for
        service.handle(replication_ev.Leaving(other, other))
        assert dict(cluster.view(asked_at=5.0).groups[g0].stored_bytes) == {}
        cluster.forget_job("job", dry_run=False)
        last = cluster.view(asked_at=6.0)
        assert (last.groups, last.revisions) == ({}, {}), "nothing is remembered of it"
        service.handle(replication_ev.Resolve(GroupId("job-b", 0, 0), "a", JobSettings(0)))
        newer = (cluster.view(asked_at=7.0).revisions or {})["job-b"]
        assert newer > (third.revisions or {}).get("job", 0), "no number is given twice, whoever has gone"


def test_workers_that_were_forgotten_are_forgotten() -> None:
    cluster = Cluster("w1", "w2")
    play = Play(cluster)
    for number in range(3, 20):
        cluster.worker(f"w{number}")
        play(ev.ClusterSeen(cluster.view))
        del cluster.workers[f"w{number}"]
        play(ev.ClusterSeen(cluster.view))
    assert sizes([play.core])["HandoverCore._seen"] == 2
