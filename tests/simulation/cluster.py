"""A simulated cluster: sidecars, a manager, the network between them, and what a run of one seed consists of."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from unittest.mock import patch

from replication_manager.protocol.groups import logged
from replication_manager.protocol.placement import impaired, lagging
from rhino_core.ids import Durability, StoreId, StoreVersion
from tests.simulation import drain_checkers
from tests.simulation.checkers import Checkers
from tests.simulation.disk import Disk, opens
from tests.simulation.drains import Drains
from tests.simulation.executors import Executors, Steady
from tests.simulation.facts import require
from tests.simulation.faults import FaultInjector
from tests.simulation.journals import Journals
from tests.simulation.manager import Manager
from tests.simulation.network import Network
from tests.simulation.old_versions import OldVersions
from tests.simulation.peace import Peace
from tests.simulation.short_lived import ShortLived
from tests.simulation.sidecar import Sidecar
from tests.simulation.streams import limit_bytes
from tests.simulation.variety import Variety, plain
from tests.simulation.workload import Workload
from tests.simulation.world import World
from worker_runtime.protocol.chain import membership, view
from worker_runtime.protocol.copies import excess
from worker_runtime.protocol.versions import closure

FAULTY_S = 10.0
STOPPED_S = 4.0  # when the query ends that is not started again
STOPPED = tuple(StoreId("stopped", 0, partition, "default") for partition in (7, 8))
CHECK_S = 1.0  # between looks at all disks
SETTLING_S = 8.0  # after the faults, until everything must go well
SOUND_S = 2.0  # of work without any failure
DRAINING_S = (
    11.5  # without work: a late snapshot (3.1 s), its commit that times out (5 s), retention's next sweep (3 s)
)


class Cluster:
    def __init__(self, seed: int, *, workers: int = 3, factor: int = 1, variety: Variety | None = None) -> None:
        self.factor = factor
        self.variety = plain(factor) if variety is None else variety
        self.settings = self.variety.settings
        self.world = World(seed)
        self.limit_bytes = limit_bytes(workers)
        self.checkers = Checkers(self.limit_bytes)
        self.network = Network(self)
        self.sidecars = {name: Sidecar(self, name) for name in "abcdef"[:workers]}
        self.manager = Manager(self, self.settings)
        self.executors = Executors(seed) if self.variety.few_executors else None
        self.steady = Steady()
        self.workload = Workload(self, self.variety.stores)
        self.short_lived = ShortLived(self) if self.variety.forgotten_query else None
        self.stopped = Workload(self, STOPPED if self.variety.stopped_query else ())
        self.faults = FaultInjector(self)
        self.drains = Drains(self)
        self.old_versions = OldVersions(self, self.workload)
        self.peace = Peace(self)
        self.journals = Journals(self) if self.variety.journal_replaced else None

    @property
    def synced(self) -> bool:
        """Whether stored files survive a loss of power."""
        return self.settings.durability is Durability.SYNCED

    # ------------------------------------------------------------ disks and incarnations

    def disks(self) -> dict[str, Disk]:
        return {name: sidecar.disk for name, sidecar in self.sidecars.items()}

    def opens_on(self, version: StoreVersion, disks: Iterable[Disk]) -> bool:
        """From the files of these disks together, without those that are damaged."""
        files = {n: e for disk in disks for n, e in disk.sound_files(version.store).items()}
        return opens(files, version.version)

    def crash(self, victim: Sidecar, *, lose_disk: bool = False, lose_power: bool = False) -> None:
        """Ends the process; the manager notices or does not, and the process comes back after a while."""
        process = victim.process
        victim.crash(lose_disk=lose_disk, lose_power=lose_power)
        if lose_disk or lose_power:
            self.checkers.durable(self.disks().values())
        self.world.after(self.world.delay(), lambda: self.manager.stream_broken(victim, process))
        self.world.after(self.world.random.uniform(0.1, 3.0), lambda: victim.start() if not victim.up else None)

    def restart(self, victim: Sidecar) -> None:
        """Ends the process in an orderly way; it comes back after a while."""
        self.manager.leave(victim)
        victim.crash()
        self.world.after(self.world.random.uniform(0.1, 2.0), lambda: victim.start() if not victim.up else None)

    def spare(self, store: StoreId) -> None:
        """Bits have not flipped after all: what a commit promises does not cover the loss of all its copies."""
        self.world.say(f"bits of {store} are spared")
        for sidecar in self.sidecars.values():
            sidecar.disk.rotten = {(rotten, name) for rotten, name in sidecar.disk.rotten if rotten != store}
            self.checkers.sound(sidecar.incarnation, store)

    # ------------------------------------------------------------ run

    def run(self) -> None:
        """Faults and work, then peace and work, then peace; raises Violation.

        In simulated seconds.
        """
        with self.scaled_periods():
            self._run()

    @contextlib.contextmanager
    def scaled_periods(self) -> Iterator[None]:
        """The cores' own periods are scaled down like everything else."""
        scaled = [
            (membership, "REPAIR_S", 1.0),
            (membership, "SWEEP_S", 2.5),
            (closure, "ZIP_AFTER_FILES_S", 1.0),
            (impaired, "MUTE_S", 0.6),
            (impaired, "PROOF_S", 0.4),
            (impaired, "CALM_S", 1.0),
            (lagging, "PROOF_S", 0.3),
            (lagging, "PATIENCE_S", 1.0),
            (lagging, "COOLDOWN_S", 2.0),
            (lagging, "COOLDOWN_S_MAX", 3.0),
            (view, "REPORT_S", 0.1),
            (logged, "GUEST_STREAK", 4),
            (excess, "AGAIN_S", 0.5),
            (excess, "RETRY_S", 0.3),
        ]
        with contextlib.ExitStack() as patches:
            for module, name, value in scaled:
                patches.enter_context(patch.object(module, name, value))
            yield

    def start(self) -> None:
        self.manager.start()
        for sidecar in self.sidecars.values():
            sidecar.start()
        self.workload.start()
        self.stopped.start()

    def _run(self) -> None:
        self.start()
        self.faults.start(until=FAULTY_S)
        self.drains.start(until=FAULTY_S)
        self.old_versions.start(until=FAULTY_S)
        if self.short_lived is not None:
            self.short_lived.start(until=FAULTY_S)
        if self.journals is not None:
            self.journals.start()
        self._watch_copies()
        self.world.at(STOPPED_S, self.stopped.stop)
        self.world.run_until(FAULTY_S)
        self._end_faults()
        self.world.run_until(FAULTY_S + SETTLING_S)
        self.workload.nothing_may_fail()
        self.world.run_until(FAULTY_S + SETTLING_S + SOUND_S)
        self.workload.stop()
        self.world.run_until(FAULTY_S + SETTLING_S + SOUND_S + DRAINING_S)
        self._check_end()

    def _watch_copies(self) -> None:
        self.checkers.durable(self.disks().values())
        self.world.after(CHECK_S, self._watch_copies)

    def _end_faults(self) -> None:
        self.world.say("faults end")
        self.peace.start(last_batches_s=FAULTY_S + SETTLING_S + SOUND_S)
        if self.executors is not None:
            self.executors.stay(self.manager.core.groups.values(), self.sidecars)
        self.network.heal_all()
        for sidecar in self.sidecars.values():
            sidecar.disk.full = False
            sidecar.disk.slow_s = 0.0
            if sidecar.up and sidecar.disk.failing:
                sidecar.crash()  # an operator restarts it
            if not sidecar.up:
                sidecar.start()
            sidecar.check_bytes()
        for stream in self.network.streams():
            stream.close_if_behind()
        if not self.manager.up:
            self.manager.start()

    def _check_end(self) -> None:
        disks = self.disks()
        self.checkers.durable(disks.values())
        groups = self.manager.core.groups.values()
        self.checkers.converged(groups, disks, self.factor, self.manager.may_stay())
        self.workload.check_progress()
        self.steady.owners(list(groups), self.manager.draining)
        if self.short_lived is not None:
            self.checkers.nothing_left(self.short_lived.job, disks)
        for name, sidecar in self.sidecars.items():
            require(not sidecar.commits, f"{name} has commits that were never answered: {sorted(sidecar.commits)}")
            for store in self.workload.stores:
                self.checkers.nothing_in_excess(name, sidecar.disk, store.id)
                owed = sidecar.machine.view.names_in_use(store.id, sidecar.disk.floors.get(store.id))
                require(not owed, f"{name} has never got rid of {sorted(owed)} of {store.id}")
        for group in groups:
            self.checkers.no_copies_outside(group, disks)
            drain_checkers.emptied(group, self.manager.draining)
