"""A map is made again when its groups or its workers change, and not when other workers do."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from handover_manager.machine import SLICE_PAUSE_S
from handover_manager.queries import jobs
from handover_manager.queries.desired_map import DesiredMap
from handover_manager.view import ClusterView, TaskGroup, WorkerSeen
from workloads.adaptation.scene import JOB, Cluster, Play, group, worker

Change = Callable[[Cluster], None]


class Revised(Cluster):
    """A cluster whose views have revisions, as those of the manager have."""

    revision = 1

    @property
    def view(self) -> ClusterView:
        return dataclasses.replace(super().view, revisions={JOB: self.revision})


@pytest.fixture
def play() -> Play:
    cluster = Revised("w1", "w2", "w3", "w4")
    for partition in range(4):
        cluster.chain(group(0, partition), "w1 w2")
    play = Play(cluster, now=100.0)
    play.now = 200.0
    play.see()
    play.begin(TaskGroup(0, (0,), 4))
    play.see()
    return play


def made_again(play: Play, change: Change, monkeypatch: pytest.MonkeyPatch) -> bool:
    made, choose = [], DesiredMap.choose

    def counted(self: DesiredMap, view: ClusterView) -> bool:
        made.append(self.job)
        return choose(self, view)

    monkeypatch.setattr(DesiredMap, "choose", counted)
    change(play.cluster)
    play.see()
    return bool(made)


def regrouped(cluster: Cluster) -> None:
    cluster.chain(group(0, 1), "w3 w2")
    assert isinstance(cluster, Revised)
    cluster.revision = 2


@pytest.mark.parametrize(
    ("change", "again"),
    [
        (lambda cluster: cluster.lose("w1"), True),
        (lambda cluster: cluster.lose("w2"), True),
        (lambda cluster: cluster.worker("w2", draining=True), True),
        (lambda cluster: cluster.lose("w4"), False),
        (lambda cluster: cluster.worker("w4", draining=True), False),
        (lambda cluster: cluster.worker("w1", free_bytes=7), False),
        (lambda cluster: cluster.workers.update(w9=WorkerSeen(worker("w9"), True, True, 1)), False),
        (lambda cluster: None, False),
        (regrouped, True),
    ],
)
def test_a_map_is_made_again_when_what_it_depends_on_changes(
    play: Play, monkeypatch: pytest.MonkeyPatch, change: Change, again: bool
) -> None:
    assert made_again(play, change, monkeypatch) is again


def test_a_worker_to_which_a_group_has_come_counts_from_then_on(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    regrouped(play.cluster)
    play.see()
    assert made_again(play, lambda cluster: cluster.lose("w3"), monkeypatch)


def test_many_maps_are_made_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a start all of them are due. Heartbeats are answered between two views."""
    monkeypatch.setattr(jobs, "NODES_OF_A_VIEW", 4)
    cluster = Revised("w1", "w2")
    names = [f"job-{number}" for number in range(6)]
    for name in names:
        for partition in range(2):
            cluster.chain(group(0, partition, name), "w1 w2")
    play = Play(cluster, now=100.0)
    play.now = 200.0
    for session, name in enumerate(names):
        play.begin(TaskGroup(0, (0,), 2), job=name, name=name, session=session)
    made, choose = [], DesiredMap.choose

    def noted(self: DesiredMap, view: ClusterView) -> bool:
        made.append(self.job)
        return choose(self, view)

    monkeypatch.setattr(DesiredMap, "choose", noted)
    for count in (2, 4, 6):
        play.see()
        assert made == names[:count]
        assert play.core.jobs.behind is (count < 6)
        deadline = play.core.next_deadline()
        assert (deadline == play.now + SLICE_PAUSE_S) is (count < 6)
    play.see()
    assert made == names
