"""One failure of each class, and the time within which commits go on.

First those that are none to those who look from elsewhere, and that do not pass: a full or failing disk, a link that is
cut in one direction, a process that hangs, a restart, an executor whose sidecar is gone. Then losses of processes,
disks, power, files and journals. Tasks run where they are meant to, and nowhere else by luck.

For each kind the time is stated within which every store goes on: what noticing it takes, and two seconds. A second
query has been stopped before: its groups are there, and nobody sends anything for them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from unittest.mock import patch

from replication_manager.protocol import events as manager_ev
from replication_manager.protocol.groups import logged
from rhino_core.ids import GroupId, ReplicaGroup, StoreId, StoreVersion, Version
from tests.simulation import manager, workload
from tests.simulation.cluster import DRAINING_S, SETTLING_S, SOUND_S, Cluster
from tests.simulation.facts import Violation, require
from tests.simulation.liveness import Progress
from tests.simulation.manager import MANAGER
from tests.simulation.manager import SUSPECT_LEASE_S as SUSPECT_S
from tests.simulation.network import KEEPALIVE_S
from tests.simulation.sidecar import COMMIT_S, Sidecar
from tests.simulation.workload import ATTEMPT_S, Store, Workload
from tests.simulation.world import Faults
from worker_runtime.protocol.chain import slow_commits

STOPPED_S, BEGIN_S = 3.0, (5.0, 7.0)
LASTING_S = 12.0
GO_ON_S = 2.0 + 0.7  # once it has been noticed, and a batch of the usual length
LAG_CAP_S, PATIENCE_S = 3.0, 1.0  # the second as in cluster.py
HANG_CAP_S = 1.0  # shorter than an attempt, as usual: the files of each one are owed anew
BROKEN_S = KEEPALIVE_S  # a data file that was under way waits for its connection to break
BEAT_S, LEASE_S, MUTE_S, LAG_S = 0.5, 2.0, 2.0, LAG_CAP_S + COMMIT_S + 1.0  # what noticing takes
DOWN_S = (0.5, 1.5)  # a restart takes so long
AWAY_S = 1.2  # after which an executor without a sidecar says so to the driver


class MeantWorkload(Workload):
    """Tasks run on the owner, and on the next member that is up when the owner's process is not: as the driver's map
    has it. `only`: all on this worker, which alone has executors. `patient`: the owner's executors live, and wait for
    their sidecar. `without_sidecar`: workers with executors that live without one, and when the driver knows; until
    then tasks are sent there, and fail."""

    def __init__(self, cluster: GreyCluster) -> None:
        super().__init__(cluster, cluster.variety.stores)
        self.progress = Progress()
        self.only = ""
        self.patient = False
        self.without_sidecar: dict[str, float] = {}

    def _place(self, store: Store) -> Sidecar | None:
        group = self._cluster.manager.core.groups.get(store.id.group)
        if self.only:
            names = [self.only]
        elif group is not None and self.patient:
            names = [group.owner.worker_id]
        elif group is None:
            names = sorted(self._cluster.sidecars)
        else:
            names = [m.worker.worker_id for m in group.members if m.whole] or [group.owner.worker_id]
        if group is not None and self._world.now < self.without_sidecar.get(group.owner.worker_id, 0.0):
            return None
        return next((self._cluster.sidecars[name] for name in names if self._cluster.sidecars[name].up), None)

    def _write_as_zombie(self, store: Store, attempt: int) -> None:
        """Not here."""

    def _log(self, store: Store, version: StoreVersion, writer: Sidecar) -> None:
        self.progress.logged(store.id, self._world.now)
        super()._log(store, version, writer)


class GreyCluster(Cluster):
    def __init__(self, seed: int, *, factor: int) -> None:
        super().__init__(seed, workers=factor + 2, factor=factor)
        self.world.faults = Faults.none()
        self.workload: MeantWorkload = MeantWorkload(self)
        self._random = Random(f"grey {seed}")
        self.stopped = Workload(self, [StoreId("stopped", 0, partition, "default") for partition in range(factor + 2)])
        self.lag_cap_s = 0.0

    @contextlib.contextmanager
    def scaled_periods(self) -> Iterator[None]:
        """No member is replaced for lagging unless `lag_cap_s` is set: commits have to go on without that. No late
        snapshots: these name files that others may have collected, and waiting for them is another matter. A guest
        stays one: as the owner it would have another failure, that of a link in the chain."""
        changed = [
            (slow_commits, "GIVE_UP_S", 1.0),
            (manager, "LAG_CAP_S", self.lag_cap_s),
            (workload, "LATE_SNAPSHOT", 0.0),
            (logged, "GUEST_STREAK", 10**6),
        ]
        with super().scaled_periods(), contextlib.ExitStack() as patches:
            for module, name, value in changed:
                patches.enter_context(patch.object(module, name, value))
            yield

    def play(self, kind: Kind) -> None:
        """Work, the failure for as long as it lasts, and then everything is well again; raises Violation."""
        self.lag_cap_s = kind.lag_cap_s
        with self.scaled_periods():
            self.start()
            self.workload.patient = kind.restart
            self.world.run_until(STOPPED_S)
            self.copied = self.manager.journal.copy()
            self.stopped.stop()
            if kind.by_a_guest:
                self.workload.only = self.outsider()
            self.began = began = self._random.uniform(*BEGIN_S)
            self.world.run_until(began)
            before = dict(self.manager.core.groups)
            kind.begin(self)
            self.world.run_until(began + LASTING_S)
            self._check(kind, before, began)
            self._end_faults()
            self.workload.only = ""
            self.world.run_until(began + LASTING_S + SETTLING_S)
            self.workload.nothing_may_fail()
            self.world.run_until(began + LASTING_S + SETTLING_S + SOUND_S)
            self.workload.stop()
            # as long again: what a member lacks since then is sent meanwhile, file by file
            self.world.run_until(began + 2 * LASTING_S + SETTLING_S + SOUND_S + DRAINING_S)
            self._check_end()

    def _check(self, kind: Kind, before: dict[GroupId, ReplicaGroup], began: float) -> None:
        stores = [store.id for store in self.workload.stores]
        self.workload.progress.check(stores, began, self.world.now, kind.bound_s)
        running = {store.group for store in stores}  # a returned worker may have unlogged versions of the stopped query
        issued = [group for group in self.checkers.issued() if group.group in running]
        for group in issued if not kind.moves else ():
            was = before[group.group]
            now, then = ({m.worker.worker_id for m in g.members} for g in (group, was))
            require(now == then or group.epoch < was.epoch, f"{group.group}: a copy was moved, from {then} to {now}")
        for group in issued if kind.owner_stays else ():
            was = before[group.group]
            stays = group.epoch < was.epoch or group.owner.worker_id == was.owner.worker_id
            require(stays, f"{group.group}: another worker than {was.owner.worker_id} owns it")

    # ------------------------------------------------------------ who

    def group(self) -> ReplicaGroup:
        return self.manager.core.groups[self.workload.stores[0].id.group]

    def outsider(self) -> str:
        members = {m.worker.worker_id for m in self.group().members}
        return next(name for name in sorted(self.sidecars) if name not in members)

    def cut(self, from_: str, *to: str) -> None:
        for name in to:
            self.network.cut(from_, name)

    def others(self, name: str) -> list[str]:
        return [other for other in sorted(self.sidecars) if other != name]

    # ------------------------------------------------------------ what

    def fill_owner(self) -> None:
        self.sidecars[self.group().owner.worker_id].disk.full = True

    def fill_secondary(self) -> None:
        self.sidecars[self.group().members[1].worker.worker_id].disk.full = True

    def fail_owner(self) -> None:
        self.sidecars[self.group().owner.worker_id].disk.failing = True

    def fail_secondary(self) -> None:
        self.sidecars[self.group().members[1].worker.worker_id].disk.failing = True

    def lose_owners_sidecar(self) -> None:
        """For good; its executors live."""
        name = self.group().owner.worker_id
        victim, process = self.sidecars[name], self.sidecars[name].process
        victim.crash()
        self.world.after(self.world.delay(), lambda: self.manager.stream_broken(victim, process))
        self.workload.without_sidecar[name] = self.world.now + AWAY_S

    def cut_first_link(self) -> None:
        self.cut(self.group().owner.worker_id, self.group().members[1].worker.worker_id)

    def cut_guest_off_the_owner(self) -> None:
        self.cut(self.workload.only, self.group().owner.worker_id)

    def mute_owner(self) -> None:
        """The manager hears it all the same."""
        owner = self.group().owner.worker_id
        self.cut(owner, *self.others(owner))

    def hang(self) -> None:
        """Connections stay open, and nothing is answered."""
        name = self.group().members[1].worker.worker_id
        self.cut(name, *self.others(name), MANAGER)
        for other in (*self.others(name), MANAGER):
            self.cut(other, name)

    def deafen_secondary(self) -> None:
        """Nothing that other workers send arrives there. All the rest works, so the manager finds nothing wrong."""
        name = self.group().members[1].worker.worker_id
        for other in self.others(name):
            self.cut(other, name)

    def hang_for_others(self) -> None:
        """The manager alone goes on hearing it."""
        name = self.group().members[1].worker.worker_id
        for other in self.others(name):
            self.cut(other, name)
            self.cut(name, other)

    def hang_while_another_joins(self) -> None:
        """The target of a handover, which is given up in the end."""
        self.hang_for_others()
        for name in {store.id.group for store in self.workload.stores}:
            group = self.manager.core.groups[name]
            outsider = next(name for name in sorted(self.sidecars) if group.member(name) is None)
            self.manager.change(name, add_member=outsider)
            self.world.after(LASTING_S, lambda name=name: self._give_up(name))  # type: ignore[misc]

    def _give_up(self, name: GroupId) -> None:
        self.manager.change(name, make_owner=self.manager.core.groups[name].owner.worker_id)

    def hang_while_an_unknown_one_joins(self) -> None:
        """The manager has forgotten why there is another member."""
        self.hang_while_another_joins()
        self.manager.crash()
        self.world.after(0.5, self.manager.start)

    def hang_with_nobody_else(self) -> None:
        self.sidecars[self.outsider()].crash()
        self.hang_for_others()

    def restart_owner(self) -> None:
        self._restart(self.group().owner.worker_id)

    def restart_secondary(self) -> None:
        self._restart(self.group().members[1].worker.worker_id)

    def _restart(self, name: str) -> None:
        victim = self.sidecars[name]
        self.manager._handle(manager_ev.Leaving(name, f"{name}#{victim.process}"))
        victim.crash()
        self.world.after(self._random.uniform(*DOWN_S), victim.start)

    # ------------------------------------------------------------ what everybody sees

    def kill_owner(self) -> None:
        """For good."""
        self._kill(self.group().owner.worker_id)

    def kill_secondary(self) -> None:
        self._kill(self.group().members[1].worker.worker_id)

    def lose_owners_disk(self) -> None:
        """It comes back with an empty one."""
        name = self.group().owner.worker_id
        self._kill(name, lose_disk=True)
        self.world.after(self._random.uniform(*DOWN_S), self.sidecars[name].start)

    def lose_secondarys_power(self) -> None:
        name = self.group().members[1].worker.worker_id
        self._kill(name, lose_power=True)
        self.world.after(self._random.uniform(*DOWN_S), self.sidecars[name].start)

    def _kill(self, name: str, **losses: bool) -> None:
        victim, process = self.sidecars[name], self.sidecars[name].process
        victim.crash(**losses)
        self.world.after(self.world.delay(), lambda: self.manager.stream_broken(victim, process))

    def break_all_streams(self) -> None:
        for stream in self.network.streams():
            stream.close()

    def damage_secondarys_file(self) -> None:
        """The newest one, and it is read."""
        store, victim = self.workload.stores[0].id, self.sidecars[self.group().members[1].worker.worker_id]
        newest = max(victim.disk.files[store].values(), key=lambda file: file.version or Version(0, ""))
        self.checkers.damaged(victim.incarnation, store)
        victim.remove(store, (newest.name,), damaged=True)

    def move_the_owner(self) -> None:
        """To an outsider, as a handover does it."""
        group, target = self.group().group, self.outsider()
        self.manager.change(group, add_member=target)
        self.world.after(2.0, lambda: self._give(group, target))

    def _give(self, group: GroupId, target: str) -> None:
        self.manager.change(group, make_owner=target)

    def crash_manager(self) -> None:
        self.manager.crash()
        self.world.after(self._random.uniform(*DOWN_S), self.manager.start)

    def lose_journal(self) -> None:
        self.crash_manager()
        self.manager.replace_journal(None)

    def restore_an_older_journal(self) -> None:
        self.crash_manager()
        self.manager.replace_journal(self.copied)


@dataclass(frozen=True)
class Kind:
    """`factors`: for which it is played; with fewer workers other copies have to be made first. No copy is moved but
    for a lost member, for one that lags where `lag_cap_s` is set, and to a guest."""

    begin: Callable[[GreyCluster], None]
    bound_s: float
    factors: tuple[int, ...] = (1, 2)
    restart: bool = False
    owner_stays: bool = False
    by_a_guest: bool = False
    lag_cap_s: float = 0.0

    lost: bool = False  # once its lease has ended

    @property
    def moves(self) -> bool:
        return self.lost or self.by_a_guest or self.lag_cap_s > 0

    @property
    def name(self) -> str:
        return self.begin.__name__


KINDS = [
    Kind(GreyCluster.fill_owner, BEAT_S + GO_ON_S),
    Kind(GreyCluster.fill_secondary, BEAT_S + GO_ON_S),
    Kind(GreyCluster.fail_owner, BEAT_S + GO_ON_S),
    Kind(GreyCluster.fail_secondary, BEAT_S + GO_ON_S),
    # An attempt that is under way is lost.
    Kind(GreyCluster.lose_owners_sidecar, AWAY_S + ATTEMPT_S + GO_ON_S, lost=True),
    Kind(GreyCluster.cut_first_link, BROKEN_S + GO_ON_S, factors=(2,)),
    Kind(GreyCluster.cut_first_link, LAG_S + GO_ON_S, factors=(1,), lag_cap_s=HANG_CAP_S),
    Kind(GreyCluster.cut_guest_off_the_owner, BROKEN_S + GO_ON_S, by_a_guest=True),
    Kind(GreyCluster.mute_owner, MUTE_S + GO_ON_S, factors=(2,)),
    # With one receiver only the lag cap ends it, and the receiver's replacement gets nothing from the owner either.
    Kind(GreyCluster.mute_owner, LAG_S + PATIENCE_S + GO_ON_S, factors=(1,), lag_cap_s=HANG_CAP_S),
    Kind(GreyCluster.hang, BROKEN_S + GO_ON_S, factors=(2,), lost=True),
    Kind(GreyCluster.hang, LEASE_S + GO_ON_S, factors=(1,), lost=True),
    Kind(
        GreyCluster.restart_owner, ATTEMPT_S + GO_ON_S, restart=True, owner_stays=True
    ),  # the attempt under way is lost
    Kind(GreyCluster.restart_secondary, GO_ON_S, restart=True, owner_stays=True),
    Kind(GreyCluster.deafen_secondary, BROKEN_S + GO_ON_S, factors=(2,), owner_stays=True),
    Kind(
        GreyCluster.deafen_secondary,
        LAG_S + PATIENCE_S + GO_ON_S,
        factors=(1,),
        lag_cap_s=HANG_CAP_S,
        owner_stays=True,
    ),
    Kind(GreyCluster.kill_owner, ATTEMPT_S + GO_ON_S, lost=True),
    Kind(GreyCluster.kill_secondary, SUSPECT_S + GO_ON_S, lost=True),
    Kind(GreyCluster.lose_owners_disk, ATTEMPT_S + GO_ON_S, lost=True),
    Kind(GreyCluster.lose_secondarys_power, SUSPECT_S + GO_ON_S, lost=True),
    Kind(GreyCluster.break_all_streams, GO_ON_S, owner_stays=True),
    Kind(GreyCluster.damage_secondarys_file, GO_ON_S, owner_stays=True),
    Kind(GreyCluster.move_the_owner, GO_ON_S, lost=True),
    Kind(GreyCluster.crash_manager, GO_ON_S, owner_stays=True),
    Kind(GreyCluster.lose_journal, LEASE_S + GO_ON_S, lost=True),
    Kind(GreyCluster.restore_an_older_journal, GO_ON_S, lost=True),
    *(
        Kind(begin, LAG_S + PATIENCE_S + GO_ON_S, factors=(1,), lag_cap_s=HANG_CAP_S, owner_stays=True)
        for begin in (
            GreyCluster.hang_for_others,
            GreyCluster.hang_while_another_joins,
            GreyCluster.hang_while_an_unknown_one_joins,
            GreyCluster.hang_with_nobody_else,
        )
    ),
]


def violation(kind: Kind, seed: int, factor: int) -> str:
    """The violation, with the end of the trace. Empty if there is none."""
    cluster = GreyCluster(seed, factor=factor)
    try:
        cluster.play(kind)
    except Violation as error:
        trace = "\n".join(cluster.world.trace[-60:])
        return f"{trace}\n{kind.name}, seed {seed}, factor {factor}: {error}"
    return ""
