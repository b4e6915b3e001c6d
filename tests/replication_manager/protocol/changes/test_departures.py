"""A worker whose process has ended while its host has not: commits do not wait for it, and nothing is moved yet."""

from __future__ import annotations

from replication_manager.protocol import events as ev
from replication_manager.protocol.workers.worker_record import Report
from rhino_core.ids import BelowMinCopies, JobSettings
from tests.replication_manager.protocol.harness import GROUP, Manager


def ended(manager: Manager, name: str, *, process: str = "") -> None:
    """The process of `name` is killed."""
    process = process or f"{name}-process"
    manager.do(ev.StreamBroken(name, process))
    manager.do(ev.Refused(name, process))


def whole(manager: Manager, name: str) -> Report:
    return Report(GROUP, manager.group().epoch, True, 1)


def pair(manager: Manager, **settings: object) -> tuple[str, str]:
    """A group with all copies whole: its owner and its first secondary."""
    group = manager.resolve("a", settings=JobSettings(**settings))  # type: ignore[arg-type]
    for member in group.members[1:]:
        manager.beat(member.worker.worker_id, whole(manager, member.worker.worker_id))
    return "a", manager.group().members[1].worker.worker_id


def test_commits_do_not_wait_for_a_secondary_that_has_ended() -> None:
    manager = Manager("abc")
    _, b = pair(manager)
    before = manager.group()
    assert before.required_copies == 2
    ended(manager, b)
    assert (manager.members(), manager.group().required_copies) == (f"a{b}?", 1)
    assert manager.group().epoch > before.epoch


def test_nothing_is_copied_before_its_lease_has_ended() -> None:
    manager = Manager("abc")
    _, b = pair(manager)
    ended(manager, b)
    manager.now += 0.9
    manager.beat_all()
    manager.do(ev.Tick())
    assert manager.members() == f"a{b}?"
    manager.now += 0.2
    manager.do(ev.Tick())
    assert manager.members() == f"a{({'b', 'c'} - {b}).pop()}?"


def test_one_that_is_back_in_time_is_whole_again_once_it_has_caught_up() -> None:
    manager = Manager("abc")
    _, b = pair(manager)
    ended(manager, b)
    manager.register(b, Report(GROUP, manager.group().epoch, False, 1), process="second")
    assert (manager.members(), manager.group().required_copies) == (f"a{b}?", 1)
    manager.beat(b, whole(manager, b))
    assert (manager.members(), manager.group().required_copies) == (f"a{b}", 2)


def test_an_owner_that_is_back_in_time_is_still_the_owner() -> None:
    manager = Manager("abc")
    _, b = pair(manager)
    ended(manager, "a")
    assert (manager.members(), manager.group().required_copies) == (f"a?{b}", 1)
    manager.register("a", Report(GROUP, manager.group().epoch, False, 1), process="second")
    manager.register("d")
    assert manager.members() == f"a?{b}"
    manager.beat("a", whole(manager, "a"))
    assert (manager.members(), manager.group().required_copies) == (f"a{b}", 2)


def test_an_owner_that_is_back_without_its_files_is_not() -> None:
    manager = Manager("abc")
    _, b = pair(manager)
    ended(manager, "a")
    manager.register("a", incarnation=2, process="second")
    assert manager.members() == f"{b}a?"


def test_the_only_live_holder_stays_whole() -> None:
    """Both ended: which has the newest version is known when they are back."""
    manager = Manager("abc")
    _, b = pair(manager)
    manager.do(ev.StreamBroken("a", "a-process"))
    ended(manager, b)
    manager.do(ev.Refused("a", "a-process"))
    assert manager.members() == f"a{b}"


def test_nothing_changes_while_enough_others_have_every_version() -> None:
    manager = Manager("abcd")
    pair(manager, replication_factor=2, min_copies=2)
    before = manager.group()
    ended(manager, before.members[2].worker.worker_id)
    assert manager.group() == before


def test_where_commits_are_to_wait_they_do() -> None:
    manager = Manager("abc")
    _, b = pair(manager, below_min_copies=BelowMinCopies.BLOCK)
    before = manager.group()
    ended(manager, b)
    assert manager.group() == before


def test_late_news_of_a_former_process_is_none() -> None:
    manager = Manager("abc")
    _, b = pair(manager)
    before = manager.group()
    manager.do(ev.Refused(b, f"{b}-process"))  # its stream is open
    assert manager.group() == before
    manager.do(ev.StreamBroken(b, f"{b}-process"))
    manager.register(b, whole(manager, b), process="second")
    manager.do(ev.Refused(b, f"{b}-process"))
    assert manager.group() == before


def test_an_owner_that_does_not_come_back_is_succeeded_after_its_lease() -> None:
    manager = Manager("abc")
    _, b = pair(manager)
    ended(manager, "a")
    manager.now += 1.1
    manager.beat_all()
    manager.do(ev.Tick())
    assert manager.members() == f"{b}{({'b', 'c'} - {b}).pop()}?"
