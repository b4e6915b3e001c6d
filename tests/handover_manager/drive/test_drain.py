"""When a worker can be removed, and why things are where they are."""

from __future__ import annotations

from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from handover_manager import events as ev
from handover_manager.machine import SETTLE_S
from handover_manager.view import Remains, TaskGroup
from replication_manager.protocol import events as replication
from replication_manager.protocol.workers.worker_record import Report
from rhino.daemons.cluster_port import ClusterPort
from rhino_core.errors import TooFewWorkersError, UnknownError
from rhino_core.ids import Epoch, GroupId
from rhino_model.handovers import Phase
from rhino_model.intents import Drain, Request
from tests.replication_manager.protocol.harness import GROUP, Manager, written
from workloads.adaptation.scene import JOB, Cluster, Play, group

G0, G1 = group(0, 0), group(0, 1)


@pytest.fixture
def play() -> Play:
    """0/0 on w1, 0/1 on w2; one batch has run; the manager has been up for a while."""
    cluster = Cluster("w1", "w2", "w3")
    cluster.chain(G0, "w1 w2")
    cluster.chain(G1, "w2 w3")
    scene = Play(cluster)
    scene.begin()
    scene.see()
    scene.now = SETTLE_S
    scene.batch(1, {G0: "w1", G1: "w2"})
    return scene


def blockers(play: Play, worker: str = "w1") -> str:
    play.see()
    state = play.drain_state(worker)
    assert state.safe_to_remove == (not state.blockers)
    return "; ".join(state.blockers)


def test_safe_only_when_marked_run_elsewhere_and_copied_elsewhere(play: Play) -> None:
    assert "not marked as draining" in blockers(play)
    play.cluster.worker("w1", draining=True)
    found = blockers(play)
    assert "virtual nodes that are meant to run there: 1 (q/0/0)" in found
    assert "groups that lack whole copies apart from it: 1 (q/0/0)" in found
    assert play.drain_state("w1").staying == 1

    play(ev.HandoverRequested("h1", Request("", intent=Drain("w1"))))
    assert play.drain_state("w1").handover_id == "h1"
    assert play.drain_state("w1").staying == 0
    assert "virtual nodes that ran there in the newest batch: 1" in blockers(play)
    assert "handover h1 is under way" in blockers(play)
    play.batch(2, {G0: "w2", G1: "w2"})
    assert blockers(play) == "groups that lack whole copies apart from it: 1 (q/0/0)"
    play.cluster.chain(G0, "w2 w3? w1")
    assert blockers(play) == "groups that lack whole copies apart from it: 1 (q/0/0)"
    play.cluster.chain(G0, "w2 w3")
    assert blockers(play) == ""
    play.batch(3, {G0: "w1", G1: "w2"})  # a miss
    assert "virtual nodes that ran there" in blockers(play)
    play.batch(4, {G0: "w2", G1: "w2"})
    assert blockers(play) == ""


def test_a_worker_that_may_have_what_whole_members_lack_is_not_safe(play: Play) -> None:
    play.cluster.worker("w1", draining=True)
    play.cluster.chain(G0, "w2 w3 w1?")
    play.batch(2, {G0: "w2", G1: "w2"})
    assert blockers(play) == ""
    play.cluster.remains["w1"] = Remains(unsettled={G0})
    assert blockers(play) == "groups that lack whole copies apart from it: 1 (q/0/0)"


def test_copies_on_workers_that_go_as_well_do_not_count(play: Play) -> None:
    play.cluster.worker("w1", draining=True)
    play.cluster.chain(G0, "w2 w3 w1")
    play.batch(2, {G0: "w2", G1: "w2"})
    assert blockers(play) == ""
    play.cluster.worker("w3", draining=True)
    assert "lack whole copies" in blockers(play)
    play.cluster.worker("w3", live=False)
    assert "lack whole copies" in blockers(play)


def test_a_stopped_query_needs_its_copies_only(play: Play) -> None:
    play.cluster.worker("w1", draining=True)
    play(ev.QueryEnded(1, JOB, "run-1"))
    assert blockers(play) == "groups that lack whole copies apart from it: 1 (q/0/0)"
    play.cluster.chain(G0, "w1 w2 w3")  # still its owner, but nothing is lost with it
    assert blockers(play) == ""


def test_files_of_a_job_without_groups_block_by_its_name(play: Play) -> None:
    """The journal was lost, and the query has not been started since: nobody makes other copies of what it stored."""
    play.cluster.worker("w1", draining=True)
    play.cluster.chain(G0, "w2 w3")
    play.batch(2, {G0: "w2", G1: "w2"})
    play.cluster.remains["w1"] = Remains(ungrouped=[group(0, 1, "job-b"), group(0, 0, "job-b")])
    assert blockers(play) == (
        "files of jobs that have had no group since the journal was lost (start the queries, or forget the jobs): "
        "1 (job-b)"
    )
    assert play.drain_state("w1").groups == 2
    assert "job-b" not in blockers(play, "w2")


def test_groups_that_only_reports_know_are_those_of_a_lost_journal() -> None:
    manager = Manager(fresh=True)
    report = Report(GROUP, Epoch(1, 5), True, 10, (written(1),), stored_files=1)
    for name in "abc":
        manager.register(name, *([report] if name != "c" else []))
    port = ClusterPort(SimpleNamespace(core=manager.machine, forget_job=None, forget_worker=None, runtime=Mock()))  # type: ignore[arg-type]
    assert [port.remains(name).ungrouped for name in "abc"] == [[GROUP], [GROUP], []]
    manager.resolve("a")
    assert not any(port.remains(name).ungrouped for name in "abc")
    manager.do(replication.JobForgotten(GROUP.job))
    manager.beat("a", report)
    assert not port.remains("a").ungrouped, "they are about to be deleted"


def test_after_a_start_of_the_manager_drivers_are_waited_for(play: Play) -> None:
    play.cluster.worker("w1", draining=True)
    play.cluster.chain(G0, "w2 w3")
    play.batch(2, {G0: "w2", G1: "w2"})
    after = play.restart()
    assert "the manager has just started" in blockers(after)
    after.begin(session=5)
    after.now += SETTLE_S
    assert "virtual nodes that have not run since the manager's start: 2" in blockers(after)
    after.batch(3, {G0: "w2", G1: "w2"})
    assert blockers(after) == ""


def test_a_drain_that_is_ended_early_leaves_no_chain_longer_than_asked_for(play: Play) -> None:
    play.cluster.worker("w1", draining=True)
    play.cluster.chain(G0, "w1 w2 w3?")
    play.cluster.chain(G1, "w2 w3")
    play.see()
    assert not play.core.view.is_longer(play.core.view.groups[G0])
    play.cluster.worker("w1")
    play.see()
    assert play(ev.DrainEnded("w1")) == [ev.ChangeGroup("", G0, make_owner="w1")]
    play(ev.GroupChanged("", G0, None))
    play.start("w3", "0/0")
    assert not play(ev.DrainEnded("w1")), "a handover needs it"


def test_a_worker_that_cannot_be_spared_is_named() -> None:
    cluster = Cluster("w1", "w2")
    cluster.chain(G0, "w1 w2")
    play = Play(cluster)
    play.begin(TaskGroup(0, (0,), 1))
    play.see()
    with pytest.raises(TooFewWorkersError, match=r"w1 cannot be drained.*needs 2 workers, 1 others take copies \(w2\)"):
        play.core.check_drain(Request("", intent=Drain("w1")), Drain("w1"), now=0.0)
    assert any("needs 2 workers, 1 others" in blocker for blocker in play.drain_state("w1").blockers)
    with pytest.raises(UnknownError, match="'w9': unknown; known are w1, w2"):
        play.drain_state("w9")


def test_a_notice_runs_out_also_while_the_manager_restarts(play: Play) -> None:
    play.cluster.worker("w1", draining=True)
    play.see()
    assert play.drain_state("w1").leaves_in_s is None
    play(ev.DrainBegun("w1", notice_s=120.0))
    play.now += 40.0
    assert play.drain_state("w1").leaves_in_s == pytest.approx(80.0, abs=0.01)
    assert play.drain_state("w1").headline == "worker w1 leaves in 80 s: not safe to remove"
    after = play.restart()
    after.see()
    after.now += 20.0
    assert after.drain_state("w1").leaves_in_s == pytest.approx(60.0, abs=0.01)
    after.now += 99.0
    assert after.drain_state("w1").leaves_in_s == 0.0
    after.cluster.worker("w1")
    after.see()
    assert after.drain_state("w1").leaves_in_s is None, "the drain was ended"


@pytest.mark.parametrize("marked", [False, True])
def test_with_a_notice_no_handover_goes_on_to_the_worker(play: Play, marked: bool) -> None:
    """After the last marker its executors may write already, so the handover stays."""
    play.cluster.chain(G0, "w1 w2 w3" if marked else "w1 w2")
    play.see()
    play.start("w3", "0/0")
    play(ev.DrainBegun("w3", notice_s=30.0))
    assert play.handover().phase is (Phase.MARKED if marked else Phase.CANCELLED)


def test_a_drain_without_notice_cancels_nothing(play: Play) -> None:
    play.start("w3", "0/0")
    play(ev.DrainBegun("w3"))
    assert play.handover().phase is Phase.PREPARING


def test_why_a_virtual_node_is_where_it_is(play: Play) -> None:
    def reasons() -> str:
        return "\n".join(play.core.explain("q", "0/0").reasons)

    assert "desired: w1, the owner of its replica groups" in reasons()
    assert "ran: on w1, as desired" in reasons()
    members = "w1 (owner, whole, 100 bytes) > w2 (whole, 100 bytes)"
    assert f"group job-a/0/0, epoch 1.1, 2 of 2 members: {members}" in reasons()
    play(ev.HandoverRequested("h1", Request("", intent=Drain("w1"))))
    assert "desired: w2, set by a handover's marker until it owns the groups (now w1)" in reasons()
    assert "handover h1 (drain w1) moves it from w1 to w2: step 1 of 1, marked; w2: the only other holder" in reasons()
    assert "ran: on w1 in the newest batch, not on w2" in reasons()
    play.batch(2, {G0: "w2", G1: "w2"})
    assert "last handover h1 (drain w1), from w1 to w2 (the only other holder): confirmed in batch 2" in reasons()
    play.cluster.lose("w2")
    play.cluster.chain(G0, "w2 w3?")
    play.see()
    assert "w2 (owner, whole, out of reach" in reasons()
    with pytest.raises(UnknownError, match="0/7"):
        play.core.explain("q", "0/7")


def test_who_asked_for_a_handover_is_told_also_after_a_restart(play: Play) -> None:
    play(ev.HandoverRequested("h1", Request("", intent=Drain("w1")), "rhino://c/operator/alice"))
    asked = "handover h1 (drain w1, asked for by rhino://c/operator/alice)"
    assert f"{asked} moves it from w1" in "\n".join(play.core.explain("q", "0/0").reasons)
    play.batch(2, {G0: "w2", G1: "w2"})
    again = play.restart()
    assert again.handover().by == "rhino://c/operator/alice"
    assert f"last {asked}, from w1" in "\n".join(again.core.explain(JOB, "0/0").reasons)


def test_the_owner_out_of_reach_is_told() -> None:
    cluster = Cluster("w1", "w2")
    cluster.chain(GroupId(JOB, 0, 0), "w1 w2")
    play = Play(cluster)
    play.begin(TaskGroup(0, (0,), 2))
    play.see()
    play.now = SETTLE_S
    cluster.lose("w1")
    play.see()
    assert (
        "w2, the first whole member in the chain, for the owner w1 is out of reach"
        in play.core.explain(JOB, "0/0").reasons[0]
    )
    assert "nowhere yet" in play.core.explain(JOB, "0/1").reasons[0]


def test_virtual_nodes_that_a_restart_has_done_away_with_block_nothing(play: Play) -> None:
    """Fewer partitions, or another split into task groups: nobody runs the former ones, and nothing can move them."""
    play.cluster.worker("w1", draining=True)
    play.cluster.chain(G0, "w2 w3")
    play.batch(2, {G0: "w1", G1: "w2"})
    play(ev.QueryEnded(1, JOB, "run-1"))
    play.begin(TaskGroup(1, (1,), 1), run_id="run-2")
    other = group(1, 0)
    play.cluster.chain(other, "w2 w3")
    play.see()
    play.batch(3, {other: "w2"}, run_id="run-2")
    assert blockers(play) == ""
    assert {n.name for n in play.core.jobs[JOB].map.desired} == {"1/0"}
    after = play.restart()
    after.begin(TaskGroup(1, (1,), 1), session=2, run_id="run-2")
    after.now += SETTLE_S
    assert blockers(after) == "virtual nodes that have not run since the manager's start: 1 (q/1/0)"


def test_a_handover_of_virtual_nodes_that_a_restart_has_done_away_with_ends(play: Play) -> None:
    handover = play.start("w2", "0/0")
    assert handover.phase is Phase.MARKED
    play(ev.QueryEnded(1, JOB, "run-1"))
    play.begin(TaskGroup(1, (1,), 1), run_id="run-2")
    play.cluster.lose("w2")
    play.see()
    assert play.handover().phase is Phase.REDIRECTED
    assert "redirected 0/0 to no worker" in handover.reason


def test_a_query_whose_driver_was_killed_is_a_stopped_one_after_a_while(play: Play) -> None:
    play.cluster.worker("w1", draining=True)
    play.cluster.chain(G0, "w1 w2 w3")
    play(ev.SessionClosed(1))
    assert "virtual nodes that are meant to run there: 1" in blockers(play)
    play.now += SETTLE_S
    assert blockers(play) == "", "as for a stopped query: nothing is lost with it"
    play.begin(session=2, run_id="run-2")
    assert "virtual nodes that are meant to run there: 1" in blockers(play)
