"""A worker outside of all groups that pushes forged files: names that are in use, with other bytes.

It knows more than an attacker can: every file of every disk, and the epoch of every group. The checkers find what it
plants: (store, name) has one checksum for ever.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rhino_core.ids import FileEntry
from worker_runtime.protocol import events as ev

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster
    from tests.simulation.sidecar import Sidecar

FORGER = "forger"
PAUSE_S = 0.02


class Forger:
    """Its streams never break, and it acknowledges in the name of members."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._world = cluster, cluster.world
        self.tried = 0

    def start(self, until: float) -> None:
        if self._world.now >= until:
            return
        victims = [sidecar for sidecar in self._cluster.sidecars.values() if sidecar.up]
        files = [
            entry for disk in self._cluster.disks().values() for of in disk.files.values() for entry in of.values()
        ]
        if victims and files:
            self._attack(self._world.random.choice(victims), self._world.random.choice(files))
        self._world.after(PAUSE_S, lambda: self.start(until))

    def _attack(self, victim: Sidecar, genuine: FileEntry) -> None:
        store = genuine.store
        group = self._cluster.manager.core.groups.get(store.group)
        if group is None:
            return
        self.tried += 1
        if genuine.name not in victim.disk.files[store]:  # else a conflict of names would refuse it
            epoch = group.epoch
            if self._world.chance(0.2):
                epoch = epoch._replace(counter=epoch.counter + 1)
            forged = replace(genuine, crc32c=genuine.crc32c + 1, written_by=group.owner.worker_id)
            _Stream(victim, forged).send(ev.BeginReceived(FORGER, next(self._world.numbers), forged, epoch, ()))
        for member in group.members:
            ack = ev.AckReceived(FORGER, store, genuine.name, group.epoch, member.worker, holds=True)
            victim.handle(ack)


class _Stream:
    """One forged file. All its bytes come at once when they are wanted."""

    def __init__(self, victim: Sidecar, forged: FileEntry) -> None:
        self._victim = victim
        self._forged = forged

    def send(self, begin: ev.BeginReceived) -> None:
        self._victim.begin(begin, self)

    def accept(self, transfer: int, entry: FileEntry) -> None:
        self._victim.store(self._forged)
        self._victim.handle(ev.TransferStored(transfer))
