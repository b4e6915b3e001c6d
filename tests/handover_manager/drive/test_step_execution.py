"""Handovers of several steps: turns, gaps, limits, cancel, failures and restarts."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handover_manager import events as ev
from handover_manager.drive.handover import DrivenHandover
from handover_manager.view import TaskGroup
from rhino_core.errors import PreconditionError
from rhino_core.ids import GroupId
from rhino_model.handovers import Phase
from rhino_model.intents import Drain, Request
from rhino_model.strategy import Kind, Strategy
from workloads.adaptation.scene import JOB, WALL_OFFSET_S, Cluster, Play, group, node

FLUID = Strategy(Kind.FLUID)
GROUPS = [group(0, partition) for partition in range(4)]


def opened(*chain: str, workers: int = 3) -> Play:
    """A job of one operator whose chains are these."""
    cluster = Cluster(*[f"w{n}" for n in range(1, workers + 1)])
    for partition, members in enumerate(chain):
        cluster.chain(group(0, partition), members)
    play = Play(cluster)
    play.begin(TaskGroup(0, (0,), len(chain)))
    play.see()
    return play


def drain(
    play: Play, worker: str, strategy: Strategy, handover_id: str = "h1", deadline_s: float = 60.0
) -> DrivenHandover:
    play(ev.HandoverRequested(handover_id, Request("", (), "", deadline_s, Drain(worker), strategy)))
    return play.handover(handover_id)


class Spark:
    """Runs batches where the map says, and the replication manager does what it is asked."""

    def __init__(self, play: Play) -> None:
        self.play = play
        self.number = 0

    def batch(self, **elsewhere: str) -> None:
        self.number += 1
        desired = self.play.core.jobs[JOB].map.desired
        writers = {group(n.task_group, n.partition): w for n, w in desired.items()}
        writers |= {group(0, int(name[1:])): worker for name, worker in elsewhere.items()}
        self.play.batch(self.number, writers)
        self.obey()

    def obey(self) -> None:
        for change in self.play.of(ev.ChangeGroup):
            seen = self.play.cluster.groups[change.group]
            names = [m.worker.worker_id + ("" if m.whole else "?") for m in seen.group.members]
            if change.add_member:
                names.append(change.add_member + "?")
            else:
                others = sorted((n for n in names if n != change.make_owner), key=lambda n: n.endswith("?"))
                names = [change.make_owner, *others][:2]
            stored = {w: s for w, s in seen.stored_bytes.items() if w in [n.rstrip("?") for n in names]}
            self.play.cluster.chain(change.group, " ".join(names), stored)
            self.play(ev.GroupChanged(change.handover_id, change.group, None))

    def catch_up(self) -> None:
        for found, seen in list(self.play.cluster.groups.items()):
            names = [m.worker.worker_id for m in seen.group.members]
            self.play.cluster.chain(found, " ".join(names))

    def see(self) -> None:
        self.play.see()
        self.obey()


def phases(handover: DrivenHandover) -> list[str]:
    return [step.phase.value for step in handover.steps]


def test_each_step_has_its_own_epoch_and_waits_for_the_one_before() -> None:
    play = opened("w1 w2", "w1 w2", "w1 w3")
    spark = Spark(play)
    handover = drain(play, "w1", FLUID)
    assert phases(handover) == ["marked", "preparing", "planned"]
    assert (play.desired("0/0"), play.desired("0/1")) == ("w2", "w1")
    spark.see()
    assert phases(handover) == ["marked", "preparing", "planned"]
    spark.batch(p0="w1")  # was running when the marker came
    assert phases(handover)[0] == "marked"
    spark.batch()
    assert phases(handover) == ["confirmed", "marked", "preparing"]
    spark.batch()
    spark.batch()
    assert phases(handover) == ["confirmed"] * 3
    epochs = [step.configuration_epochs[JOB] for step in handover.steps]
    assert epochs == sorted(set(epochs))
    assert [step.outcome and step.outcome.batch_id for step in handover.steps] == [2, 3, 4]
    assert (play.handover().phase, handover.confirmed_batch_id, handover.reason) == (Phase.CONFIRMED, 4, "")
    spark.see()
    spark.see()
    assert not handover.settling
    assert {seen.owner for seen in play.cluster.groups.values()} == {"w2", "w3"}


def test_the_next_step_is_copied_while_the_former_settles_but_not_marked() -> None:
    play = opened("w1 w2", "w1 w2")
    play.cluster.worker("w2", draining=True)
    play.see()
    spark = Spark(play)
    handover = drain(play, "w1", FLUID)
    spark.obey()
    spark.catch_up()
    spark.see()
    assert phases(handover) == ["marked", "preparing"]
    spark.catch_up()
    spark.see()
    assert (phases(handover), handover.steps[1].waiting_for) == (["marked", "preparing"], set())
    assert play.cluster.groups[GROUPS[1]].is_whole("w3")
    spark.batch()
    assert phases(handover) == ["confirmed", "marked"]
    assert handover.bytes_moved == 200


def test_gaps_in_seconds_and_batches() -> None:
    for strategy, passes in [
        (Strategy(Kind.FLUID, gap_s=5.0), lambda play, spark: setattr(play, "now", play.now + 5.0)),
        (Strategy(Kind.FLUID, gap_batches=2), lambda play, spark: (spark.batch(), spark.batch())),
    ]:
        play = opened("w1 w2", "w1 w3")
        spark = Spark(play)
        handover = drain(play, "w1", strategy)
        spark.batch()
        spark.see()
        assert phases(handover) == ["confirmed", "preparing"]
        passes(play, spark)  # type: ignore[no-untyped-call]
        spark.see()
        assert phases(handover) == ["confirmed", "marked"]


def test_a_gap_in_batches_ends_at_the_deadline_when_the_query_stands_still() -> None:
    play = opened("w1 w2", "w1 w3")
    spark = Spark(play)
    handover = drain(play, "w1", Strategy(Kind.FLUID, gap_batches=2), deadline_s=30)
    spark.batch()
    play.now = 30.0
    play.see()
    assert phases(handover) == ["confirmed", "rolled_back"]
    assert "the gap before its marker is not over" in handover.reason
    assert "confirmed and standing: 1" in handover.reason


def test_a_start_ahead() -> None:
    play = opened("w1 w2")
    start_ms = round((play.now + WALL_OFFSET_S + 100) * 1000)
    handover = drain(play, "w1", Strategy(start_at_ms=start_ms), deadline_s=30)
    assert phases(handover) == ["planned"]
    assert handover.plan.prediction.total_s is None
    play.now = 99.0
    play.see()
    assert (phases(handover), handover.steps[0].deadline) == (["planned"], 130.0)
    play.now = 100.0
    play.see()
    assert phases(handover) == ["marked"]


def test_no_more_transfers_than_asked_for() -> None:
    play = opened(*["w1 w2"] * 4)
    play.cluster.worker("w2", draining=True)
    play.see()
    spark = Spark(play)
    handover = drain(play, "w1", Strategy(Kind.BATCHED, 3, max_transfers=2))
    assert [change.group for change in play.of(ev.ChangeGroup)] == GROUPS[:2]
    spark.obey()
    spark.see()
    assert sum(seen.has("w3") for seen in play.cluster.groups.values()) == 2
    spark.catch_up()
    spark.see()
    assert sum(seen.has("w3") for seen in play.cluster.groups.values()) == 3
    spark.catch_up()
    spark.see()
    assert phases(handover) == ["marked", "preparing"]
    assert sum(seen.has("w3") for seen in play.cluster.groups.values()) == 4


def test_cancel_between_markers_keeps_what_is_confirmed_and_lets_the_marked_step_end() -> None:
    play = opened("w1 w2", "w1 w2", "w1 w2")
    spark = Spark(play)
    handover = drain(play, "w1", FLUID)
    spark.batch()
    play(ev.CancelRequested("h1"))
    assert phases(handover) == ["confirmed", "marked", "cancelled"]
    assert not handover.ended
    spark.batch()
    assert phases(handover) == ["confirmed", "confirmed", "cancelled"]
    assert (play.handover().phase, "confirmed and standing: 2" in handover.reason) == (Phase.CANCELLED, True)
    spark.see()
    spark.see()
    assert [play.desired(f"0/{p}") for p in range(3)] == ["w2", "w2", "w1"]
    with pytest.raises(PreconditionError, match="is cancelled"):
        play(ev.CancelRequested("h1"))


def test_a_step_that_fails_cancels_the_rest() -> None:
    play = opened("w1 w2", "w1 w3", "w1 w2")
    spark = Spark(play)
    handover = drain(play, "w1", FLUID)
    spark.batch()
    play.cluster.lose("w3" if play.desired("0/1") == "w3" else "w2")
    play.see()
    assert phases(handover)[0] == "confirmed"
    assert set(phases(handover)[1:]) <= {"redirected", "rolled_back", "cancelled"}
    assert handover.ended
    assert all(play.desired(f"0/{p}") for p in range(3))


def test_of_several_targets_only_the_lost_ones_virtual_nodes_are_redirected() -> None:
    play = opened("w1 w2", "w1 w3", workers=3)
    spark = Spark(play)
    handover = drain(play, "w1", Strategy())
    assert {play.desired("0/0"), play.desired("0/1")} == {"w2", "w3"}
    play.cluster.lose("w3")
    play.cluster.chain(GROUPS[1], "w1 w2?")
    play.see()
    assert phases(handover) == ["marked"]
    assert (play.desired("0/0"), play.desired("0/1")) == ("w2", "w1")
    spark.batch()
    assert (phases(handover), handover.reason.count("redirected 0/1 to w1")) == (["redirected"], 1)
    spark.see()
    assert play.cluster.groups[GROUPS[0]].owner == "w2"
    assert not handover.settling


def test_a_restart_keeps_confirmed_steps_goes_on_with_the_marked_one_and_rolls_the_rest_back() -> None:
    play = opened("w1 w2", "w1 w2", "w1 w2")
    spark = Spark(play)
    drain(play, "w1", FLUID)
    spark.batch()
    spark.see()
    after = play.restart()
    after.begin(TaskGroup(0, (0,), 3), session=9)
    handover = after.handover()
    assert phases(handover) == ["confirmed", "marked", "rolled_back"]
    after.see()
    again = Spark(after)
    again.number = 10
    again.batch()
    assert phases(handover) == ["confirmed", "confirmed", "rolled_back"]
    assert "step 3 of 3: the manager restarted before the marker" in handover.reason
    again.see()
    assert [after.desired(f"0/{p}") for p in range(3)] == ["w2", "w2", "w1"]
    assert phases(after.restart().handover()) == phases(handover)


def test_predictions_come_from_what_was_measured_and_are_compared_with_what_happened() -> None:
    play = opened("w1 w2", "w1 w2", "w1 w2", "w2 w1")
    spark = Spark(play)
    request = Request("", intent=Drain("w1"), strategy=FLUID)
    assert play.plan(request).prediction.total_s is None
    assert play.plan(request).prediction.basis == "nothing measured yet"
    for _ in range(5):
        play.now += 2.0
        spark.batch()
    made = play.plan(request)
    assert (made.prediction.total_s, made.prediction.pause_s) == (9.0, None)  # three times one and a half batches
    handover = drain(play, "w1", Strategy())
    play.now += 3.5
    spark.batch()
    assert (play.handover().phase, handover.pause_s, handover.total_s) == (Phase.CONFIRMED, 1.5, 3.5)
    assert handover.plan.prediction.total_s == 3.0
    assert handover.error == pytest.approx(0.5 / 3.5)
    late = dataclasses.replace(handover.plan.strategy, start_at_ms=handover.started_ms + 1000)
    handover.plan = dataclasses.replace(handover.plan, strategy=late)
    assert handover.error == pytest.approx(0.5 / 2.5), "an hour of waiting makes no prediction better"
    spark.see()
    spark.see()
    later = play.plan(Request("", intent=Drain("w2"), strategy=Strategy()))
    assert (later.prediction.total_s, later.prediction.pause_s) == (3.5, 1.5)
    assert "former predictions of the time were 14% off" in later.prediction.basis
    after = play.restart()
    after.begin(TaskGroup(0, (0,), 4))
    after.see()
    kept = after.plan(Request("", intent=Drain("w2"), strategy=Strategy())).prediction
    assert (kept.total_s, kept.pause_s) == (3.5, 1.5)


def test_copies_are_predicted_from_the_rate_of_former_ones() -> None:
    play = opened("w1 w2", "w1 w2")
    spark = Spark(play)
    play.cluster.worker("w2", draining=True)
    for _ in range(3):
        play.now += 1.0
        spark.batch()
    play.see()
    assert play.plan(Request(JOB, ("0/1",), "w3")).prediction.total_s is None
    play.start("w3", "0/0")
    spark.obey()
    play.now += 4.0
    spark.catch_up()
    spark.see()
    play.now += 1.0
    spark.batch()
    made = play.plan(Request(JOB, ("0/1",), "w3"))
    assert made.steps[0].prediction.prepare_s == 4.0
    assert made.prediction.total_s == 5.0


def test_a_miss_is_counted_and_the_map_sent_again_but_kept() -> None:
    play = opened("w1 w2", "w1 w2")
    spark = Spark(play)
    spark.batch()
    assert not play.of(ev.PushLocations)
    before = play.core.jobs[JOB].map.configuration_epoch
    spark.batch(p0="w2")
    (push,) = play.of(ev.PushLocations)
    assert (push.configuration_epoch, push.locations[0].workers[0]) == (before, "w1")
    job = play.core.jobs[JOB]
    assert (job.logged.misses, set(job.logged.missed)) == ({node("0/0"): 1}, {node("0/0")})
    spark.batch()
    assert (job.logged.missed, play.of(ev.PushLocations)) == (frozenset(), [])


MOVES: list[Callable[[Spark], object]] = [
    lambda spark: spark.batch(),
    lambda spark: spark.see(),
    lambda spark: spark.catch_up(),
    lambda spark: setattr(spark.play, "now", spark.play.now + 7.0),
    lambda spark: spark.play(ev.CancelRequested("h1")),
    lambda spark: spark.play.cluster.lose("w2"),
    lambda spark: spark.play.cluster.worker("w2"),
    lambda spark: spark.play.cluster.lose("w4"),
    lambda spark: spark.batch(p0="w1"),
    lambda spark: setattr(spark, "play", restarted(spark.play)),
]


def restarted(play: Play) -> Play:
    after = play.restart()
    after.begin(TaskGroup(0, (0,), 4), session=7)
    return after


@settings(deadline=None)
@given(
    st.lists(st.sampled_from(range(len(MOVES))), max_size=25),
    st.builds(Strategy, st.sampled_from(Kind), st.integers(1, 2), max_transfers=st.integers(0, 2)),
)
def test_whatever_happens_every_virtual_node_keeps_a_worker_and_the_handover_ends(
    moves: list[int], strategy: Strategy
) -> None:
    play = opened("w1 w2", "w1 w3", "w1 w4?", "w1 w2", workers=4)
    spark = Spark(play)
    drain(play, "w1", strategy, deadline_s=20.0)
    spark.obey()
    confirmed: set[int] = set()
    for move in moves:
        with contextlib.suppress(PreconditionError):  # too late to cancel
            MOVES[move](spark)
        handover = spark.play.handover()
        now = {n for n, step in enumerate(handover.steps) if step.phase is Phase.CONFIRMED}
        assert confirmed <= now, "a confirmed step was taken back"
        confirmed = now
        desired = spark.play.core.jobs[JOB].map.desired
        assert {n.partition for n in desired} == set(range(4))
        assert sum(step.phase is Phase.MARKED for step in handover.steps) <= 1
    for _ in range(30):
        spark.play.now += 10.0
        spark.see()
    assert spark.play.handover().ended
    assert not spark.play.handover().unwinding
    assert not spark.play.core.jobs[JOB].map.pinned or spark.play.handover().settling


def test_groups_of_a_step_are_those_of_its_moves() -> None:
    play = opened("w1 w2", "w1 w2")
    handover = drain(play, "w1", FLUID)
    assert handover.step_of(GROUPS[1]) is handover.steps[1]
    assert handover.step_of(GroupId("other", 0, 0)) is None


def test_a_batch_that_confirms_before_a_restarted_manager_has_seen_the_cluster_still_gives_ownership() -> None:
    play = opened("w1 w2")
    drain(play, "w1", FLUID)
    after = play.restart()
    after.begin(TaskGroup(0, (0,), 1), session=9)
    after.batch(7, {GROUPS[0]: "w2"})
    assert after.handover().phase is Phase.CONFIRMED
    after.see()
    assert after.of(ev.ChangeGroup) == [ev.ChangeGroup("h1", GROUPS[0], make_owner="w2")]
    after.cluster.chain(GROUPS[0], "w2 w1")
    after.see()
    assert not after.core.jobs[JOB].map.pinned


def test_each_change_of_a_step_journals_that_step_only() -> None:
    play = opened(*["w1 w2"] * 4)
    spark = Spark(play)
    drain(play, "w1", FLUID)
    keys = [effect.key for effect in play.of(ev.Persist) if "/job/" not in effect.key]
    assert keys[0] == "handover_manager/handover/h1"
    assert set(keys[1:]) == {f"handover_manager/step/h1/{n}" for n in (1, 2)}
    spark.batch()
    play.see()
    assert {k for k in play.journal if "/step/" in k} == {f"handover_manager/step/h1/{n}" for n in (1, 2, 3)}
