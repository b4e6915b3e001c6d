"""A simulated cluster: sidecars, a manager, the network between them, and what a run of one seed consists of."""

from __future__ import annotations

from unittest.mock import patch

from rhino.ids import JobSettings, Lane
from tests.simulation.checkers import Checkers, Disk, require
from tests.simulation.faults import FaultInjector
from tests.simulation.manager import MANAGER, Manager
from tests.simulation.sidecar import Sidecar
from tests.simulation.streams import Stream, limit_bytes
from tests.simulation.workload import Workload
from tests.simulation.world import Faults, World
from worker_runtime.core import membership

FAULTY_S = 10.0
SETTLING_S = 8.0  # after the faults, until everything must go well
SOUND_S = 2.0  # of work without any failure
DRAINING_S = 6.0  # without work
REPAIR_S, SWEEP_S = 2.0, 2.5  # scaled down like everything else


class Cluster:
    def __init__(self, seed: int, *, workers: int = 3, factor: int = 1) -> None:
        self.factor = factor
        self.settings = JobSettings(factor)
        self.world = World(seed)
        self.limit_bytes = limit_bytes(workers)
        self.checkers = Checkers(self.settings.copies, self.limit_bytes)
        self._streams: dict[tuple[str, str, Lane], Stream] = {}
        self._cut: set[frozenset[str]] = set()
        self.sidecars = {name: Sidecar(self, name) for name in "abcdef"[:workers]}
        self.manager = Manager(self, self.settings)
        self.workload = Workload(self)
        self.faults = FaultInjector(self)

    # ------------------------------------------------------------ network

    def connected(self, one: str, other: str) -> bool:
        return frozenset((one, other)) not in self._cut

    def reach(self, caller: str, name: str) -> Sidecar | None:
        """For a call of one sidecar to another; None when it fails."""
        other = self.sidecars[name]
        if not other.up or not self.connected(caller, name) or self.world.chance(self.world.faults.break_link):
            return None
        return other

    def cut(self, one: str, other: str) -> None:
        """Nothing passes between the two any more, in either direction."""
        self.world.say(f"{one} and {other} are cut off from each other")
        self._cut.add(frozenset((one, other)))
        for sender, receiver, _ in list(self._streams):
            if {sender, receiver} == {one, other}:
                self._close(sender, receiver)

    def heal(self, one: str, other: str) -> None:
        if not self.connected(one, other):
            self._cut.discard(frozenset((one, other)))
            self.world.say(f"{one} and {other} are connected again")
            if other == MANAGER and self.sidecars[one].up:
                self.sidecars[one].register()

    def heal_all(self) -> None:
        for one, other in [sorted(pair, key=lambda name: name == MANAGER) for pair in sorted(self._cut, key=sorted)]:
            self.heal(one, other)

    # ------------------------------------------------------------ streams

    def stream(self, sender: str, receiver: str, lane: Lane) -> Stream | None:
        found = self._streams.get((sender, receiver, lane))
        return found if found is not None and found.open else None

    def streams(self) -> list[Stream]:
        """Open ones, in a stable order."""
        return [stream for stream in self._streams.values() if stream.open]

    def open_stream(self, sender: str, receiver: str, lane: Lane) -> bool:
        other = self.sidecars[receiver]
        if not other.up or not self.connected(sender, receiver):
            return False
        self._streams[sender, receiver, lane] = Stream(self.sidecars[sender], other, lane)
        return True

    def break_streams(self, name: str) -> None:
        """Everything to and from a worker that has just died."""
        for sender, receiver, _ in list(self._streams):
            if name in (sender, receiver):
                self._close(sender, receiver)

    def _close(self, sender: str, receiver: str) -> None:
        for lane in Lane:
            if stream := self.stream(sender, receiver, lane):
                stream.close()

    # ------------------------------------------------------------ disks and lives

    def disks(self) -> dict[str, Disk]:
        return {name: sidecar.disk for name, sidecar in self.sidecars.items()}

    def crash(self, victim: Sidecar, *, lose_disk: bool = False) -> None:
        """Ends the process; the manager notices or does not, and the process comes back after a while."""
        process = victim.process
        victim.crash(lose_disk=lose_disk)
        if lose_disk:
            self.checkers.durable(self.disks().values())
        self.world.after(self.world.delay(), lambda: self.manager.stream_broken(victim, process))
        self.world.after(self.world.random.uniform(0.1, 3.0), lambda: victim.start() if not victim.up else None)

    # ------------------------------------------------------------ run

    def run(self) -> None:
        """Faults and work, then peace and work, then peace; raises Violation. Simulated seconds."""
        with patch.object(membership, "REPAIR_S", REPAIR_S), patch.object(membership, "SWEEP_S", SWEEP_S):
            self._run()

    def _run(self) -> None:
        self.manager.start()
        for sidecar in self.sidecars.values():
            sidecar.start()
        self.workload.start()
        self.faults.start(until=FAULTY_S)
        self.world.run_until(FAULTY_S)
        self._end_faults()
        self.world.run_until(FAULTY_S + SETTLING_S)
        self.workload.nothing_may_fail()
        self.world.run_until(FAULTY_S + SETTLING_S + SOUND_S)
        self.workload.stop()
        self.world.run_until(FAULTY_S + SETTLING_S + SOUND_S + DRAINING_S)
        self._check_end()

    def _end_faults(self) -> None:
        self.world.say("faults end")
        self.world.faults = Faults.none()
        self.heal_all()
        for sidecar in self.sidecars.values():
            if not sidecar.up:
                sidecar.start()
        if not self.manager.up:
            self.manager.start()

    def _check_end(self) -> None:
        disks = self.disks()
        self.checkers.durable(disks.values())
        self.checkers.converged(self.manager.core.groups.values(), disks, self.factor)
        self.workload.check_progress()
        for name, sidecar in self.sidecars.items():
            require(not sidecar.commits, f"{name} has commits that were never answered: {sorted(sidecar.commits)}")
            for store in self.workload.stores:
                owed = sidecar.machine.busy_names(store.id, sidecar.disk.floors.get(store.id))
                require(not owed, f"{name} has never got rid of {sorted(owed)} of {store.id}")
