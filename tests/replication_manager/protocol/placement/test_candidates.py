from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Iterable

from hypothesis import given, settings
from hypothesis import strategies as st

from replication_manager.protocol.groups.group_table import GROUP_BYTES_MIN, GroupTable
from replication_manager.protocol.placement import candidates as placement
from replication_manager.protocol.placement.candidates import NO_WISH, Bin, Wish
from rhino_core.ids import Epoch, GroupId, Member, ReplicaGroup, Worker


def worker(number: int, host: int | None = None, zone: str = "", rack: str = "") -> Worker:
    return Worker(f"w{number}", "i", f"h{number if host is None else host}", "a:1", zone, rack)


def choose(found: Iterable[Bin], count: int, taken: Collection[Worker], wish: Wish = NO_WISH) -> list[Worker]:
    return placement.choose(found, count, taken, wish)


bins = st.lists(
    st.builds(lambda n, h, b: Bin(worker(n, h), b), st.integers(0, 20), st.integers(0, 5), st.integers(0, 10**12)),
    unique_by=lambda b: b.worker.worker_id,
)


@given(bins, st.integers(0, 8))
def test_chosen_workers_are_distinct_known_and_not_taken(found: list[Bin], count: int) -> None:
    taken = [b.worker for b in found[:1]]
    chosen = choose(found, count, taken)
    ids = [w.worker_id for w in chosen]
    assert len(set(ids)) == len(ids) == min(count, max(len(found) - len(taken), 0))
    assert not {w.worker_id for w in taken} & set(ids)
    assert choose(list(reversed(found)), count, taken) == chosen


def test_other_hosts_come_before_fewer_bytes() -> None:
    owner = worker(1, host=1)
    assert choose([Bin(worker(2, host=1), 0), Bin(worker(3, host=3), 100)], 1, [owner]) == [worker(3, host=3)]


def test_the_least_loaded_comes_first() -> None:
    assert choose([Bin(worker(2), 5), Bin(worker(3), 4)], 1, [worker(1)]) == [worker(3)]


def test_a_member_carries_the_bytes_of_its_groups() -> None:
    group = ReplicaGroup(GroupId("j", 0, 0), Epoch(1, 1), (Member(worker(1), True), Member(worker(2), True)), 2)
    table = GroupTable([group])
    assert [table.load_bytes[f"w{number}"] for number in (1, 2, 3)] == [GROUP_BYTES_MIN, GROUP_BYTES_MIN, 0]
    table.resize(group.group, 10**9)
    table.put(dataclasses.replace(group, members=(Member(worker(1), True), Member(worker(3), False))))
    assert [table.load_bytes[f"w{number}"] for number in (1, 2, 3)] == [10**9, 0, 10**9]
    table.resize(group.group, 0)
    assert table.load_bytes["w1"] == GROUP_BYTES_MIN
    table.drop(group.group)
    assert not table.load_bytes


def test_full_and_failing_workers_get_nothing_new_but_keep_what_they_hold() -> None:
    full, empty, busy = worker(1), worker(2), worker(3)
    known = [Bin(full, 0, closed=True), Bin(empty, 10), Bin(busy, 20)]
    assert choose(known, 1, [worker(9)]) == [empty]
    assert choose(known, 3, [worker(9)], Wish(["w1"])) == [empty, busy]
    assert choose(known, 2, [worker(9)], Wish(["w1"], holders={"w1"})) == [full, empty]


def test_workers_with_executors_come_before_fewer_bytes_but_not_before_other_hosts() -> None:
    known = [Bin(worker(2, host=1), 0), Bin(worker(3), 0), Bin(worker(4), 9)]
    assert choose(known, 1, [worker(1)], Wish(near_executors={"w2", "w4"})) == [worker(4)]
    assert choose(known, 1, [worker(1)], Wish(near_executors={"w2"})) == [worker(3)]
    assert choose(known, 1, [worker(1)], Wish(preferred=["w3"], near_executors={"w4"})) == [worker(3)]
    assert choose(known, 1, [worker(1)], Wish(near_executors={"elsewhere"})) == [worker(3)]


def test_zones_come_before_racks_and_racks_before_preferences_and_fewer_bytes() -> None:
    owner = worker(1, zone="a", rack="1")
    same, other_rack, other_zone = worker(2, zone="a", rack="1"), worker(3, zone="a", rack="2"), worker(4, zone="b")
    known = [Bin(same, 0), Bin(other_rack, 50), Bin(other_zone, 100)]
    assert choose(known, 3, [owner], Wish(preferred=["w2", "w3"])) == [other_zone, other_rack, same]
    assert choose(known, 1, [owner], Wish(first=["w2"])) == [same]


def test_a_worker_without_a_zone_comes_after_other_zones_and_before_the_same() -> None:
    owner = worker(1, zone="a")
    bare, same, other = worker(2), worker(3, zone="a"), worker(4, zone="b")
    assert choose([Bin(same, 0), Bin(bare, 5), Bin(other, 9)], 3, [owner]) == [other, bare, same]


def test_the_place_of_a_member_that_leaves_does_not_count() -> None:
    owner, leaves = worker(1, zone="a"), worker(2, zone="b")
    known = [Bin(worker(3, zone="a"), 0), Bin(worker(4, zone="b"), 9)]
    assert choose(known, 1, [owner, leaves], Wish(leaving={"w2"})) == [worker(4)]
    assert choose(known, 1, [owner, leaves]) == [worker(3)]


places = st.tuples(st.integers(0, 5), st.sampled_from(["", "a", "b", "c"]), st.sampled_from(["", "1", "2"]))


@settings(deadline=None)
@given(st.lists(places, min_size=1, max_size=7), st.integers(1, 3))
def test_copies_are_on_as_many_hosts_and_zones_as_any_choice_reaches(found: list[tuple[int, str, str]], r: int) -> None:
    """Compared with all choices. A host is in one zone, as in life."""
    zone_of = {host: zone for host, zone, _ in found}
    workers = [worker(i, host, zone_of[host], rack) for i, (host, _, rack) in enumerate(found)]
    owner, *others = workers

    def reached(chosen: Iterable[Worker]) -> tuple[int, int]:
        group = [owner, *chosen]
        return len({w.host for w in group}), len({w.zone for w in group if w.zone})

    best = max((reached(chosen) for chosen in itertools.combinations(others, min(r, len(others)))), default=(1, 1))
    mine = reached(choose([Bin(w, 0) for w in others], r, [owner]))
    assert mine[0] == max(
        (reached(chosen)[0] for chosen in itertools.combinations(others, min(r, len(others)))), default=1
    )
    assert not others or mine == best
