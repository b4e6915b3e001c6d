"""What goes wrong in a simulated cluster, from its seed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rhino.ids import FileEntry, StoreId
from tests.simulation.manager import MANAGER

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster
    from tests.simulation.sidecar import Sidecar

FIRST_S = 1.5
PAUSE_S = (0.1, 1.2)
OUTAGE_S = (0.1, 3.0)


class FaultInjector:
    """One fault after the other; several may overlap. Disks are lost only as far as the promise of a commit goes."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._kinds = {
            self._crash: 4,
            self._lose_disk: 3,
            self._break_stream: 4,
            self._cut: 2,
            self._cut_manager: 1,
            self._crash_manager: 1,
            self._damage: 2,
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

    # ------------------------------------------------------------ kinds

    def _crash(self) -> None:
        if victim := self._victim():
            self._cluster.crash(victim)

    def _lose_disk(self) -> None:
        victim = self._victim()
        if victim is not None and self._may_lose(victim):
            self._cluster.crash(victim, lose_disk=True)

    def _may_lose(self, victim: Sidecar) -> bool:
        disks = {sidecar.life: sidecar.disk for sidecar in self._cluster.sidecars.values()}
        return self._cluster.checkers.may_lose(victim.life, disks)

    def _break_stream(self) -> None:
        if streams := self._cluster.streams():
            self._world.random.choice(streams).close()

    def _cut(self) -> None:
        one, other = self._world.random.sample(sorted(self._cluster.sidecars), 2)
        self._cluster.cut(one, other)
        self._world.after(self._outage_s(), lambda: self._cluster.heal(one, other))

    def _cut_manager(self) -> None:
        """A worker that lives on and is taken for lost, or nearly so."""
        name = self._world.random.choice(sorted(self._cluster.sidecars))
        self._cluster.cut(name, MANAGER)
        self._world.after(self._outage_s() * 2, lambda: self._cluster.heal(name, MANAGER))

    def _crash_manager(self) -> None:
        manager = self._cluster.manager
        if manager.up:
            manager.crash()
            self._world.after(self._outage_s(), lambda: None if manager.up else manager.start())

    def _damage(self) -> None:
        """A changelog or zip turns out to be damaged when it is read."""
        victim = self._victim()
        if victim is None or not self._may_lose(victim):
            return
        committed = {version.store: version.version for version in self._cluster.checkers.wanted()}
        candidates: list[tuple[StoreId, FileEntry]] = [
            (store, entry)
            for store, files in sorted(victim.disk.files.items())
            for entry in files.values()
            if entry.version is not None and store in committed and entry.version.version < committed[store].version
        ]
        if candidates:
            store, entry = self._world.random.choice(candidates)
            self._world.say(f"{victim.name}: {store}/{entry.name} is damaged")
            self._cluster.checkers.damaged(victim.life, store)
            victim.remove(store, (entry.name,), damaged=True)
