"""When a member catches up (worker_runtime/protocol/chain/membership.py)."""

from __future__ import annotations

from dataclasses import replace

from rhino_core.ids import Epoch, Member, ReplicaGroup
from tests.worker_runtime.scenario import group, worker
from worker_runtime.protocol import events as ev
from worker_runtime.protocol.chain.membership import MEMBER, REPAIR_S, SWEEP_S, GroupState, MemberState, MemberTrigger

ME = worker("b")


def member_of(first: ReplicaGroup) -> GroupState:
    """Its first catch-up has ended."""
    state = GroupState(first)
    assert len(state.adopt(first, ME)) == 1
    assert state.finished(first.epoch, 0.0, incomplete=False)
    return state


def test_who_comes_back_in_a_new_life_is_asked_what_it_has() -> None:
    state = member_of(group(1, "ab"))
    second = group(2, "ab")
    reborn = replace(second, members=(Member(worker("a", incarnation=2), False), *second.members[1:]))
    (order,) = state.adopt(reborn, ME)
    assert order == ev.StartCatchUp(reborn.group, reborn.epoch, (worker("a", incarnation=2),), whole=False)
    assert not state.whole, "until it has answered"


def test_a_repair_does_not_make_a_member_whole_that_stopped_counting_meanwhile() -> None:
    """Its inventories may be older than commits that did not wait for this member."""
    state = member_of(group(1, "ab"))
    assert len(state.damaged(ME)) == 1
    (order,) = state.adopt(group(2, "ab", whole="a"), ME)
    assert isinstance(order, ev.StartCatchUp)
    assert order.epoch == Epoch(1, 2)
    assert not state.finished(Epoch(1, 1), 3.0, incomplete=False)
    assert not state.whole
    assert state.finished(Epoch(1, 2), 3.0, incomplete=False)


def test_a_repair_goes_on_while_commits_wait_for_the_member() -> None:
    state = member_of(group(1, "ab"))
    state.damaged(ME)
    assert state.adopt(group(2, "ba"), ME) == []
    assert state.finished(Epoch(1, 1), 3.0, incomplete=False)
    assert (state.whole, state.group.epoch) == (True, Epoch(1, 2))


def test_a_first_catch_up_goes_on_under_later_epochs() -> None:
    state = GroupState(group(1, "ab", whole="a"))
    assert len(state.adopt(group(1, "ab", whole="a"), ME)) == 1
    assert state.adopt(group(2, "ab", whole="a"), ME) == []
    assert state.finished(Epoch(1, 1), 2.0, incomplete=False)
    assert (state.whole, state.group.epoch) == (True, Epoch(1, 2))


def test_every_state_is_reached_and_left() -> None:
    assert {MEMBER.first, *MEMBER.rows.values()} == set(MemberState)
    assert {state for state, _ in MEMBER.rows} == set(MemberState)
    assert {trigger for _, trigger in MEMBER.rows} == set(MemberTrigger)


def test_a_whole_member_compares_now_and_then_and_stays_whole() -> None:
    state = member_of(group(1, "ab"))
    assert state.tick(ME, SWEEP_S - 1.0, incomplete=False) == []
    (order,) = state.tick(ME, SWEEP_S, incomplete=False)
    assert isinstance(order, ev.StartCatchUp)
    assert order.whole
    assert (state.state, state.whole, state.next_deadline()) == (MemberState.COMPARING, True, None)
    state.check_invariants()
    assert not state.finished(order.epoch, SWEEP_S + 1.0, incomplete=False), "it has been whole all the time"
    assert (state.state, state.next_deadline()) == (MemberState.WHOLE, 2 * SWEEP_S + 1.0)


def test_a_repair_is_not_made_when_the_version_has_completed_by_itself() -> None:
    state = member_of(group(1, "ab"))
    state.plan_repair(1.0)
    assert state.next_deadline() == 1.0 + REPAIR_S
    assert state.tick(ME, 1.0 + REPAIR_S, incomplete=False) == []
    assert (state.state, state.next_deadline()) == (MemberState.WHOLE, SWEEP_S)


def test_a_worker_outside_plans_nothing() -> None:
    state = member_of(group(1, "ab"))
    assert state.adopt(group(2, "ac"), ME) == []
    state.plan_repair(2.0)
    assert (state.state, state.whole, state.next_deadline()) == (MemberState.OUTSIDE, False, None)
    assert state.damaged(ME) == []
    state.check_invariants()
