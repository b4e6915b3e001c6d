from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from replication_manager.protocol.placement import GROUP_BYTES_MIN, Bin, choose, loads
from rhino_core.ids import Epoch, GroupId, Member, ReplicaGroup, Worker


def worker(number: int, host: int | None = None) -> Worker:
    return Worker(f"w{number}", "i", f"h{number if host is None else host}", "a:1")


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
    found = loads([worker(1), worker(2), worker(3)], [group], {group.group: 10**9})
    assert [b.load_bytes for b in found] == [10**9, 10**9, 0]
    assert loads([worker(1)], [group], {})[0].load_bytes == GROUP_BYTES_MIN


def test_full_and_failing_workers_get_nothing_new_but_keep_what_they_hold() -> None:
    full, empty, busy = worker(1), worker(2), worker(3)
    known = [Bin(full, 0, closed=True), Bin(empty, 10), Bin(busy, 20)]
    assert choose(known, 1, [worker(9)]) == [empty]
    assert choose(known, 3, [worker(9)], ["w1"]) == [empty, busy]
    assert choose(known, 2, [worker(9)], ["w1"], {"w1"}) == [full, empty]


def test_workers_with_executors_come_before_fewer_bytes_but_not_before_other_hosts() -> None:
    known = [Bin(worker(2, host=1), 0), Bin(worker(3), 0), Bin(worker(4), 9)]
    assert choose(known, 1, [worker(1)], near_executors={"w2", "w4"}) == [worker(4)]
    assert choose(known, 1, [worker(1)], near_executors={"w2"}) == [worker(3)]
    assert choose(known, 1, [worker(1)], ["w3"], near_executors={"w4"}) == [worker(3)]
    assert choose(known, 1, [worker(1)], near_executors={"elsewhere"}) == [worker(3)]
