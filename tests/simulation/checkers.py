"""The invariants of docs/design/invariants.md over a simulated cluster.

They look at disks, at what was sent and at the manager's word, never into a machine; and they know by themselves what
opens a version (`openings`), so that a mistake in `worker_runtime.protocol.versions.closure` cannot hide itself.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from replication_manager.protocol.groups.logged import STREAK_GAP
from replication_manager.protocol.workers.worker_record import Report
from rhino_core.ids import (
    BelowMinCopies,
    Epoch,
    FileEntry,
    FileKind,
    GroupId,
    ReplicaGroup,
    StoreId,
    StoreVersion,
    Version,
    Worker,
)
from tests.simulation.catch_up_checkers import CatchUpCheckers
from tests.simulation.disk import Disk, Files, Key, openings, opens
from tests.simulation.facts import Incarnation, Violation, require
from worker_runtime.protocol import events as ev
from worker_runtime.protocol.copies.excess import RemoveExcess

RECENT_BATCHES = STREAK_GAP + 1  # of each store; a streak has no longer gap between two batches with a known writer


class Checkers:
    """`copies`: versions whose commit has returned, at or above their floor. With each: the incarnations that were
    promised, or are seen, to hold it.

    Where checks are many, their texts are made only when something is wrong.
    """

    def __init__(self, memory_limit_bytes: int) -> None:
        self._memory_limit = memory_limit_bytes
        self.catch_ups = CatchUpCheckers()
        self._checksums: dict[Key, int] = {}
        self._issued: dict[tuple[GroupId, Epoch], ReplicaGroup] = {}
        self._newest: dict[GroupId, Epoch] = {}
        self._acks: defaultdict[tuple[StoreId, str, Epoch], set[Incarnation]] = defaultdict(set)
        self._whole: defaultdict[tuple[GroupId, Epoch], set[Incarnation]] = defaultdict(set)
        self._writers: defaultdict[GroupId, list[str]] = defaultdict(list)
        self._logging: defaultdict[GroupId, set[StoreId]] = defaultdict(set)  # stores with logged batches
        self._lost: set[Incarnation] = set()
        self._unsound: set[tuple[Incarnation, StoreId]] = set()
        self._given_up: set[tuple[Incarnation, Key]] = set()  # deleted where it was in excess
        self._forgotten: set[str] = set()  # jobs
        self._reborn: dict[Incarnation, Incarnation] = {}
        self.losses = 0  # of disks and files, also when they are noticed
        self._buffered: Counter[str] = Counter()
        self._granted: Counter[str] = Counter()
        self.copies: dict[StoreVersion, set[Incarnation]] = {}
        self.floors: dict[StoreId, int] = {}
        self.doubtful: set[GroupId] = set()  # not issued since the journal was replaced

    # ------------------------------------------------------------ names, snapshots, memory, epochs

    def stored(self, entry: FileEntry, incarnation: Incarnation) -> None:
        """2. Names: (store, name) has one checksum for ever."""
        self._given_up.discard((incarnation, (entry.store, entry.name)))
        if self._checksums.setdefault((entry.store, entry.name), entry.crc32c) != entry.crc32c:
            raise Violation(f"{entry.store}/{entry.name} has two checksums")

    def visible(self, disk: Disk, store: StoreId, name: str) -> None:
        """3. A visible file is here, and a visible snapshot has every file it names."""
        entry = disk.files[store].get(name)
        if entry is None:
            raise Violation(f"{store}/{name} is visible but not here")
        absent = [r for r in entry.references if r not in disk.files[store]]
        if absent and entry.kind is FileKind.SNAPSHOT:
            raise Violation(f"snapshot {store}/{name} is visible without {absent}")

    def buffered(self, worker: str, change_bytes: int) -> None:
        """4. Memory: bytes received and not yet on disk stay within the limit."""
        self._buffered[worker] += change_bytes
        if (held := self._buffered[worker]) > self._memory_limit:
            raise Violation(f"{worker} buffers {held} bytes with a limit of {self._memory_limit}")

    def granted(self, worker: str, change_bytes: int) -> None:
        """4. So does what senders may send at any moment, together with what has come in."""
        self._granted[worker] += change_bytes
        if (held := self._granted[worker]) > self._memory_limit:
            raise Violation(f"{worker} has granted {held} bytes with a limit of {self._memory_limit}")

    def epoch_persisted(self, disk: Disk, group: GroupId, epoch: Epoch) -> None:
        """5. Epochs rise on every disk."""
        before = disk.epochs.get(group)
        require(before is None or before < epoch, f"{group}: epoch {epoch} persisted after {before}")

    def group_issued(self, group: ReplicaGroup) -> None:
        """5. Epochs rise and are never issued twice, also over restarts of the manager."""
        newest = self._newest.get(group.group)
        if newest is not None and group.group not in self.doubtful:
            self._proved(self._issued[group.group, newest], group)
        self.doubtful.discard(group.group)
        require(newest is None or newest < group.epoch, f"{group.group}: epoch {group.epoch} issued after {newest}")
        self._newest[group.group] = group.epoch
        self._issued[group.group, group.epoch] = group

    def journal_replaced(self) -> None:
        """The manager knows nothing better than its older journal, or the first worker that has seen more."""
        self.doubtful.update(self._newest)

    def is_newest(self, group: ReplicaGroup) -> bool:
        return self._newest.get(group.group) == group.epoch

    def issued(self) -> list[ReplicaGroup]:
        """Every group under every epoch so far."""
        return list(self._issued.values())

    def reported(self, incarnation: Incarnation, report: Report) -> None:
        """The manager has heard this."""
        if report.whole:
            self._whole[report.group, report.epoch].add(incarnation)

    def caught_up(self, process: tuple[str, int], group: GroupId, disk: Disk) -> None:
        """5. A member that caught up has on disk every promised version that the others had when it asked them."""
        for version in self.catch_ups.reported_by_others(process, group) & self.copies.keys():
            if not opens(disk.files[version.store], version.version):
                raise Violation(f"{process[0]} has caught up in {group} without {version}")

    def _proved(self, before: ReplicaGroup, group: ReplicaGroup) -> None:
        """5. A whole member was whole before in the same incarnation, or reported so under the epoch before."""
        already = {_incarnation_of(m.worker) for m in before.members if m.whole}
        said = self._whole[group.group, before.epoch]
        claimed = {_incarnation_of(m.worker) for m in group.members if m.whole}
        unproved = sorted(claimed - already - said)
        require(not unproved, f"{group.group} at {group.epoch}: {unproved} count as whole and have not proved it")

    def logged(self, store: StoreId, writer: str) -> None:
        """A batch in Spark's commit log was written there."""
        self._writers[store.group].append(writer)
        self._logging[store.group].add(store)

    def owner_followed(self, before: ReplicaGroup, group: ReplicaGroup, *, lost: bool) -> None:
        """8. Unless the owner was lost, another one follows only who wrote logged batches, more than one of late."""
        owner = group.owner.worker_id
        if owner == before.owner.worker_id or lost:
            return
        recent = self._writers[group.group][-RECENT_BATCHES * len(self._logging[group.group]) :]
        require(recent.count(owner) > 1, f"{group.group} at {group.epoch}: {owner} owns it; logged of late: {recent}")

    def acknowledged(self, ack: ev.SendAck, sender: Incarnation, disk: Disk) -> None:
        """5. Nobody acknowledges its own copy under an older epoch than it has persisted, nor what it does not hold."""
        if ack.member.worker_id != sender[0]:
            return
        highest = disk.epochs.get(ack.store.group)
        if highest is None or ack.epoch < highest:
            raise Violation(f"{_acknowledging(ack, sender)} having persisted {highest}")
        entry = disk.files[ack.store].get(ack.name)
        if entry is None:
            raise Violation(f"{_acknowledging(ack, sender)}, which is not on its disk")
        if ack.holds:
            if entry.version is not None and not opens(disk.files[ack.store], entry.version):
                raise Violation(f"{_acknowledging(ack, sender)} as held, but it does not open there")
            if absent := [name for name in entry.references if name not in disk.files[ack.store]]:
                raise Violation(f"{_acknowledging(ack, sender)} as held without {absent}")
            self._acks[ack.store, ack.name, ack.epoch].add(sender)

    # ------------------------------------------------------------ durability

    def committed(self, entry: FileEntry, answer: ev.CompleteCommit, writer: Incarnation, disk: Disk) -> bool:
        """1. A commit returns with as many copies as members have acknowledged under its epoch, and as that asks.

        False when bits have flipped unnoticed in every one of them. One copy alone may be lost before the answer comes.
        """
        assert entry.version is not None
        version = StoreVersion(entry.store, entry.version)
        self.not_passed(version, answer.epoch, disk)
        group = self._issued[version.store.group, answer.epoch]
        holders = set(self._acks[entry.store, entry.name, answer.epoch])
        if opens(disk.files[version.store], version.version):
            holders.add(writer)
        counted = [m for m in group.members if _incarnation_of(m.worker) in holders]
        settings, whole = group.settings, sum(m.whole for m in group.members)
        blocks = settings.below_min_copies is BelowMinCopies.BLOCK
        asked = settings.copies if blocks else max(1, min(settings.copies, whole))
        if answer.copies > len(counted) or sum(m.whole for m in counted) < asked:
            raise Violation(
                f"{version} under {answer.epoch}: {answer.copies} copies, acknowledged by "
                f"{[m.worker.worker_id for m in counted]}; {asked} whole ones are asked for"
            )
        # A guest may not hold what it has loaded.
        incarnations = {
            self._now(incarnation)
            for incarnation in {_incarnation_of(m.worker) for m in counted} | ({writer} & holders)
        }
        unsound = {incarnation for incarnation, store in self._unsound if store == version.store}
        given_up = {
            incarnation for incarnation in incarnations if (incarnation, (entry.store, entry.name)) in self._given_up
        }
        there = incarnations - self._lost - given_up
        if sound := there - unsound:
            self._promised(version, sound)
        return bool(sound) or not there

    def not_passed(self, version: StoreVersion, epoch: Epoch, disk: Disk) -> None:
        """5. Nor does a commit return under an older epoch than its worker has persisted."""
        highest = disk.epochs.get(version.store.group)
        require(highest == epoch, f"commit of {version} returns under {epoch}, having persisted {highest}")

    def _promised(self, version: StoreVersion, incarnations: set[Incarnation]) -> None:
        if version.version.version >= self.floors.get(version.store, 0) and version.store.job not in self._forgotten:
            self.copies.setdefault(version, set()).update(incarnations)

    def raise_floor(self, store: StoreId, version: int) -> None:
        self.floors[store] = max(version, self.floors.get(store, 0))
        for passed in [v for v in self.copies if v.store == store and v.version.version < self.floors[store]]:
            del self.copies[passed]

    def forgotten(self, job: str) -> None:
        """Nothing that was committed of it, or is from now on, is promised any more."""
        self._forgotten.add(job)
        for version in [version for version in self.copies if version.store.job == job]:
            del self.copies[version]

    def nothing_left(self, job: str, disks: Mapping[str, Disk]) -> None:
        """A forgotten job has no file anywhere."""
        for worker, disk in disks.items():
            left = [f"{store}/{name}" for store, files in disk.files.items() if store.job == job for name in files]
            require(not left, f"{worker} still has {left}, though {job} was forgotten")

    def wanted(self, store: StoreId | None = None) -> list[StoreVersion]:
        """Versions (of one store) whose commit has returned, at or above their floor."""
        return [version for version in self.copies if store is None or version.store == store]

    def wanted_of(self, group: GroupId) -> list[StoreVersion]:
        """The wanted versions of one group."""
        return [version for version in self.copies if version.store.group == group]

    def may_lose(self, incarnation: Incarnation, disks: Mapping[Incarnation, Disk]) -> bool:
        """Whether the promise covers the loss of this disk: every version has another copy, promised or repaired.

        With a member: others may be about to delete theirs in excess, having asked the members before (seed 9907).
        """
        for version in self.wanted():
            others = self._members(version.store.group) - {incarnation}
            if not self.copies[version] & others and not any(
                disks[other].holds(version) for other in others & disks.keys()
            ):
                return False
        return True

    def _members(self, group: GroupId) -> set[Incarnation]:
        """As issued last."""
        issued = self._issued[group, self._newest[group]]
        return {(member.worker.worker_id, member.worker.incarnation) for member in issued.members}

    def lost(self, incarnation: Incarnation) -> None:
        self._lost.add(incarnation)
        self.losses += 1
        for incarnations in self.copies.values():
            incarnations.discard(incarnation)

    def reborn(self, before: Incarnation, incarnation: Incarnation) -> None:
        """A disk that has lost power and keeps what it had, for all of it was synced. Damaged files are gone."""
        self.losses += 1
        self._reborn[before] = incarnation
        for incarnations in self.copies.values():
            if before in incarnations:
                incarnations.symmetric_difference_update((before, incarnation))

    def _now(self, incarnation: Incarnation) -> Incarnation:
        while incarnation in self._reborn:
            incarnation = self._reborn[incarnation]
        return incarnation

    def damaged(self, incarnation: Incarnation, store: StoreId) -> None:
        """A file of the store is no longer what it was: what this disk holds of it is not taken for granted."""
        self._unsound.add((incarnation, store))
        self.losses += 1
        for version, incarnations in self.copies.items():
            if version.store == store:
                incarnations.discard(incarnation)

    def sound(self, incarnation: Incarnation, store: StoreId) -> None:
        """All damage has been noticed: what is acknowledged from now on is there."""
        self._unsound.discard((incarnation, store))

    def durable(self, disks: Iterable[Disk], store: StoreId | None = None) -> None:
        """1. Every version whose commit has returned, at or above the floor, opens from some disk, down or up.

        `store`: nothing of other stores has changed since the last look.
        """
        disks = list(disks)
        for version in self.wanted(store):
            if not any(disk.holds(version) for disk in disks):
                raise Violation(f"{version} was committed and nobody holds it")

    # ------------------------------------------------------------ deletion

    def deleted(self, disk: Disk, store: StoreId, names: Iterable[str], pins: Iterable[Version]) -> None:
        """7. Nothing is deleted from which a version opens that is pinned or at or above the floor. Before deletion."""
        files, floor, gone = disk.files[store], disk.floors[store], frozenset(names)
        versions = {entry.version for entry in files.values() if entry.version is not None}
        for version in {v for v in versions if v.version >= floor.version} | {floor} | set(pins):
            for names_needed in openings(files, version):
                if taken := sorted(names_needed & gone):
                    raise Violation(f"{store}: {taken} deleted, though {version} opens from them (floor {floor})")

    def excess_deleted(
        self,
        incarnation: Incarnation,
        disks: Mapping[str, Disk],
        gone: RemoveExcess,
        pins: Iterable[Version],
        *,
        losses_before: int,
    ) -> None:
        """7. A copy goes as excess only while min_copies others are there, of which losses since then may take some;
        what is pinned stays. Before deletion."""
        store, disk = gone.store, disks[incarnation[0]]
        copies = self._issued[store.group, self._newest[store.group]].settings.copies
        before = disk.files[store]
        after = {name: entry for name, entry in before.items() if name not in gone.names}
        text = f"{incarnation[0]} deletes {sorted(gone.names)} of {store} in excess"
        for pin in pins:
            require(opens(after, pin) or not opens(before, pin), f"{text}, though {pin} is pinned")
        for version in [v for v in self.wanted(store) if opens(before, v.version)]:
            if opens(after, version.version):
                continue
            others = [
                name
                for name, other in disks.items()
                if name != incarnation[0] and opens(other.files[store], version.version)
            ]
            enough = len(others) >= copies or self.losses > losses_before
            require(enough, f"{text}: {version} is left to {others}")
            self.copies[version].discard(incarnation)
        self._given_up |= {(incarnation, (store, name)) for name in gone.names}

    def snapshots_whole(self, disk: Disk, store: StoreId) -> None:
        """3. Also after a deletion."""
        for visible_store, name in disk.visible:
            if visible_store == store and name.endswith(".zip"):
                self.visible(disk, store, name)

    def nothing_in_excess(self, worker: str, disk: Disk, store: StoreId) -> None:
        """7. What no version at or above the floor needs has gone, once the floor's own closure is here."""
        files, floor = disk.files[store], disk.floors.get(store)
        if floor is None or not opens(files, floor):
            return
        versions = {entry.version for entry in files.values() if entry.version is not None}
        needed: set[str] = set()
        for version in {floor} | {v for v in versions if v.version >= floor.version}:
            changelog = files.get(f"{version}.changelog")
            for base in (version, *(changelog.lineage if changelog else ())):
                needed |= {f"{base}.changelog", f"{base}.zip"}
        excess = sorted(n for n, e in files.items() if e.version is not None and n not in needed)
        require(not excess, f"{worker} still has {excess} of {store} with floor {floor}")

    def no_copies_outside(self, group: ReplicaGroup, disks: Mapping[str, Disk]) -> None:
        """6. A worker outside the group has deleted what the members have, unless it wrote the newest version."""
        members = [disks[m.worker.worker_id] for m in group.members]
        for worker, disk in disks.items():
            for store in [s for s in disk.files if s.group == group.group and group.member(worker) is None]:
                written = {e: e.version.version for d in (disk, *members) for e in d.files[store].values() if e.version}
                newest = [entry for entry, number in written.items() if number == max(written.values())]
                if any(entry.written_by == worker for entry in newest):
                    continue
                floor = self.floors.get(store, 0)
                left = disk.files[store].keys() - _held_back(
                    disk.files[store], [m.files[store] for m in members], floor
                )
                require(not left, f"{worker} still has {sorted(left)} of {store}, whose members are {group.members}")

    # ------------------------------------------------------------ liveness

    def converged(
        self,
        groups: Iterable[ReplicaGroup],
        disks: Mapping[str, Disk],
        factor: int,
        may_stay: Mapping[GroupId, set[str]],
    ) -> None:
        """6. Once faults have ended every group is complete and whole, and its members have the same files."""
        for group in groups:
            text = f"{group.group} at {group.epoch}: {[(m.worker.worker_id, m.whole) for m in group.members]}"
            extra = [m for m in group.members if m.worker.worker_id in may_stay.get(group.group, ())]
            expected = range(factor + 1, factor + 2 + len(extra))
            require(len(group.members) in expected, f"{text}: expected {factor + 1} members")
            require(all(m.whole for m in group.members), f"{text}: not whole")
            members = {m.worker.worker_id: disks[m.worker.worker_id] for m in group.members}
            for version in [v for v in self.wanted() if v.store.group == group.group]:
                lacking = [name for name, disk in members.items() if not disk.holds(version)]
                require(not lacking, f"{text}: {version} is not held by {lacking}")
            for store in {store for disk in members.values() for store in disk.files if store.group == group.group}:
                self._same_files(text, store, members)

    def _same_files(self, text: str, store: StoreId, members: Mapping[str, Disk]) -> None:
        """Files of versions at or above the floor that anybody has, everybody has.

        A snapshot that came too late may name files that the floor has taken from everybody: it stays hidden.
        """
        union = {name: entry for disk in members.values() for name, entry in disk.files[store].items()}
        floor = self.floors.get(store, 0)
        above = {n for n, e in union.items() if e.version is not None and e.version.version >= floor}
        above |= {reference for name in above for reference in union[name].references} & union.keys()
        for worker, disk in members.items():
            lacking = sorted(above - disk.files[store].keys())
            require(not lacking, f"{text}: {worker} lacks {lacking} of {store}")


def _incarnation_of(worker: Worker) -> Incarnation:
    return worker.worker_id, worker.incarnation


def _acknowledging(ack: ev.SendAck, sender: Incarnation) -> str:
    return f"{sender[0]} acknowledges {ack.store}/{ack.name} under {ack.epoch}"


def _held_back(files: Files, members: Sequence[Files], floor: int) -> set[str]:
    """Names with which a version may open that some member cannot open from the same files.

    A snapshot that lacks data files here, and at each member that has it, opens nothing, and nobody can say so.
    """
    kept: set[str] = set()
    for entry in files.values():
        if entry.version is None or entry.version.version < floor:
            continue
        names = {entry.name, *entry.references}
        for base in (entry.version, *entry.lineage):
            zip_ = files.get(f"{base}.zip")
            names |= {f"{base}.changelog", f"{base}.zip", *(zip_.references if zip_ else ())}
        names &= files.keys()
        useless = any(name not in files for name in entry.references) and all(
            any(name not in member for name in entry.references) for member in members
        )
        if useless or any(names - member.keys() for member in members):
            kept |= names
    return kept
