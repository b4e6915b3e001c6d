"""Every order of steps and crashes: no two run a query at once, and who is left goes on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from query_evolution.replace.core import LOOK_S, Act, Answer, End, Me, Phase, Restart, Seen, Unchanged, decide
from tests.nightly import few
from tests.query_evolution.replace.world import Actor, World, explore, settle, story

FORMER = Actor(Me(Phase.RUNNING), runs=True, at_work=True)
PAIR = World((FORMER, Actor()), right=0)
TRIO = World((FORMER, Actor(), Actor()), right=0)
SPARE = Actor(Me(spare=True))
WITH_SPARE = World((FORMER, Actor(), SPARE), right=0)

Found = dict[World, tuple[World | None, str]]


@pytest.fixture(scope="module")
def pair() -> Found:
    return explore(PAIR, requests=1)


def test_no_two_run_the_query_at_once(pair: Found) -> None:
    assert len(pair) > 1000
    for world in pair:
        assert len(world.writing) <= 1, story(pair, world)
        assert all(world.right == place for place in world.writing), story(pair, world)


def test_a_restart_ends_once_and_its_state_machine_reaches_every_phase(
    pair: Found,
) -> None:
    phases = {actor.me.phase for world in pair for actor in world.actors}
    assert phases == {*Phase}
    for world, (before, _) in pair.items():
        for was, now in zip(before.facts if before else (), world.facts, strict=False):
            assert was.answer in (None, now.answer), story(pair, world)
            assert was.end in (None, now.end), story(pair, world)


def test_who_lives_goes_on_or_has_ended_for_a_reason(pair: Found) -> None:
    """If the former application lives, the query runs in the end, or somebody's query has ended by itself."""
    standing = 0
    for world in pair:
        former, other = world.actors
        if not former.alive or former.me.phase is not Phase.STANDBY:
            continue
        standing += 1
        rested = settle(world)
        confirmed = any(r.end is End.CONFIRMED for r in rested.facts)
        ended = former.seen and former.seen.late and other.me.phase is Phase.RUNNING and not other.runs
        assert rested.running in ([0], [1]) or confirmed or ended, story(pair, world)
    assert standing > 100


def test_new_code_with_a_grant_is_tried_if_the_former_driver_has_ended(pair: Found) -> None:
    asking = 0
    for world in pair:
        former, new = world.actors
        granted = new.alive and new.me.phase is Phase.ASKING and world.facts[new.me.number - 1].answer is Answer.PARKED
        if granted and not former.alive and world.facts[new.me.number - 1].end is None:
            asking += 1
            assert settle(world).running == [1], story(pair, world)
    assert asking > 5


def test_a_confirmed_restart_is_never_taken_back(pair: Found) -> None:
    confirmed = 0
    for world in pair:
        former = world.actors[0]
        ends = {r.number: r.end for r in world.facts}
        if former.me.phase in (Phase.STANDBY, Phase.BACK) and ends[former.me.number] is End.CONFIRMED:
            confirmed += 1
            assert not former.runs
            assert settle(world).actors[0].me.phase is Phase.DONE, story(pair, world)
    assert confirmed > 100


@pytest.mark.parametrize("standbys", few([1, 2]))
def test_a_standby_takes_over_from_a_driver_that_hangs_and_is_not_disturbed_when_it_wakes(standbys: int) -> None:
    """A process without the right begins no batch, and at most one process has the right."""
    found = explore(World((FORMER, *[SPARE] * standbys), right=0), anew=False, hangs=True)
    taken = woken = 0
    for world in found:
        able = [place for place in world.running if world.right == place]
        assert len(able) <= 1, story(found, world)
        former, *spares = world.actors
        waiting = any(one.alive and one.me.phase in (Phase.BEGIN, Phase.BLOCKED) for one in spares)
        if former.hangs and world.right == 0 and waiting:
            taken += 1
            rested = settle(world)
            assert rested.right > 0, story(found, world)
            assert rested.actors[rested.right].runs, story(found, world)
        elif former.alive and former.runs and not former.hangs and world.right > 0:
            woken += 1
            assert 0 not in settle(world).running, story(found, world)
    assert taken > 10
    assert woken > 10


def test_the_owner_is_silent_only_as_long_as_the_standby_looks() -> None:
    silence = Unchanged()
    assert [silence.lasts_s("first", now) for now in (10.0, 11.0, 13.0)] == [0.0, 1.0, 3.0]
    assert silence.lasts_s("second", 14.0) == 0.0
    assert silence.lasts_s("second", 15.0) == 1.0
    assert silence.lasts_s("second", 15.5 + LOOK_S) == 0.0, "it had a pause, and perhaps the owner too"
    assert silence.lasts_s("second", 16.5 + LOOK_S) == 1.0
    assert [silence.lasts_s(None, now) for now in (20.0, 22.0)] == [0.0, 0.0]


def test_a_standby_runs_the_query_of_a_dead_driver_and_no_other() -> None:
    found = explore(World((FORMER, SPARE, SPARE), right=0), anew=False)
    taken = 0
    for world in found:
        assert len(world.writing) <= 1, story(found, world)
        assert not world.facts, "it asks nobody"
        former, *spares = world.actors
        if not former.alive and any(one.alive and one.me.phase in (Phase.BEGIN, Phase.BLOCKED) for one in spares):
            taken += 1
            assert settle(world).running, story(found, world)
    assert taken > 10


@pytest.mark.nightly
def test_a_standby_never_runs_replaced_code() -> None:
    found = explore(WITH_SPARE, requests=1, anew=False)
    for world in found:
        assert len(world.writing) <= 1, story(found, world)
        assert all(world.right == place for place in world.writing), story(found, world)
        *others, spare = world.actors
        if not spare.alive or spare.me.phase is not Phase.BLOCKED or spare.seen is not None:
            continue
        ends = [restart.end for restart in world.facts if restart.answer is Answer.PARKED]
        if End.CONFIRMED in ends:
            assert 2 not in settle(world).running, story(found, world)
        elif None not in ends and not any(one.alive for one in others):
            assert settle(world).running == [2], story(found, world)


@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("start", "anew"), [(PAIR, True), (TRIO, False)], ids=["started anew", "three applications"])
def test_no_two_run_the_query_at_once_in_longer_stories(start: World, anew: bool) -> None:
    """Two restarts. Takes a minute."""
    found = explore(start, requests=2, anew=anew)
    for world in found:
        assert len(world.writing) <= 1, story(found, world)
        assert all(world.right == place for place in world.writing), story(found, world)


def _starts_when_granted(me: Me, seen: Seen) -> Act:
    return Act.START if me.phase is Phase.ASKING and seen.restart and seen.restart.answer else decide(me, seen)


def _takes_no_right_back(me: Me, seen: Seen) -> Act:
    return Act.START if me.phase is Phase.STANDBY and not seen.asker_lives else decide(me, seen)


def _lets_go_before_it_stops(me: Me, seen: Seen) -> Act:
    return Act.LET_GO if me.phase is Phase.PARKED else decide(me, seen)


def _lets_go_when_it_is_inactive(me: Me, seen: Seen) -> Act:
    return Act.LET_GO if me.phase in (Phase.RUNNING, Phase.PARKING) and not seen.runs else decide(me, seen)


def _starts_without_the_right(me: Me, seen: Seen) -> Act:
    return Act.START if me.phase in (Phase.BEGIN, Phase.BLOCKED) else decide(me, seen)


@pytest.mark.parametrize(
    "bug",
    [
        _starts_when_granted,
        _takes_no_right_back,
        _lets_go_before_it_stops,
        _lets_go_when_it_is_inactive,
        _starts_without_the_right,
    ],
)
def test_planted_bugs_are_found(bug: Callable[[Me, Seen], Act]) -> None:
    assert any(len(world.writing) > 1 or _without_right(world) for world in explore(PAIR, bug, requests=1))


def _without_right(world: World) -> bool:
    return any(world.right != place for place in world.writing)


@pytest.mark.parametrize(
    ("me", "seen", "act"),
    [
        (Me(Phase.BEGIN), Seen(), Act.TAKE),
        (Me(Phase.BLOCKED), Seen(), Act.ASK),
        (Me(Phase.BLOCKED, spare=True), Seen(), Act.TAKE),
        (Me(Phase.BLOCKED, spare=True), Seen(replaced=True), Act.FINISH),
        (Me(Phase.BLOCKED, spare=True), Seen(undecided=3), Act.WAIT),
        (Me(Phase.BLOCKED, spare=True), Seen(undecided=3, late=True), Act.TAKE),
        (Me(Phase.OWNING, spare=True), Seen(replaced=True), Act.LET_GO),
        (Me(Phase.OWNING), Seen(), Act.START),
        (Me(Phase.OWNING), Seen(undecided=3), Act.RETURN),
        (Me(Phase.OWNING), Seen(undecided=3, undecided_lives=True), Act.YIELD),
        (Me(Phase.ASKING, 1), Seen(Restart(1)), Act.TAKE),
        (Me(Phase.ASKING, 1), Seen(Restart(1), late=True), Act.WITHDRAW),
        (Me(Phase.ASKING, 1), Seen(Restart(1, Answer.PARKED), late=True), Act.TRY),
        (Me(Phase.ASKING, 1), Seen(Restart(1, Answer.REFUSED)), Act.FINISH),
        (Me(Phase.GRANTED, 1), Seen(Restart(1)), Act.WITHDRAW),
        (Me(Phase.GRANTED, 1), Seen(Restart(1), undecided=2), Act.YIELD),
        (Me(Phase.GRANTED, 1), Seen(Restart(1, Answer.PARKED)), Act.START),
        (Me(Phase.GRANTED, 1), Seen(Restart(1, Answer.PARKED, End.RETURNED)), Act.LET_GO),
        (Me(Phase.TRIAL, 1), Seen(runs=True), Act.WAIT),
        (Me(Phase.TRIAL, 1), Seen(runs=True, proved=True, late=True), Act.CONFIRM),
        (Me(Phase.TRIAL, 1), Seen(runs=True, late=True), Act.STOP),
        (Me(Phase.TRIAL, 1), Seen(proved=True), Act.STOP),
        (Me(Phase.RUNNING), Seen(runs=True), Act.WAIT),
        (Me(Phase.RUNNING), Seen(runs=True, asked=2), Act.CLOSE),
        (Me(Phase.RUNNING), Seen(asked=2), Act.STOP),
        (Me(Phase.RUNNING), Seen(asked=2, stopped=True), Act.LET_GO),
        (Me(Phase.PARKING, 2), Seen(Restart(2), runs=True, asker_lives=True), Act.WAIT),
        (Me(Phase.PARKING, 2), Seen(Restart(2), runs=True, asker_lives=True, at_boundary=True), Act.PARK),
        (Me(Phase.PARKING, 2), Seen(Restart(2), runs=True, at_boundary=True), Act.WITHDRAW),
        (Me(Phase.PARKING, 2), Seen(Restart(2, Answer.WITHDRAWN), runs=True), Act.OPEN),
        (Me(Phase.PARKING, 2), Seen(Restart(2), asker_lives=True, at_boundary=True), Act.STOP),
        (Me(Phase.PARKING, 2), Seen(Restart(2), asker_lives=True, stopped=True), Act.LET_GO),
        (Me(Phase.PARKED, 2), Seen(), Act.STOP),
        (Me(Phase.PARKED, 2), Seen(stopped=True), Act.LET_GO),
        (Me(Phase.STANDBY, 2), Seen(Restart(2, Answer.PARKED), asker_lives=True), Act.WAIT),
        (Me(Phase.STANDBY, 2), Seen(Restart(2, Answer.PARKED)), Act.TAKE),
        (Me(Phase.STANDBY, 2), Seen(Restart(2, Answer.PARKED, End.RETURNED)), Act.TAKE),
        (Me(Phase.STANDBY, 2), Seen(Restart(2, Answer.PARKED, End.RETURNED), late=True, asker_lives=True), Act.TAKE),
        (Me(Phase.STANDBY, 2), Seen(Restart(2, Answer.PARKED, End.RETURNED), late=True), Act.TRY),
        (Me(Phase.STANDBY, 2), Seen(Restart(2, Answer.PARKED, End.CONFIRMED)), Act.FINISH),
        (Me(Phase.BACK, 2), Seen(Restart(2, Answer.PARKED)), Act.RETURN),
        (Me(Phase.BACK, 2), Seen(Restart(2, Answer.PARKED, End.RETURNED)), Act.START),
        (Me(Phase.BACK, 2), Seen(Restart(2, Answer.PARKED, End.CONFIRMED)), Act.LET_GO),
    ],
)
def test_single_decisions(me: Me, seen: Seen, act: Act) -> None:
    assert decide(me, seen) is act
