"""Copies move to workers that suit them better once the loads of a query have changed, and not otherwise."""

from __future__ import annotations

import contextlib
import math
import random

import pytest

from replication_manager.protocol import events as ev
from replication_manager.protocol.placement import better_places
from replication_manager.protocol.placement.better_places import Copied
from replication_manager.protocol.placement.load_histories import BATCHES, KEPT
from replication_manager.protocol.workers.worker_record import Report
from rhino_core.errors import PreconditionError
from rhino_core.ids import Epoch, GroupId, JobSettings, Member, ReplicaGroup
from rhino_core.planning.correlation import Candidate
from tests.replication_manager.protocol.harness import Manager, worker


def group(partition: int) -> GroupId:
    return GroupId("job", 0, partition)


def rising(window: int) -> float:
    return 1.0 + window


def falling(window: int) -> float:
    return float(KEPT - window)


def figures(found: Candidate | None) -> tuple[str, float]:
    assert found is not None
    return found.worker, round(found.correlation, 9)


CHAINS = ("ab", "ab", "ba", "ba", "cd", "cd", "dc", "dc")


class Cluster(Manager):
    """Workers a to d own two groups each. The loads of a and b rise, those of c and d fall.

    The copies of a are on b, and those of c on d: as bad as can be.
    """

    def __init__(self, settings: JobSettings | None = None) -> None:
        super().__init__(by_load=True)
        for name in "abcd":
            self.register(name)
        for partition, chain in enumerate(CHAINS):
            self.resolve(chain[0], group(partition), settings or JobSettings(1))
            self.arrange(partition, chain)
        self.batch = 0

    def arrange(self, partition: int, chain: str) -> None:
        """Gives a group this chain."""
        for name in chain:
            if self.group(group(partition)).member(name) is None:
                self.do(ev.Change(group(partition), None, name, ""))
        self.all_whole()
        for name in reversed(chain):
            if self.group(group(partition)).owner.worker_id != name:
                self.do(ev.Change(group(partition), None, "", name))
        assert self.members(group(partition)) == chain

    def all_whole(self, *partitions: int) -> None:
        """Every member reports that it is whole."""
        for name in (live.worker_id for live in self.machine.membership.present()):
            mine = [g for g in self.machine.groups.values() if g.member(name) is not None]
            mine = [g for g in mine if not partitions or g.group.partition in partitions]
            self.beat(name, *(Report(g.group, g.epoch, True, 10) for g in mine))

    def round(self, loads: dict[int, list[float]] | None = None) -> list[ev.Effect]:
        """The batches of a round. Returns the effects of the last one."""
        effects: list[ev.Effect] = []
        for window in range(KEPT):
            usual = {p: rising(window) if chain[0] in "ab" else falling(window) for p, chain in enumerate(CHAINS)}
            found = {group(p): loads[p][window] if loads else value for p, value in usual.items()}
            for _ in range(BATCHES):
                assert not effects, "copies begin to move at the end of a round only"
                effects = self.do(ev.BatchPublished("job", self.batch, (), (), found))
                self.batch += 1
        return effects

    def swapped(self) -> list[str]:
        return [self.members(group(p)) for p in range(len(CHAINS))]


def test_a_copy_moves_once_the_new_one_is_whole() -> None:
    cluster = Cluster()
    cluster.round()
    moving = [p for p in range(len(CHAINS)) if len(cluster.group(group(p)).members) == 3]
    assert moving, "the loads of owner and copy rise and fall together"
    (first, *_) = moving
    chain = cluster.members(group(first))
    assert chain.endswith("?")
    owner, former, target = chain[0], chain[1], chain[2]
    assert (owner in "ab") != (target in "ab"), "to a worker whose load goes the other way"
    cluster.all_whole()
    assert cluster.members(group(first)) == owner + target
    assert former != target


def test_a_copy_that_moves_has_its_decision_with_the_numbers() -> None:
    cluster = Cluster()
    cluster.round()
    (moving,) = [p for p in range(len(CHAINS)) if len(cluster.group(group(p)).members) == 3]
    chain = cluster.members(group(moving))
    (found,) = cluster.machine.copy_decisions[group(moving)].values()
    (other,) = set("abcd") - set(chain)
    assert figures(found.chosen) == (chain[2], -1.0)
    assert figures(found.origin) == (chain[1], 1.0)
    assert figures(found.other) == (other, -1.0)
    assert found.error == pytest.approx(1 / math.sqrt(KEPT))
    assert found.needed == pytest.approx(3 / math.sqrt(KEPT))
    assert found.at == cluster.now
    cluster.do(ev.JobForgotten("job"))
    assert not cluster.machine.copy_decisions


def test_nearly_all_copies_are_better_after_some_rounds_and_then_nothing_moves() -> None:
    cluster = Cluster()
    for _ in range(8):
        cluster.round()
        cluster.all_whole()
    assert sum((chain[0] in "ab") != (chain[1] in "ab") for chain in cluster.swapped()) >= 6, cluster.swapped()
    before = cluster.swapped()
    assert cluster.round() == []
    assert cluster.swapped() == before


def test_bytes_of_a_round_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight copies of equal bytes: 5 % of them is less than one, and one may always move."""
    cluster = Cluster()
    cluster.round()
    assert sum(len(chain.replace("?", "")) == 3 for chain in cluster.swapped()) == 1
    monkeypatch.setattr(better_places, "BYTES_PART", 1.0)
    cluster = Cluster()
    cluster.round()
    assert sum(len(chain.replace("?", "")) == 3 for chain in cluster.swapped()) > 1


def test_no_further_copy_moves_until_the_first_ones_have() -> None:
    cluster = Cluster()
    cluster.round()
    assert cluster.round() == []


def test_chance_seldom_moves_anything() -> None:
    moved = 0
    for seed in range(40):
        drawn, cluster = random.Random(seed), Cluster()
        loads = {p: [drawn.uniform(1, 2) for _ in range(KEPT)] for p in range(len(CHAINS))}
        moved += bool(cluster.round(loads))
    assert moved <= 4


def test_even_loads_move_nothing() -> None:
    assert Cluster().round({p: [2.0] * KEPT for p in range(len(CHAINS))}) == []


def test_groups_that_something_else_changes_are_left_alone() -> None:
    cluster = Cluster()
    for partition in range(len(CHAINS)):
        free = next(name for name in "abcd" if cluster.group(group(partition)).member(name) is None)
        cluster.do(ev.Change(group(partition), None, free, ""))  # a handover has begun
    before = cluster.swapped()
    cluster.round()
    assert cluster.swapped() == before


class Begun:
    """A cluster in which one copy has begun to move."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.cluster.round()
        (self.partition,) = (p for p in range(len(CHAINS)) if len(self.cluster.group(group(p)).members) == 3)
        self.owner, self.origin, self.target = list(self.chain.strip("?"))

    @property
    def chain(self) -> str:
        return self.cluster.members(group(self.partition))


def test_the_loss_of_the_new_worker_leaves_the_group_as_it_was() -> None:
    begun = Begun()
    begun.cluster.lose(begun.target)
    begun.cluster.all_whole()
    assert begun.chain == begun.owner + begun.origin


def test_the_loss_of_the_old_worker_leaves_the_new_one() -> None:
    begun = Begun()
    begun.cluster.lose(begun.origin)
    assert begun.chain == f"{begun.owner}{begun.target}?"
    begun.cluster.all_whole()
    assert begun.chain == begun.owner + begun.target


def test_an_old_worker_that_became_the_owner_stays() -> None:
    begun = Begun()
    begun.cluster.lose(begun.owner)
    assert begun.chain == f"{begun.origin}{begun.target}?"
    begun.cluster.all_whole()
    assert begun.chain == begun.origin + begun.target


@pytest.mark.parametrize("drained", ["owner", "origin", "target"])
def test_a_drain_meanwhile_empties_the_worker(drained: str) -> None:
    begun = Begun()
    name = getattr(begun, drained)
    begun.cluster.do(ev.DrainSet(name, True))
    for _ in range(3):
        begun.cluster.all_whole()
    staying = [member for member in begun.chain if member != name]
    assert len(staying) == 2
    assert drained == "owner" or name not in begun.chain, "an owner waits for the handover of the drain"


def test_a_handover_meanwhile_ends_it() -> None:
    begun = Begun()
    begun.cluster.do(ev.Change(group(begun.partition), None, "", begun.origin))
    begun.cluster.all_whole()
    assert begun.chain[0] == begun.origin
    assert len(begun.chain) == 2


def test_the_target_of_a_handover_keeps_its_copy_until_the_handover_is_over() -> None:
    """It had the copy before the handover, so no member was added for it."""
    begun = Begun()
    begun.cluster.do(ev.TargetsNamed({group(begun.partition): begun.origin}))
    begun.cluster.all_whole()
    assert begun.chain == begun.owner + begun.origin + begun.target
    begun.cluster.do(ev.TargetsNamed({}))
    begun.cluster.all_whole()
    assert begun.chain == begun.owner + begun.target


def test_no_copy_of_a_group_in_a_handover_begins_to_move() -> None:
    cluster = Cluster()
    cluster.do(ev.TargetsNamed({group(p): chain[1] for p, chain in enumerate(CHAINS)}))
    before = cluster.swapped()
    cluster.round()
    assert cluster.swapped() == before


def test_a_copy_that_moves_is_given_up_when_a_round_has_brought_no_bytes() -> None:
    begun = Begun()
    name, longer = group(begun.partition), begun.chain
    for stored, chain in ((5, longer), (9, longer), (9, begun.owner + begun.origin)):
        begun.cluster.beat(begun.target, Report(name, begun.cluster.group(name).epoch, False, stored))
        begun.cluster.round()
        assert begun.chain == chain


def test_a_forgotten_job_is_forgotten_here_too() -> None:
    begun = Begun()
    begun.cluster.do(ev.JobForgotten("job"))
    begun.cluster.all_whole()
    assert not begun.cluster.groups


class Storm(Cluster):
    """A cluster to which anything happens while copies move. `begun`: how often some began to."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.drawn = random.Random(seed)
        self.begun = 0

    def strike(self) -> None:
        drawn, present = self.drawn, [live.worker_id for live in self.machine.membership.present()]
        match drawn.choice(("round", "round", "whole", "lose", "return", "owner")):
            case "round":
                self.all_whole()
                trends = [drawn.choice((rising, falling)) for _ in CHAINS]
                effects = self.round({p: [trend(w) for w in range(KEPT)] for p, trend in enumerate(trends)})
                self.begun += any(isinstance(effect, ev.PersistGroup) for effect in effects)
            case "whole":
                self.all_whole(*drawn.sample(range(len(CHAINS)), 3))
            case "lose" if len(present) > 2:
                self.lose(drawn.choice(present))
            case "return":
                self.all_return()
            case "owner":
                chosen = group(drawn.randrange(len(CHAINS)))
                with contextlib.suppress(PreconditionError):
                    self.do(ev.Change(chosen, None, "", self.group(chosen).members[-1].worker.worker_id))

    def all_return(self) -> None:
        for name in "abcd":
            if name not in {live.worker_id for live in self.machine.membership.present()}:
                self.register(name)

    def calm(self) -> None:
        self.all_return()
        for _ in range(4):
            self.now += 1.0
            self.all_whole()
            self.do(ev.Tick())


def test_whatever_happens_meanwhile_chains_have_their_length_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(better_places, "BYTES_PART", 1.0)
    begun = 0
    for seed in range(60):
        storm = Storm(seed)
        for _ in range(12):
            storm.strike()
        storm.calm()
        assert all(len(found.members) == 2 for found in storm.machine.groups.values()), (seed, storm.swapped())
        begun += storm.begun
    assert begun >= 60, "copies did move"


# ---------------------------------------------------------------- which swaps


def copied(partition: int, chain: str, values: list[float]) -> Copied:
    members = tuple(Member(worker(name), True) for name in chain)
    return Copied(ReplicaGroup(group(partition), Epoch(1, 1), members, 1, JobSettings(len(chain) - 1)), values, 100)


UP, DOWN = [rising(w) for w in range(KEPT)], [falling(w) for w in range(KEPT)]


def test_swaps_that_are_not_allowed_are_left_out() -> None:
    known = [copied(p, chain, UP if chain[0] in "ab" else DOWN) for p, chain in enumerate(CHAINS)]
    found = better_places.better_places(known, lambda owner: "abcd", lambda swap: True)
    assert found
    assert better_places.better_places(known, lambda owner: "abcd", lambda swap: swap not in found) == []


def test_nobody_gets_a_copy_who_is_no_candidate() -> None:
    known = [copied(p, chain, UP if chain[0] in "ab" else DOWN) for p, chain in enumerate(CHAINS)]
    pairs = {"a": "ab", "b": "ab", "c": "cd", "d": "cd"}
    assert better_places.better_places(known, pairs.__getitem__, lambda swap: True) == []
    pairs |= {"a": "abc", "b": "abd"}
    found = better_places.better_places(known, pairs.__getitem__, lambda swap: True)
    assert found
    assert {(swap.origin.worker, swap.target.worker) for swap in found} <= {("b", "c"), ("a", "d")}


def test_groups_without_copies_and_queries_without_groups() -> None:
    assert better_places.better_places([], lambda owner: "abc", lambda swap: True) == []
    assert better_places.better_places([copied(0, "a", UP)], lambda owner: "abc", lambda swap: True) == []
