"""The faults of a simulated cluster, drawn from its seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rhino_core.ids import FileEntry, GroupId, StoreId
from tests.simulation.manager import MANAGER

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster
    from tests.simulation.sidecar import Sidecar

FIRST_S = 1.5
PAUSE_S = (0.1, 1.2)
OUTAGE_S = (0.1, 3.0)
STEP_S = (1.0, 8.0)  # of a wall clock


class FaultInjector:
    """One fault after the other; several may overlap. Disks are lost only as far as the promise of a commit goes."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._kinds: dict[Callable[[], None], int] = {
            self._crash: 4,
            self._restart: 2,
            self._lose_disk: 3,
            self._lose_power: 3,
            self._fill_disk: 2,
            self._slow_disk: 3,
            self._break_stream: 4,
            self._cut: 2,
            self._cut_one_way: 2,
            self._cut_manager: 1,
            self._crash_manager: 1,
            self._damage: 2,
            self._flip_bits: 2,
            self._move: 2,
            self._set_clock: 1,
        }

    def start(self, *, until: float) -> None:
        self._until = until
        self._world.after(FIRST_S, self._next)

    def _next(self) -> None:
        if self._world.now >= self._until:
            return
        kinds = list(self._kinds)
        self._world.random.choices(kinds, weights=list(self._kinds.values()))[0]()
        self._world.after(self._world.random.uniform(*PAUSE_S), self._next)

    def _outage_s(self) -> float:
        return self._world.random.uniform(*OUTAGE_S)

    def _victim(self) -> Sidecar | None:
        up = [sidecar for sidecar in self._cluster.sidecars.values() if sidecar.up]
        return self._world.random.choice(up) if up else None

    def _expendable(self) -> Sidecar | None:
        """A worker whose copies the promise of every commit allows to be lost."""
        victim = self._victim()
        disks = {sidecar.incarnation: sidecar.disk for sidecar in self._cluster.sidecars.values()}
        return victim if victim is not None and self._cluster.checkers.may_lose(victim.incarnation, disks) else None

    # ------------------------------------------------------------ processes and disks

    def _crash(self) -> None:
        """Written files stay, because they are in the operating system's cache."""
        if victim := self._victim():
            self._cluster.crash(victim)

    def _restart(self) -> None:
        if victim := self._victim():
            self._cluster.restart(victim)

    def _lose_disk(self) -> None:
        if victim := self._expendable():
            self._cluster.crash(victim, lose_disk=True)

    def _lose_power(self) -> None:
        """One worker loses power, or all at once if the promised versions survive that."""
        synced = self._cluster.synced
        if synced and self._world.chance(0.3):
            for sidecar in self._cluster.sidecars.values():
                if sidecar.up:
                    self._cluster.crash(sidecar, lose_power=True)
        elif victim := self._victim() if synced else self._expendable():
            self._cluster.crash(victim, lose_power=True)

    def _fill_disk(self) -> None:
        if victim := self._victim():
            disk = victim.disk
            disk.full = True
            self._world.say(f"{victim.name}: disk is full")
            self._world.after(self._outage_s(), lambda: setattr(disk, "full", False))

    def _slow_disk(self) -> None:
        if victim := self._victim():
            disk = victim.disk
            disk.slow_s = self._world.random.uniform(0.1, 2.0)
            self._world.say(f"{victim.name}: disk is slow")
            self._world.after(2 * self._outage_s(), lambda: setattr(disk, "slow_s", 0.0))

    def _set_clock(self) -> None:
        """A person or NTP sets a worker's wall clock."""
        if victim := self._victim():
            victim.wall_offset_s += self._world.random.choice([-1, 1]) * self._world.random.uniform(*STEP_S)
            self._world.say(f"{victim.name}: the wall clock is {victim.wall_offset_s:.1f} s ahead")

    def _crash_manager(self) -> None:
        manager = self._cluster.manager
        if manager.up:
            manager.crash()
            self._world.after(self._outage_s(), lambda: None if manager.up else manager.start())

    # ------------------------------------------------------------ network

    def _break_stream(self) -> None:
        if streams := self._cluster.network.streams():
            self._world.random.choice(streams).close()

    def _cut(self) -> None:
        one, other = self._world.random.sample(sorted(self._cluster.sidecars), 2)
        outage_s = self._outage_s()
        self._cut_for(outage_s, one, other)
        self._cut_for(outage_s, other, one)

    def _cut_one_way(self) -> None:
        one, other = self._world.random.sample([*sorted(self._cluster.sidecars), MANAGER], 2)
        self._cut_for(self._outage_s(), one, other)

    def _cut_manager(self) -> None:
        """A live worker that is taken for lost, or nearly so."""
        name = self._world.random.choice(sorted(self._cluster.sidecars))
        outage_s = self._outage_s() * 2
        self._cut_for(outage_s, name, MANAGER)
        self._cut_for(outage_s, MANAGER, name)

    def _cut_for(self, outage_s: float, from_: str, to: str) -> None:
        self._cluster.network.cut(from_, to)
        self._world.after(outage_s, lambda: self._cluster.network.heal(from_, to))

    # ------------------------------------------------------------ bytes

    def _some_file(self, victim: Sidecar) -> tuple[StoreId, FileEntry] | None:
        """A file of which a newer version than its own has been committed.

        None of a query that is stopped: its floor does not pass the version, and members that all lack it do not ask
        those outside of the group, where the last sound copy may be.
        """
        newest = {version.store: version.version for version in self._cluster.checkers.wanted()}
        candidates = [
            (store, entry)
            for store, files in sorted(victim.disk.files.items())
            for entry in files.values()
            if store in newest
            and store.job != self._cluster.stopped.job
            and (entry.version is None or entry.version.version < newest[store].version)
        ]
        return self._world.random.choice(candidates) if candidates else None

    def _damage(self) -> None:
        """A file turns out to be damaged when it is read."""
        victim = self._expendable()
        if victim is not None and (found := self._some_file(victim)):
            store, entry = found
            self._world.say(f"{victim.name}: {store}/{entry.name} is damaged")
            self._cluster.checkers.damaged(victim.incarnation, store)
            victim.remove(store, (entry.name,), damaged=True)

    def _flip_bits(self) -> None:
        """A file is damaged, and nobody notices until it is read."""
        victim = self._expendable()
        if victim is not None and (found := self._some_file(victim)):
            store, entry = found
            self._world.say(f"{victim.name}: bits flip in {store}/{entry.name}")
            self._cluster.checkers.damaged(victim.incarnation, store)
            victim.disk.rotten.add((store, entry.name))

    # ------------------------------------------------------------ members

    def _move(self) -> None:
        """A handover's changes of membership: a target joins, and becomes the owner or is given up."""
        manager = self._cluster.manager
        if not manager.up or not manager.core.groups:
            return
        group = self._world.random.choice(sorted(manager.core.groups))
        target = self._world.random.choice(sorted(self._cluster.sidecars))
        if manager.change(group, add_member=target):
            self._world.after(self._outage_s(), lambda: self._end_move(group, target))

    def _end_move(self, group: GroupId, target: str) -> None:
        manager = self._cluster.manager
        known = manager.core.groups.get(group)
        if manager.up and known is not None:
            owner = target if self._world.chance(0.5) else known.owner.worker_id
            if manager.change(group, make_owner=owner):
                return
        self._world.after(0.2, lambda: self._end_move(group, target))
