"""One handover: the table, the happy path, and every other end."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

import pytest

from handover_manager import events as ev
from handover_manager.drive.states import TRANSITIONS, State, Trigger, state_of
from handover_manager.drive.step import DrivenStep
from handover_manager.view import ClusterView, TaskGroup
from rhino_core.errors import (
    LocalProtocolError,
    NoSpaceError,
    PreconditionError,
    UnavailableError,
    UnknownError,
)
from rhino_core.ids import StoreId, StoreVersion, Version
from rhino_model.handovers import Phase
from workloads.adaptation.scene import WALL_OFFSET_S, Cluster, Play, group, node, pair

G0, G1 = group(0, 0), group(0, 1)


@pytest.fixture
def play() -> Play:
    return pair()


@pytest.mark.parametrize(("state", "trigger"), list(itertools.product(State, Trigger)))
def test_every_pair_is_in_the_table_or_raises(state: State, trigger: Trigger) -> None:
    step = DrivenStep("h", (), state=state)
    if (state, trigger) in TRANSITIONS.rows:
        step.advance(trigger, "why")
        assert (step.state, step.reason) == (TRANSITIONS.rows[state, trigger], "why")
    else:
        with pytest.raises(LocalProtocolError, match=f"{trigger.value} is impossible in state {state.value}"):
            step.advance(trigger)


def test_an_impossible_transition_tells_the_history() -> None:
    step = DrivenStep("h", ())
    step.advance(Trigger.BEGIN)
    step.advance(Trigger.CANCEL)
    with pytest.raises(LocalProtocolError, match="planned > begin: preparing > cancel: cancelling"):
        step.advance(Trigger.WHOLE)


def test_final_states_are_final_and_all_states_are_reached() -> None:
    assert {state for state, _ in TRANSITIONS.rows} == {state for state in State if not state.final}
    assert {State.PLANNED, *TRANSITIONS.rows.values()} == set(State)
    ends = [(a.phase, b.phase) for (a, _), b in TRANSITIONS.rows.items() if a.ended]
    assert all(before is after for before, after in ends), "an ended phase is final, whatever remains to be done"
    assert "preparing --> marked: whole" in TRANSITIONS.diagram()


@pytest.mark.parametrize("state", State)
def test_a_state_is_found_again_from_its_phase(state: State) -> None:
    assert state_of(state.phase, clean=state.final or not state.ended) is state


def test_the_design_page_shows_the_table() -> None:
    page = Path(__file__).parents[3] / "docs" / "design" / "handover.md"
    assert f"```mermaid\n{TRANSITIONS.diagram()}\n```" in page.read_text()


def test_the_target_is_named_until_it_owns_the_group_also_if_it_has_had_a_copy(play: Play) -> None:
    assert play.core.handovers.targets() == {}
    play.start("w2", "0/0")
    play.see()
    assert play.handover().phase is Phase.MARKED
    assert play.core.handovers.targets() == {G0: "w2"}
    play.batch(2, {G0: "w2", G1: "w2"})
    assert play.handover().phase is Phase.CONFIRMED
    assert play.core.handovers.targets() == {G0: "w2"}, "it does not own the group yet"
    play.cluster.chain(G0, "w2 w1")
    play.see()
    assert play.core.handovers.targets() == {}


def test_a_target_that_is_lost_after_the_confirmation_is_not_made_the_owner(play: Play) -> None:
    """It is still a member: the replication manager has not repaired the group yet."""
    play.start("w2", "0/0")
    play.see()
    play.batch(2, {G0: "w2", G1: "w1"})
    assert (play.handover().phase, play.handover().final) == (Phase.CONFIRMED, False)
    play.cluster.lose("w2")
    play(ev.GroupChanged("h1", G0, UnavailableError("worker w2 is not live")))
    play.see()
    assert play.handover().final
    assert play.of(ev.ChangeGroup) == []
    assert play.desired("0/0") == "w1"


def test_to_a_worker_without_a_copy(play: Play) -> None:
    play.now = 5.0
    handover = play.start("w3", "0/0")
    assert play.handover().phase is Phase.PREPARING
    assert play.of(ev.ChangeGroup) == [ev.ChangeGroup("h1", G0, add_member="w3")]
    assert isinstance(play.effects[0], ev.Persist)
    play(ev.GroupChanged("h1", G0, None))

    play.cluster.chain(G0, "w1 w2 w3?", {"w1": 100, "w2": 100, "w3": 40})
    assert not [e for e in play.see() if isinstance(e, ev.ChangeGroup)]
    assert handover.waiting_for == {node("0/0")}
    play.cluster.chain(G0, "w1 w2 w3", {"w1": 100, "w2": 100, "w3": 100})
    play.now = 7.0
    play.see()
    assert (handover.phase, handover.bytes_moved, handover.configuration_epoch) == (Phase.MARKED, 100, 2)
    kinds = [type(e) for e in play.effects]
    assert kinds.index(ev.Persist) < kinds.index(ev.PushLocations)
    assert play.of(ev.PushLocations)[0].locations[0].workers[0] == "w3"
    assert (play.desired("0/0"), play.desired("0/1")) == ("w3", "w1")

    play.batch(4, {G0: "w1", G1: "w1"})
    assert play.handover().phase is Phase.MARKED
    play.now = 8.0
    play.batch(5, {G0: "w3", G1: "w1"})
    assert (handover.phase, handover.confirmed_batch_id) == (Phase.CONFIRMED, 5)
    assert play.of(ev.ChangeGroup) == [ev.ChangeGroup("h1", G0, make_owner="w3")]
    wall = [round((t + WALL_OFFSET_S) * 1000) for t in (5.0, 7.0, 8.0)]
    assert [handover.started_ms, handover.marked_ms, handover.finished_ms] == wall

    play.see()  # not the owner yet: stays desired
    assert play.desired("0/0") == "w3"
    play(ev.GroupChanged("h1", G0, None))
    play.cluster.chain(G0, "w3 w1")
    play.see()
    assert not handover.settling
    assert not play.core.jobs["job-a"].map.pinned
    assert play.core.jobs["job-a"].map.configuration_epoch == 2


def test_to_a_replica_nothing_is_copied_and_the_marker_comes_at_once(play: Play) -> None:
    handover = play.start("w2", "0/0", "0/1")
    assert (handover.phase, handover.bytes_moved) == (Phase.MARKED, 0)
    assert not play.of(ev.ChangeGroup)
    play.batch(1, {G0: "w2", G1: "w1"})
    assert handover.waiting_for == {node("0/1")}
    assert play.of(ev.Announce) == [ev.Announce("h1")]
    play.batch(2, {G0: "w2", G1: "w2"})
    assert play.handover().phase is Phase.CONFIRMED
    assert len(play.of(ev.ChangeGroup)) == 2


def test_a_batch_logged_before_the_marker_confirms_nothing(play: Play) -> None:
    version = StoreVersion(StoreId(*G0, "default"), Version(2, "x"))
    play(ev.BatchLogged(1, "job-a", "run-1", 1, (version,)))
    play.start("w2", "0/0")
    play(ev.WritersFound("job-a", 1, {version: "w2"}))
    assert play.handover().phase is Phase.MARKED


def test_all_stores_of_a_virtual_node_must_be_written_by_the_target() -> None:
    cluster = Cluster("w1", "w2")
    cluster.chain(group(0, 0), "w1 w2")
    cluster.chain(group(1, 0), "w1 w2")
    play = Play(cluster)
    play.begin(TaskGroup(0, (0, 1), 1))
    play.see()
    play.start("w2", "0/0")
    play.batch(1, {group(0, 0): "w2", group(1, 0): "w1"})
    play.batch(2, {group(0, 0): "w2", group(1, 0): ""})
    assert play.handover().phase is Phase.MARKED
    play.batch(3, {group(0, 0): "w2", group(1, 0): "w2"})
    assert play.handover().phase is Phase.CONFIRMED


def test_the_deadline_before_the_marker_rolls_back(play: Play) -> None:
    handover = play.start("w3", "0/0", deadline_s=30)
    play(ev.GroupChanged("h1", G0, UnavailableError("moved on")))
    play.now = 29.9
    play.see()
    assert play.handover().phase is Phase.PREPARING
    play.now = 30.0
    play.see()
    assert play.handover().phase is Phase.ROLLED_BACK
    assert "deadline of 30 s: virtual nodes 0/0 not prepared (last error: moved on)" in handover.reason
    assert play.desired("0/0") == "w1"


def test_a_step_whose_copies_come_nearer_gets_its_deadline_again(play: Play) -> None:
    def stored(here: int, there: int) -> None:
        play.cluster.chain(G0, "w1 w2 w3?", {"w1": there, "w2": there, "w3": here})
        play.see()

    play.cluster.chain(G0, "w1 w2", {"w1": 900, "w2": 900})
    play.see()
    handover = play.start("w3", "0/0", deadline_s=30)
    for number in (1, 2, 3):
        play.now = 30.0 * number
        stored(100 * number, 900 + number)  # what is written meanwhile comes to all
        assert play.handover().phase is Phase.PREPARING
    play.now = 119.9
    stored(305, 909)
    assert play.handover().phase is Phase.PREPARING
    play.now = 120.0
    play.see()
    assert play.handover().phase is Phase.ROLLED_BACK
    assert "deadline of 30 s: virtual nodes 0/0 not prepared; 603 bytes are not there" in handover.reason


def test_the_deadline_after_the_marker_asserts_the_owner_again(play: Play) -> None:
    handover = play.start("w2", "0/0", deadline_s=30)
    epoch = handover.configuration_epoch
    assert epoch is not None
    play.now = 30.0
    play.see()
    assert play.handover().phase is Phase.ROLLED_BACK
    assert play.of(ev.PushLocations)[0].configuration_epoch == epoch + 1
    assert play.desired("0/0") == "w1"
    assert "no batch was logged since the marker" in handover.reason


def test_a_rollback_after_the_marker_takes_back_what_targets_own_by_then(play: Play) -> None:
    handover = play.start("w2", "0/0", "0/1", deadline_s=30)
    for batch in (1, 2):
        play.batch(batch, {G0: "w2", G1: "w1"})
    play.cluster.chain(G0, "w2 w1")  # the owner follows two logged batches
    play.see()
    play.now = 30.0
    play.see()
    assert (handover.phase, handover.reason) == (
        Phase.ROLLED_BACK,
        "deadline of 30 s: virtual nodes 0/1 not written by worker w2",
    )
    assert play.of(ev.ChangeGroup) == [ev.ChangeGroup("h1", G0, make_owner="w1")]
    play(ev.GroupChanged("h1", G0, UnavailableError("later")))
    restarted = play.restart()
    restarted.begin(session=2)
    restarted.see()
    assert restarted.of(ev.ChangeGroup) == [ev.ChangeGroup("h1", G0, make_owner="w1")]
    play.cluster.chain(G0, "w1 w2")
    play.see()
    assert (play.desired("0/0"), play.desired("0/1")) == ("w1", "w1")
    assert not handover.unwinding


@pytest.mark.parametrize("why", ["no copy", "draining"])
def test_a_rollback_says_what_stays_with_its_target(play: Play, why: str) -> None:
    handover = play.start("w2", "0/0", "0/1", deadline_s=30)
    play.cluster.chain(G0, "w2" if why == "no copy" else "w2 w1", factor=0 if why == "no copy" else 1)
    if why == "draining":
        play.cluster.worker("w1", draining=True)
    play.see()
    play.now = 30.0
    play.see()
    assert handover.reason.endswith("; with their targets, which own them and have no origin to go back to: 0/0")
    play.see()
    assert not play.of(ev.ChangeGroup)
    assert (play.desired("0/0"), handover.unwinding) == ("w2", set())


def test_cancel_before_the_marker_only(play: Play) -> None:
    play.start("w3", "0/0")
    play(ev.CancelRequested("h1"))
    assert play.handover().phase is Phase.CANCELLED
    play.start("w2", "0/0", handover_id="h2")
    with pytest.raises(PreconditionError, match="h2 is marked"):
        play(ev.CancelRequested("h2"))
    with pytest.raises(PreconditionError, match="h1 is cancelled"):
        play(ev.CancelRequested("h1"))


def test_a_target_lost_before_the_marker_rolls_back(play: Play) -> None:
    handover = play.start("w3", "0/0")
    play.cluster.lose("w3")
    play.see()
    assert (handover.phase, handover.reason) == (Phase.ROLLED_BACK, "target w3 was lost before the marker")


def test_a_target_lost_after_the_marker_redirects_to_a_holder(play: Play) -> None:
    handover = play.start("w2", "0/0")
    play.cluster.lose("w2")
    play.cluster.chain(G0, "w1 w3?")
    play.see()
    assert play.handover().phase is Phase.REDIRECTED
    assert "redirected 0/0 to w1" in handover.reason
    assert play.desired("0/0") == "w1"
    assert play.of(ev.PushLocations)[0].locations[0].workers == ("w1",)


def test_origin_and_target_lost_after_the_marker(play: Play) -> None:
    play.cluster.chain(G0, "w1 w2 w3")
    play.see()
    play.start("w2", "0/0")
    play.cluster.lose("w1")
    play.cluster.lose("w2")
    play.see()  # the replication manager has not moved the ownership yet
    assert play.handover().phase is Phase.REDIRECTED
    assert play.desired("0/0") == "w3"


def test_a_refused_group_change_ends_it_unless_it_may_succeed_later(play: Play) -> None:
    handover = play.start("w3", "0/0", "0/1")
    play(ev.GroupChanged("h1", G0, UnavailableError("busy")))
    play.see()
    assert play.of(ev.ChangeGroup) == [ev.ChangeGroup("h1", G0, add_member="w3")]
    play(ev.GroupChanged("h1", G1, NoSpaceError("disk of w3 is full")))
    assert play.handover().phase is Phase.ROLLED_BACK
    assert "disk of w3 is full" in handover.reason


def test_what_was_given_up_leaves_the_chain_again(play: Play) -> None:
    play.start("w3", "0/0")
    play(ev.CancelRequested("h1"))
    play.see()  # the join is still under way
    assert not play.of(ev.ChangeGroup)
    play(ev.GroupChanged("h1", G0, None))
    play.cluster.chain(G0, "w1 w2 w3?")
    play.see()
    assert play.of(ev.ChangeGroup) == [ev.ChangeGroup("h1", G0, make_owner="w1")]
    play(ev.GroupChanged("h1", G0, UnavailableError("later")))
    play.see()
    assert play.of(ev.ChangeGroup) == [ev.ChangeGroup("h1", G0, make_owner="w1")]
    play(ev.GroupChanged("h1", G0, None))
    play.cluster.chain(G0, "w1 w2")
    play.see()
    assert not play.of(ev.ChangeGroup)
    assert not play.handover().unwinding
    assert not play.see()


def test_a_view_from_before_a_join_does_not_say_that_it_was_taken_back(play: Play) -> None:
    play.start("w3", "0/0")
    play(ev.CancelRequested("h1"))
    before = dataclasses.replace(play.cluster.view, asked_at=1.0)
    play.now = 2.0
    play(ev.GroupChanged("h1", G0, None))
    play(ev.ClusterSeen(before))
    play.now = 3.0
    play.cluster.chain(G0, "w1 w2 w3?")
    play(ev.ClusterSeen(dataclasses.replace(play.cluster.view, asked_at=3.0)))
    assert play.of(ev.ChangeGroup) == [ev.ChangeGroup("h1", G0, make_owner="w1")]


def test_a_new_handover_is_not_disturbed_by_one_that_was_given_up(play: Play) -> None:
    play.start("w3", "0/0")
    play.cluster.chain(G0, "w1 w2 w3?")
    play(ev.CancelRequested("h1"))
    play(ev.GroupChanged("h1", G0, None))
    play.start("w3", "0/0", handover_id="h2")
    play.see()
    assert not play.of(ev.ChangeGroup)
    play.cluster.chain(G0, "w1 w2 w3")
    play.see()
    assert play.handover("h2").phase is Phase.MARKED


def test_a_target_dropped_from_the_chain_after_the_marker_redirects(play: Play) -> None:
    play.start("w2", "0/0")
    play.cluster.chain(G0, "w1 w3?")
    play.see()
    assert (play.handover().phase, play.desired("0/0")) == (Phase.REDIRECTED, "w1")


def test_a_target_dropped_after_the_confirmation_is_not_insisted_on(play: Play) -> None:
    play.start("w2", "0/0")
    play.batch(1, {G0: "w2", G1: "w1"})
    play.cluster.chain(G0, "w1 w3")
    play(ev.GroupChanged("h1", G0, UnknownError("no member")))
    play.see()
    assert not play.of(ev.ChangeGroup)
    assert (play.handover().phase, play.desired("0/0")) == (Phase.CONFIRMED, "w1")


def test_restart_before_the_marker_rolls_back(play: Play) -> None:
    play.start("w3", "0/0")
    after = play.restart()
    assert after.handover().phase is Phase.ROLLED_BACK
    assert "restarted" in after.handover().reason
    assert after.restart().handover().phase is Phase.ROLLED_BACK


def test_what_was_given_up_leaves_the_chain_also_after_a_restart(play: Play) -> None:
    play.start("w3", "0/0")
    play.cluster.chain(G0, "w1 w2 w3?")
    play(ev.GroupChanged("h1", G0, None))
    play(ev.CancelRequested("h1"))
    after = play.restart()
    after(ev.ClusterSeen(ClusterView()))  # nothing is known yet
    after.see()
    assert after.of(ev.ChangeGroup) == [ev.ChangeGroup("h1", G0, make_owner="w1")]
    after.cluster.chain(G0, "w1 w2")
    after(ev.GroupChanged("h1", G0, None))
    after.see()
    assert after.of(ev.ChangeGroup) == []
    again = after.restart()
    again.cluster.chain(G0, "w1 w2 w3")  # for another reason
    again.see()
    assert again.of(ev.ChangeGroup) == []


def test_restart_after_the_marker_goes_on_to_confirm(play: Play) -> None:
    before = play.start("w2", "0/0")
    after = play.restart()
    after.begin(session=9)
    handover = after.handover()
    assert after.handover().phase is Phase.MARKED
    assert handover.configuration_epoch == before.configuration_epoch
    assert before.configuration_epoch is not None
    assert after.core.jobs["job-a"].map.configuration_epoch > before.configuration_epoch
    after.cluster.lose("w2")  # not heard of yet
    after.see()
    assert (handover.phase, after.desired("0/0")) == (Phase.MARKED, "w2")
    after.cluster.worker("w2")
    after.see()
    after.batch(8, {G0: "w2", G1: "w1"})
    assert (handover.phase, handover.confirmed_batch_id) == (Phase.CONFIRMED, 8)


def test_restart_between_confirmation_and_ownership_keeps_the_target_desired(play: Play) -> None:
    play.start("w2", "0/0")
    play.batch(1, {G0: "w2", G1: "w1"})
    after = play.restart()
    after.see()
    assert after.of(ev.ChangeGroup) == [ev.ChangeGroup("h1", G0, make_owner="w2")]
    assert after.desired("0/0") == "w2"


def test_ended_handovers_are_forgotten_beyond_a_bound(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("handover_manager.drive.handovers.ENDED_MAX", 2)
    for number in range(5):
        play.start("w3", "0/0", handover_id=f"h{number}")
        play(ev.CancelRequested(f"h{number}"))
        play(ev.GroupChanged(f"h{number}", G0, None))
        play.see()
    assert [h.handover_id for h in play.core.handovers.all()] == ["h2", "h3", "h4"]
    assert sum("/handover/" in key for key in play.journal) == 3
    assert sum("/step/" in key for key in play.journal) == 3
    play(ev.GroupChanged("h0", G0, None))
