"""What `rhino explain` says about copies that were placed or moved by load."""

from __future__ import annotations

import dataclasses

from handover_manager import events as ev
from handover_manager.view import TaskGroup
from rhino.daemons.cluster_port import ClusterPort
from rhino_core.planning.correlation import Candidate, CopyDecision
from tests.handover_manager.together import Replication
from tests.replication_manager.protocol.placement import test_load_histories as by_load
from workloads.adaptation.scene import JOB, Cluster, Play, group


def explained(*decisions: CopyDecision) -> list[str]:
    """About a virtual node on w1 with a copy on w2."""
    cluster = Cluster("w1", "w2", "w3", "w4")
    cluster.chain(group(0, 0), "w1 w2")
    play = Play(cluster)
    play.begin()
    by_worker = {decision.chosen.worker: decision for decision in decisions}
    cluster.groups[group(0, 0)] = dataclasses.replace(cluster.groups[group(0, 0)], copy_decisions=by_worker)
    view = dataclasses.replace(cluster.view, asked_at=4000.0)
    play(ev.ClusterSeen(view))
    return [reason for reason in play.core.explain(JOB, "0/0").reasons if reason.startswith("copy of")]


def test_a_copy_that_was_moved_by_load_has_its_numbers() -> None:
    decision = CopyDecision(
        at=300.0,
        chosen=Candidate("w2", -0.8123),
        other=Candidate("w4", 0.1),
        error=0.1826,
        origin=Candidate("w3", 0.7),
        needed=0.5477,
    )
    assert explained(decision) == [
        "copy of job-a/0/0 on w2, moved there from w3 by load 1 h 1 min ago: correlation with the load there -0.81; "
        "with that on w3 +0.70; gain 1.51, needed 0.55 (standard error 0.18); next best w4 +0.10"
    ]


def test_a_copy_that_was_chosen_by_load_has_its_numbers() -> None:
    decision = CopyDecision(3990.0, Candidate("w2", -0.25), Candidate("w3", -0.9, True), 0.25)
    assert explained(decision) == [
        "copy of job-a/0/0 on w2, chosen by load 10 s ago: correlation with the load there -0.25; standard error 0.25; "
        "next best w3 -0.90, with more than its share of copies by load"
    ]


def test_nothing_is_said_of_owners_of_former_members_and_of_copies_that_loads_did_not_place() -> None:
    assert explained() == []
    others = [CopyDecision(0.0, Candidate(name, -0.5), None, 0.25) for name in ("w1", "w3")]
    assert explained(*others) == []


def test_what_the_replication_manager_has_decided_is_told() -> None:
    manager = by_load.cluster(by_load=True)
    port = ClusterPort(Replication(manager))  # type: ignore[arg-type]
    manager.lose(by_load.copy_of_a(manager))
    play = Play(Cluster())
    play.begin(TaskGroup(0, (0,), 3), job="job")
    play(ev.ClusterSeen(port.view(asked_at=manager.now)))
    (told,) = [reason for reason in play.core.explain("job", "0/0").reasons if reason.startswith("copy of")]
    assert told.startswith("copy of job/0/0 on c, chosen by load 0 s ago: correlation with the load there -1.00; ")
