"""Decides the steps of a Prepare: questions, fetches, answer (ARCHITECTURE.md, "Prepare")."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from rhino_core.ids import FileEntry, GroupId, ReplicaGroup, Source, StoreId, StoreVersion, Worker
from worker_runtime.protocol.copies.pulling import Found, Offers, precedence
from worker_runtime.protocol.versions.closure import Catalogue, StoreCatalogue

SOURCES = tuple(Source)


class PrepareState(Enum):
    READY = "ready"
    UNAVAILABLE = "unavailable"  # a worker that may hold the version cannot be asked yet
    LOST = "lost"  # every worker that may hold the version has answered, and none holds it


Verdict = tuple[PrepareState, str]


@dataclass(frozen=True, slots=True)
class Known:
    """The manager's latest view: live workers, and absent workers that may hold versions.

    `connected`: the manager can be asked. `settling`: it has just started with an empty journal. `may_hold`: ids of the
    workers that may have files of the groups, by their reports; None: any worker may.
    """

    connected: bool
    live: tuple[Worker, ...]
    absent: tuple[Worker, ...]
    settling: bool = False
    may_hold: frozenset[str] | None = None

    def unasked(self, asked: Iterable[str], me: Worker) -> list[str]:
        """Workers that may have files and have not answered, for people."""
        live, absent = ({worker.worker_id for worker in workers} for workers in (self.live, self.absent))
        may_hold = live | absent if self.may_hold is None else self.may_hold
        return [
            name if name in live else f"{name} (away)" for name in sorted(may_hold.difference(asked, {me.worker_id}))
        ]


class Survey:
    """Answers of the other workers about versions missing here.

    `silent`: workers not reached, each with the reason. `group_of`: the groups as last adopted. A file of a member
    counts more than one of the same name elsewhere.
    """

    def __init__(
        self,
        missing: Iterable[StoreVersion],
        me: Worker,
        group_of: Callable[[GroupId], ReplicaGroup | None] = lambda group: None,
    ) -> None:
        self.missing = tuple(missing)
        self.silent: dict[str, str] = {}
        self._asked: set[str] = set()
        groups = {version.store.group for version in self.missing}
        self._offers = {group: Offers(precedence(group_of(group)), me) for group in groups}
        self._held: set[StoreVersion] = set()  # versions that some worker claims to hold

    def add(self, worker: Worker, held: Iterable[StoreVersion], files: Iterable[FileEntry]) -> None:
        """Adds one worker's complete answer: the versions it holds, and the files it stores of their groups."""
        self._asked.add(worker.worker_id)
        self._held.update(held)
        of_group: dict[GroupId, list[FileEntry]] = {}
        for entry in files:
            of_group.setdefault(entry.store.group, []).append(entry)
        for group in of_group.keys() & self._offers.keys():
            self._offers[group].add(worker, of_group[group])

    def plan(self, local: StoreCatalogue, version: StoreVersion) -> list[Found] | None:
        """The files to fetch for the cheapest closure of local and remote files together; None
        if there is no closure. A local file with other bytes than at a member does not count.
        """
        offers = self._offers[version.store.group]
        theirs, wrong = offers.found(version.store), {entry.name for entry in offers.contradicted(local)}
        mine = {entry.name: entry for entry in local.entries() if entry.name not in wrong}
        remote = (found.entry for name, found in theirs.items() if name not in mine)
        both = StoreCatalogue([*mine.values(), *remote], local.first_snapshots)
        names = both.cheapest_closure(version.version, mine)
        return None if names is None else [theirs[name] for name in sorted(names) if name not in mine]

    def plans(self, here: Catalogue) -> list[list[Found] | None]:
        """One plan per missing version, in order."""
        return [self.plan(here.store(version.store), version) for version in self.missing]

    def verdict(self, unknown: Sequence[StoreVersion], known: Known, me: Worker) -> Verdict:
        """The verdict on versions without a plan. LOST only if every worker that may hold one of them has answered.

        `known` is the current view: a worker that came back during the survey has not answered.
        """
        names = ", ".join(str(version) for version in unknown)
        asked = f"asked: {', '.join(sorted(self._asked)) or 'nobody'}"
        if not known.connected:
            return PrepareState.UNAVAILABLE, f"{names}: not here, and the manager cannot be asked who is alive; {asked}"
        why = [f"{name} ({self.silent[name]})" for name in sorted(self.silent)]
        why += known.unasked(self._asked | self.silent.keys(), me)
        if why:
            return PrepareState.UNAVAILABLE, (
                f"{names}: not found; {asked}; may have it, and cannot be asked: {', '.join(why)}"
            )
        if known.settling:
            return PrepareState.UNAVAILABLE, (
                f"{names}: not found; {asked}; the manager has begun with an empty journal just now, and other workers "
                "may not have registered with it yet"
            )
        if self._held.intersection(unknown):
            return PrepareState.UNAVAILABLE, f"{names}: held elsewhere, but below the floor; {asked}"
        return PrepareState.LOST, f"{names}: no worker holds it; {asked}"


@dataclass(slots=True)
class Attempt:
    """The progress of one Prepare. `here_before`: names here, undamaged, when the call arrived."""

    versions: tuple[StoreVersion, ...]
    here_before: dict[StoreId, set[str]]
    held_before: bool
    damaged: list[str] = field(default_factory=list)

    @staticmethod
    def begun(versions: Sequence[StoreVersion], here: Catalogue) -> Attempt:
        stores = {version.store: here.store(version.store) for version in versions}
        names = {store: {entry.name for entry in catalogue.entries()} for store, catalogue in stores.items()}
        held = all(here.store(version.store).holds(version.version) for version in versions)
        return Attempt(tuple(versions), names, held)

    def missing(self, here: Catalogue) -> list[StoreVersion]:
        return [version for version in self.versions if not here.store(version.store).holds(version.version)]

    def dropped(self, store: StoreId, names: Sequence[str]) -> None:
        """Records damaged files as dropped."""
        self.damaged += [f"{store}/{name}" for name in names]
        self.here_before[store].difference_update(names)
        self.held_before = False

    def used(self, version: StoreVersion, here: Catalogue) -> frozenset[str]:
        """The closure to load the version from.

        Prefers one already here when the call arrived: a newer snapshot may have been pushed here meanwhile, and the
        call fetched nothing of it.
        """
        closures = list(here.store(version.store).closures(version.version))
        here_before = self.here_before[version.store]
        return next((names for names in closures if names <= here_before), next(iter(closures), frozenset()))

    def fetched(self, here: Catalogue) -> set[tuple[StoreId, str]]:
        """Files of the used closures that came from other workers during the call, no matter who requested them."""
        return {
            (version.store, name)
            for version in self.versions
            for name in self.used(version, here) - self.here_before[version.store]
        }

    def source(self, here: Catalogue, received: Callable[[StoreId, str], bool]) -> Source:
        """The worst source among all files. `received` says whether another worker wrote a file."""
        worst = Source.EMPTY
        for version in self.versions:
            names = self.used(version, here)
            if names - self.here_before[version.store]:
                return Source.REMOTE
            if names:
                from_others = any(received(version.store, name) for name in names)
                worst = max(worst, Source.REPLICA if from_others else Source.LOCAL, key=SOURCES.index)
        return worst
