"""All orders in which supervisors can act, and end, on one checkpoint: a model of files, locks and queries."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from query_evolution.replace.core import Act, Answer, End, Me, Phase, Restart, Seen, about, after, decide

BEGIN = Me()
WRITES = (Act.PARK, Act.WITHDRAW, Act.CONFIRM, Act.RETURN)
Decide = Callable[[Me, Seen], Act]


@dataclass(frozen=True)
class Actor:
    """A supervisor in its process. `seen`: what it acts on next, which may be old by then."""

    me: Me = BEGIN
    alive: bool = True
    hangs: bool = False  # it gives no sign of life
    runs: bool = False
    at_work: bool = False  # its query may be in a batch: until a stop has returned, whoever else has stopped it
    gate: bool = False  # closed
    asks: int = 0  # the request whose lock it has
    known: int = 0  # the newest restart when it began
    seen: Seen | None = None


@dataclass(frozen=True)
class World:
    actors: tuple[Actor, ...]
    right: int = -1  # who has the right to run
    facts: tuple[Restart, ...] = ()  # by number, from 1

    @property
    def running(self) -> list[int]:
        return [place for place, one in enumerate(self.actors) if one.runs]

    @property
    def writing(self) -> list[int]:
        """Who may write to the sink."""
        return [place for place, one in enumerate(self.actors) if one.at_work]


def look(world: World, place: int, *, proved: bool, late: bool) -> Seen:
    actor = world.actors[place]
    lives = {one.asks for one in world.actors if one.alive and one.asks}
    number = actor.me.number
    asked = [r.number for r in world.facts if r.answer is None and r.number in lives and r.number != actor.asks]
    open_ones = [r.number for r in world.facts if r.answer is Answer.PARKED and r.end is None and r.number != number]
    return Seen(
        restart=world.facts[number - 1] if number else None,
        asked=asked[0] if asked else None,
        undecided=open_ones[-1] if open_ones else None,
        undecided_lives=bool(open_ones) and open_ones[-1] in lives,
        asker_lives=number in lives,
        runs=actor.runs,
        stopped=not actor.at_work,
        at_boundary=actor.gate,
        proved=proved,
        late=late,
        replaced=any(r.number > actor.known and r.end is End.CONFIRMED for r in world.facts),
    )


def act(world: World, place: int, choose: Decide = decide, *, fails: bool = False) -> World:
    """The actor does what it has decided on what it saw.

    `fails`: it gets an error after the write of a fact, or from a stop that is too slow.
    """
    actor = world.actors[place]
    assert actor.seen is not None
    doing = choose(actor.me, actor.seen)
    number = about(actor.me, doing, actor.seen)
    done, right, facts = True, world.right, list(world.facts)
    runs, at_work, gate, asks = actor.runs, actor.at_work, actor.gate, actor.asks
    if doing in (Act.TAKE, Act.TRY):
        silent = right >= 0 and world.actors[right].hangs and actor.me.spare and actor.me.phase is Phase.BLOCKED
        done = right in (-1, place) or silent
        right = place if done else right
    elif doing in (Act.LET_GO, Act.YIELD):
        right = -1 if right == place else right
    elif doing is Act.ASK:
        asks = number = len(facts) + 1
        facts.append(Restart(number))
    elif doing in (Act.PARK, Act.WITHDRAW):
        answer = Answer.PARKED if doing is Act.PARK else Answer.WITHDRAWN
        facts[number - 1] = replace(facts[number - 1], answer=facts[number - 1].answer or answer)
        done = facts[number - 1].answer is answer
    elif doing in (Act.CONFIRM, Act.RETURN):
        end = End.CONFIRMED if doing is Act.CONFIRM else End.RETURNED
        facts[number - 1] = replace(facts[number - 1], end=facts[number - 1].end or end)
        done = facts[number - 1].end is end
    elif doing in (Act.START, Act.STOP):
        runs = doing is Act.START
        at_work = runs or (fails and at_work)
        gate = False
    elif doing in (Act.CLOSE, Act.OPEN):
        gate = doing is Act.CLOSE
    me = actor.me if fails and doing in (*WRITES, Act.STOP) else after(actor.me, doing, done, number)
    if me.phase in (Phase.RUNNING, Phase.DONE):
        asks = 0
    moved = replace(actor, me=me, runs=runs, at_work=at_work, gate=gate, asks=asks, seen=None)
    return replace(world, right=right, facts=tuple(facts), actors=_with(world.actors, place, moved))


def steps(
    world: World, choose: Decide = decide, *, requests: int, anew: bool = True, hangs: bool = False
) -> Iterator[tuple[str, World]]:
    """Everything that can happen next: an actor looks or acts, its query fails, its process ends, or is started.

    Others may have stopped a query that fails, so its last batch may go on. A query without the right to run fails at
    its next batch. `hangs`: processes with a query may hang for a while.
    """
    for place, actor in enumerate(world.actors):
        if not actor.alive or actor.me.phase is Phase.DONE:
            if anew:
                yield f"{place} is started anew", replace(world, actors=_with(world.actors, place, Actor()))
            continue
        if actor.hangs:
            yield f"{place} wakes", replace(world, actors=_with(world.actors, place, replace(actor, hangs=False)))
            continue
        if hangs and actor.runs:
            yield f"{place} hangs", replace(world, actors=_with(world.actors, place, replace(actor, hangs=True)))
        if actor.seen is None:
            for proved in (False, True):
                for late in (False, True):
                    seen = look(world, place, proved=proved, late=late)
                    if choose(actor.me, seen) is Act.ASK and len(world.facts) >= requests:
                        continue
                    moved = replace(actor, seen=seen)
                    yield f"{place} looks", replace(world, actors=_with(world.actors, place, moved))
        else:
            yield f"{place} acts: {choose(actor.me, actor.seen)}", act(world, place, choose)
            yield f"{place} acts, with an error", act(world, place, choose, fails=True)
        if actor.runs:
            failed = replace(actor, runs=False)
            yield f"{place} fails", replace(world, actors=_with(world.actors, place, failed))
        killed = replace(world, actors=_with(world.actors, place, Actor(alive=False)))
        yield f"{place} is killed", replace(killed, right=-1 if world.right == place else world.right)


def explore(
    start: World, choose: Decide = decide, *, requests: int = 2, anew: bool = True, hangs: bool = False
) -> dict[World, tuple[World | None, str]]:
    """Every world that can be reached, with the one before it and the step between."""
    found: dict[World, tuple[World | None, str]] = {start: (None, "begin")}
    waiting = deque([start])
    while waiting:
        world = waiting.popleft()
        for step, following in steps(world, choose, requests=requests, anew=anew, hangs=hangs):
            if following not in found:
                found[following] = (world, step)
                waiting.append(following)
    return found


def story(found: dict[World, tuple[World | None, str]], world: World) -> str:
    """How a world is reached."""
    told = []
    at: World | None = world
    while at is not None:
        at, step = found[at]
        told.append(step)
    return "; ".join(reversed(told))


def settle(world: World) -> World:
    """Those that live go on, one after the other, without failures, until nothing changes."""
    for _ in range(100):
        before = world
        for place, actor in enumerate(world.actors):
            if actor.alive and not actor.hangs and actor.me.phase is not Phase.DONE:
                if actor.runs and world.right not in (-1, place):  # its gate refuses the next batch
                    actor = replace(actor, runs=False)
                    world = replace(world, actors=_with(world.actors, place, actor))
                if actor.seen is None:
                    seen = look(world, place, proved=True, late=False)
                    world = replace(world, actors=_with(world.actors, place, replace(actor, seen=seen)))
                world = act(world, place)
        if world == before:
            return world
    raise AssertionError("they never come to rest")


def _with(actors: tuple[Actor, ...], place: int, actor: Actor) -> tuple[Actor, ...]:
    return (*actors[:place], actor, *actors[place + 1 :])
