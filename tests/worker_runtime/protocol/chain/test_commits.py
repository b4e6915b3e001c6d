from rhino_core.ids import FileEntry, StoreId
from worker_runtime.protocol.chain.commits import Commit, Commits
from worker_runtime.protocol.keys import key_of

STORES = [StoreId("job", 0, partition, "default") for partition in range(2)]


def commit(request: int, number: int, deadline: float, store: StoreId = STORES[0]) -> Commit:
    return Commit(request, FileEntry(store, f"{number}_x.changelog", 10, number), deadline)


def test_the_next_deadline_is_that_of_a_commit_that_still_waits() -> None:
    commits, first, again, other = Commits(), commit(1, 1, 5.0), commit(2, 1, 7.0), commit(3, 1, 6.0, STORES[1])
    for each in (first, again, other):
        commits.add(each, 6.5)
    assert commits.next_deadline() == 5.0
    assert commits.abandon(1) == [], "another caller waits for the file"
    assert commits.abandon(1) == []
    assert commits.next_deadline() == 6.0
    assert commits.pop(key_of(other.entry)) == [other]
    assert commits.next_deadline() == 7.0
    assert commits.due(6.9) == ([], [])
    assert commits.due(7.0) == ([again], [key_of(again.entry)])
    assert commits.next_deadline() is None
    assert [commits.of_store(store) for store in STORES] == [[], []]


def test_waiting_files_are_found_by_their_store() -> None:
    commits, here, there = Commits(), commit(1, 1, 5.0), commit(2, 1, 5.0, STORES[1])
    commits.add(here, 0.0)
    commits.add(there, 0.0)
    assert commits.of_store(STORES[0]) == [key_of(here.entry)]
    assert commits.of_group(STORES[1].group) == [key_of(there.entry)]
    commits.pop(key_of(here.entry))
    assert commits.of_store(STORES[0]) == []
    assert commits.pop(key_of(here.entry)) == []


def test_who_has_waited_for_a_second_is_named_once() -> None:
    commits, short, first, second = Commits(), commit(1, 1, 10.4), commit(2, 2, 70.0), commit(3, 3, 70.0)
    commits.add(short, 10.0)
    commits.add(first, 10.0)
    commits.add(second, 10.5)
    assert commits.next_deadline() == 10.4
    assert commits.due(10.4)[0] == [short]
    assert commits.next_deadline() == 11.0
    assert commits.slow(10.9) == []
    assert commits.slow(11.0) == [(first, True)]
    assert commits.next_deadline() == 11.5
    commits.pop(key_of(second.entry))
    assert commits.slow(12.0) == []
    assert commits.next_deadline() == 70.0
    commits.check_again(first, 12.0, closure_due=False)
    assert commits.next_deadline() == 13.0
    assert commits.slow(13.0) == [(first, False)]
