"""Copies of groups that a worker has left: the core, step by step, and real sidecars."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import pytest

from rhino_core.ids import Epoch, FileEntry, GroupId, ReplicaGroup, StoreId, Version
from tests.worker_runtime.cluster import Cluster, changelog_bytes
from tests.worker_runtime.scenario import GROUP, STORE, changelog, group, snapshot, sst, version, worker
from tests.worker_runtime.support.sidecar import write
from worker_runtime.protocol import events as ev
from worker_runtime.protocol.copies.excess import (
    AGAIN_S,
    RETRY_S,
    AskMembers,
    Effect,
    Event,
    ExcessMachine,
    ExcessRemoved,
    GroupUsed,
    MembersAnswered,
    RemoveExcess,
)
from worker_runtime.protocol.copies.pulling import Inventory
from worker_runtime.protocol.versions.closure import Catalogue

GRACE_S = 600.0


@dataclass
class Outsider:
    """Worker "x", which has left the group, and what it stores."""

    files: list[FileEntry]
    epochs: dict[GroupId, Epoch] = field(default_factory=dict)
    floors: dict[StoreId, Version] = field(default_factory=dict)
    pins: set[Version] = field(default_factory=set)
    names: set[str] = field(default_factory=set)
    now: float = 0.0

    def __post_init__(self) -> None:
        self.catalogue = Catalogue()
        for entry in self.files:
            self.catalogue.add(entry)
        self.machine = ExcessMachine(worker("x"), self.catalogue, self, GRACE_S)

    def epoch(self, group: GroupId) -> Epoch:
        return self.epochs.get(group, Epoch(0, 0))

    def floor(self, store: StoreId) -> Version | None:
        return self.floors.get(store)

    def pinned(self, store: StoreId) -> Iterable[Version]:
        return self.pins

    def in_use(self, store: StoreId) -> Iterable[str]:
        return self.names

    def do(self, event: Event) -> list[Effect]:
        effects = self.machine.handle(event, now=self.now)
        self.machine.check_invariants()
        return effects

    def adopt(self, new: ReplicaGroup) -> None:
        self.epochs[new.group] = new.epoch
        assert self.do(ev.GroupAdopted(new)) == []

    def wait(self, seconds: float) -> list[Effect]:
        self.now += seconds
        return self.do(ev.Tick())

    def answer(self, *answers: Inventory, epoch: int = 1) -> tuple[str, ...]:
        """Names that are then deleted."""
        effects = self.do(MembersAnswered(GROUP, Epoch(1, epoch), answers))
        assert len(effects) <= 1
        return tuple(name for effect in effects if isinstance(effect, RemoveExcess) for name in effect.names)


def answered(name: str, *files: FileEntry, epoch: int = 1, incarnation: int = 1) -> Inventory:
    return Inventory(worker(name, incarnation), files, Epoch(1, epoch))


ALL = (changelog(1), changelog(2))


def outsider(*files: FileEntry, members: str = "ab") -> Outsider:
    """Its grace has passed and it has asked the members."""
    found = Outsider(list(files))
    found.adopt(group(1, members))
    assert found.wait(GRACE_S - 1) == []
    asked = found.wait(1)
    assert asked == [AskMembers(GROUP, Epoch(1, 1), tuple(worker(name) for name in members))]
    return found


def test_what_enough_members_have_is_deleted_after_the_grace() -> None:
    x = outsider(*ALL)
    assert set(x.answer(answered("a", *ALL), answered("b", *ALL))) == {e.name for e in ALL}
    assert x.do(ExcessRemoved(GROUP, Epoch(1, 1))) == []


@pytest.mark.parametrize(
    "second",
    [
        None,  # could not be asked
        answered("b", changelog(1)),  # lacks one, on which the other depends
        answered("b", changelog(1), changelog(2, crc=9)),  # other bytes
        answered("b", *ALL, epoch=2),  # has seen a later epoch: it may be about to delete, too
        answered("b", *ALL, epoch=0),
        answered("b", *ALL, incarnation=2),  # another incarnation than the one that the group counts as whole
        answered("c", *ALL),  # no member
        answered("a", *ALL),  # twice the same
    ],
)
def test_one_member_is_not_enough(second: Inventory | None) -> None:
    x = outsider(*ALL)
    assert changelog(2).name not in x.answer(
        *(answer for answer in (answered("a", *ALL), second) if answer is not None)
    )


def test_what_has_stayed_is_asked_about_again() -> None:
    x = outsider(*ALL)
    assert x.answer(answered("a", *ALL)) == ()
    assert [type(effect) for effect in x.wait(RETRY_S)] == [AskMembers], "soon: one has not answered"
    assert x.answer(answered("a", *ALL), answered("b")) == ()
    assert x.wait(AGAIN_S - 1) == []
    assert [type(effect) for effect in x.wait(1)] == [AskMembers]


def test_two_members_that_each_have_a_part_are_not_two_copies() -> None:
    """Each name is there twice, the version opens from one member only."""
    files = (sst(1), snapshot(2, sst(1).name))
    x = outsider(*files, members="abc")
    assert not x.answer(answered("a", *files), answered("b", files[0]), answered("c", files[1]))


def test_a_member_that_is_not_whole_is_not_asked() -> None:
    x = Outsider(list(ALL))
    x.adopt(group(1, "abc", whole="ab"))
    assert x.wait(GRACE_S) == [AskMembers(GROUP, Epoch(1, 1), (worker("a"), worker("b")))]
    x.adopt(group(2, "abc", whole="a"))
    assert x.wait(GRACE_S) == [], "nobody else to confirm"


def test_a_new_epoch_that_makes_it_a_member_again_stops_it() -> None:
    x = outsider(*ALL)
    x.adopt(group(2, "axb", whole="ab"))
    assert not x.answer(answered("a", *ALL), answered("b", *ALL))
    assert x.wait(10 * GRACE_S) == []


def test_an_epoch_that_was_seen_and_not_yet_adopted_stops_it() -> None:
    x = outsider(*ALL)
    x.epochs[GROUP] = Epoch(1, 2)
    assert not x.answer(answered("a", *ALL), answered("b", *ALL))


def test_other_members_are_asked_anew() -> None:
    x = outsider(*ALL)
    x.adopt(group(2, "bc"))
    assert not x.answer(answered("a", *ALL), answered("b", *ALL))
    assert x.wait(0) == [AskMembers(GROUP, Epoch(1, 2), (worker("b"), worker("c")))]


def test_use_begins_the_grace_anew() -> None:
    x = outsider(*ALL)
    x.do(GroupUsed(GROUP))
    assert not x.answer(answered("a", *ALL), answered("b", *ALL)), "used since it asked"
    assert x.wait(GRACE_S - 1) == []
    assert [type(effect) for effect in x.wait(1)] == [AskMembers]


def test_a_file_that_comes_after_all_had_gone_goes_as_well() -> None:
    """Seed 155: a push that had been accepted while it was a member was slow."""
    x = outsider(*ALL)
    for name in x.answer(answered("a", *ALL), answered("b", *ALL)):
        x.catalogue.discard(STORE, name)
    x.do(ExcessRemoved(GROUP, Epoch(1, 1)))
    assert x.wait(AGAIN_S) == [], "nothing is left"
    x.catalogue.add(changelog(2))
    assert [type(effect) for effect in x.wait(GRACE_S)] == [AskMembers]
    assert x.answer(answered("a", *ALL), answered("b", *ALL)) == (changelog(2).name,)


def test_pinned_and_used_files_stay() -> None:
    files = (*ALL, changelog(3))
    x = outsider(*files)
    x.pins, x.names = {version(2)}, {changelog(3).name}
    assert x.answer(answered("a", *files), answered("b", *files)) == ()
    x.wait(AGAIN_S)
    x.pins = set()
    assert set(x.answer(answered("a", *files), answered("b", *files))) == {e.name for e in ALL}


def test_what_the_floor_has_passed_goes_once_enough_members_hold_the_floor() -> None:
    """The members have deleted it; retention here cannot, for the floor's closure is not here."""
    theirs = (sst(9), snapshot(9, sst(9).name))
    x = outsider(*ALL, sst(1))
    assert x.answer(answered("a", *theirs), answered("b", *theirs)) == ()
    x.wait(AGAIN_S)
    x.floors[STORE] = version(9)
    assert x.answer(answered("a", *theirs), answered("b", theirs[1])) == (), "only one opens it"
    x.wait(AGAIN_S)
    assert set(x.answer(answered("a", *theirs), answered("b", *theirs))) == {*(e.name for e in ALL), sst(1).name}


def test_zips_go_before_the_files_that_they_name() -> None:
    files = (sst(1), snapshot(2, sst(1).name))
    x = outsider(*files)
    assert x.answer(answered("a", *files), answered("b", *files)) == (files[1].name, files[0].name)


def test_nothing_goes_while_the_newest_version_was_written_here() -> None:
    mine = replace(changelog(3), written_by="x")
    x = outsider(*ALL, mine)
    assert x.answer(answered("a", *ALL, mine), answered("b", *ALL, mine)) == ()
    x.wait(AGAIN_S)
    newer = (*ALL, mine, changelog(4))
    assert len(x.answer(answered("a", *newer), answered("b", *newer))) == 3


def test_stores_are_judged_one_after_the_other() -> None:
    """Between two of them files are deleted, and meanwhile a session may have opened the second."""
    other = StoreId(GROUP.job, GROUP.operator, GROUP.partition, "left")
    files = (changelog(1), replace(changelog(1), store=other))
    x = outsider(*files)
    assert x.answer(answered("a", *files), answered("b", *files)) == (files[0].name,)
    x.pins = {version(1)}
    assert x.do(ExcessRemoved(GROUP, Epoch(1, 1))) == []


async def test_a_removed_sidecar_deletes_its_copy_once_two_members_have_confirmed_it(cluster: Cluster) -> None:
    a, b, c = await cluster.start("a", "b", "c", excess_grace_s=0.2)

    def stored(name: str) -> int:
        report = cluster.manager.reports.get((name, STORE.group))
        return report.stored_files if report is not None else -1

    async with a.attach(replicas=2) as client:
        await write(client, 3)
        await cluster.manager.until(lambda: stored("b") == stored("c") == 3)
        await b.end()
        cluster.manager.set_group(STORE.group, "a", "b", required=2)
        log = cluster.folder / "c" / "log"
        await cluster.manager.until(lambda: "no answer about a copy in excess" in log.read_text())
        assert stored("c") == 3, "one member has confirmed it, two are asked for"
        await b.start()
        cluster.manager.set_group(STORE.group, "a", "b", required=2)
        await cluster.manager.until(lambda: stored("c") == 0)
        await client.commit(STORE, version(4), changelog_bytes(4), [version(n) for n in (1, 2, 3)])
        assert stored("a") >= 3
    async with c.attach() as at_c:
        assert await at_c.names(STORE) == []
        assert (await at_c.prepare(STORE, version(3))).fetched_bytes > 0
