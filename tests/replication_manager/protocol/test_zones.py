"""Copies in zones: where a group begins, what replaces a lost member, and who leaves after a handover."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from replication_manager.protocol import events as ev
from replication_manager.protocol.workers.worker_record import Report
from rhino_core.ids import NO_EPOCH, GroupId, JobSettings
from tests.replication_manager.protocol.harness import GROUP, Manager, worker


def cluster(zones: dict[str, str]) -> Manager:
    """Workers by name, with their zones."""
    manager = Manager()
    for name, zone in zones.items():
        register(manager, name, zone)
    return manager


def register(manager: Manager, name: str, zone: str, *reports: Report) -> None:
    manager.do(ev.Registered(worker(name, zone=zone), f"{name}-process", NO_EPOCH, reports))


def zones_of(manager: Manager, zones: dict[str, str], group: GroupId = GROUP) -> list[str]:
    return [zones[m.worker.worker_id] for m in manager.group(group).members]


THREE = {"a": "1", "b": "1", "c": "2", "d": "2", "e": "3", "f": "3"}


@pytest.mark.parametrize(("copies", "zones"), [(1, 2), (2, 3), (3, 3)])
def test_a_new_group_is_in_as_many_zones_as_it_has_copies(copies: int, zones: int) -> None:
    manager = cluster(THREE)
    for partition, owner in itertools.product(range(8), THREE):
        group = GroupId(f"job-{owner}", 0, partition)
        manager.resolve(owner, group, JobSettings(copies))
        assert len(set(zones_of(manager, THREE, group))) == zones


def test_a_lost_copy_comes_back_in_its_zone_even_if_another_worker_has_most_of_the_files() -> None:
    manager = cluster(THREE)
    manager.resolve("a", settings=JobSettings(2))
    lost = next(m.worker.worker_id for m in manager.group().members if THREE[m.worker.worker_id] == "2")
    manager.beat("b", Report(GROUP, manager.group().epoch, False, 10))
    for name in manager.members():
        manager.whole(name)
    manager.lose(lost)
    assert sorted(zones_of(manager, THREE)) == ["1", "2", "3"]


def test_zones_are_known_after_a_restart_of_the_manager() -> None:
    manager = cluster(THREE)
    manager.resolve("a", settings=JobSettings(2))
    manager.restart()
    assert {name: record.worker.zone for name, record in manager.machine.membership.records.items()} == THREE
    other = GroupId("later", 0, 1)
    for name, zone in THREE.items():
        register(manager, name, zone)
    manager.resolve("c", other, JobSettings(2))
    assert sorted(zones_of(manager, THREE, other)) == ["1", "2", "3"]


def test_a_worker_that_changes_its_zone_moves_nothing() -> None:
    manager = cluster(THREE)
    before = manager.resolve("a", settings=JobSettings(2))
    register(manager, "a", "3", Report(GROUP, before.epoch, True, 10))
    assert manager.group() == before
    assert manager.machine.membership.records["a"].worker.zone == "3"
    assert manager.workers["a"].zone == "3"


@pytest.mark.parametrize("target", ["b", "d", "f"])
def test_after_a_handover_the_copy_that_shares_a_zone_leaves(target: str) -> None:
    """Also for a target in the owner's zone: that of the former owner leaves, not the end of the chain."""
    manager = cluster(THREE)
    manager.do(ev.DrainSet(target, True))  # so that it is no member
    manager.resolve("a", settings=JobSettings(2))
    manager.do(ev.DrainSet(target, False))
    for name in manager.members():
        manager.whole(name)
    manager.do(ev.Change(GROUP, target, ""))
    manager.whole(target)
    manager.do(ev.Change(GROUP, "", target))
    assert manager.group().owner.worker_id == target
    assert sorted(zones_of(manager, THREE)) == ["1", "2", "3"]


def test_a_lower_factor_gives_up_the_copy_that_shares_a_zone() -> None:
    zones = {"a": "1", "b": "1", "c": "2"}
    manager = cluster(zones)
    manager.resolve("a", settings=JobSettings(2))
    assert manager.members() == "acb"
    members = manager.group().members
    swapped = replace(manager.group(), members=(members[0], members[2], members[1]))
    manager.restart([swapped])
    for name, zone in zones.items():
        register(manager, name, zone, Report(GROUP, swapped.epoch, True, 10))
    assert manager.members() == "abc"
    manager.do(ev.SettingsNamed("job", JobSettings(1)))
    assert manager.members() == "ac"


def test_one_worker_without_a_zone_is_used_when_other_zones_do_not_suffice() -> None:
    zones = {"a": "1", "b": "1", "c": "2", "d": ""}
    manager = cluster(zones)
    manager.resolve("a", settings=JobSettings(2))
    assert manager.members() == "acd"
