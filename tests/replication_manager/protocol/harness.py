"""A replication machine with a clock, driven by events."""

from __future__ import annotations

from collections.abc import Collection

from replication_manager.protocol import events as ev
from replication_manager.protocol.machine import ReplicationMachine, Restored
from replication_manager.protocol.workers.membership import LeaseTimes
from replication_manager.protocol.workers.worker_record import Report, WorkerState
from rhino_core.ids import NO_EPOCH, Epoch, GroupId, JobSettings, ReplicaGroup, StoreId, StoreVersion, Version, Worker

STORE = StoreId("job", 0, 3, "default")
GROUP = STORE.group
LEASE_TIMES = LeaseTimes(lease_s=5.0, suspect_lease_s=1.0)


def worker(name: str, incarnation: int = 1, zone: str = "", rack: str = "") -> Worker:
    return Worker(name, f"{name}/{incarnation}", f"host-{name}", f"{name}:1", zone, rack)


class Manager:
    """A machine with a clock, and what it has journalled."""

    def __init__(
        self,
        names: str = "",
        generation: int = 1,
        *,
        fresh: bool = False,
        process_number: int = 0,
    ) -> None:
        self.now = 0.0
        self.machine = ReplicationMachine(
            Restored(generation, fresh=fresh), LEASE_TIMES, now=0.0, process_number=process_number
        )
        self.generation = generation
        self.workers: dict[str, Worker] = {}
        self.groups: dict[GroupId, ReplicaGroup] = {}
        self.floors: dict[StoreId, StoreVersion] = {}
        self.forgotten: dict[str, Epoch] = {}
        self.draining: set[str] = set()
        for name in names:
            self.register(name)

    def do(self, event: ev.Event) -> list[ev.Effect]:
        effects = self.machine.handle(event, now=self.now)
        self.machine.check_invariants()
        for effect in effects:
            self._journal(effect)
        return effects

    def _journal(self, effect: ev.Effect) -> None:
        match effect:
            case ev.PersistWorker(found):
                self.workers[found.worker_id] = found
            case ev.PersistGeneration(generation):
                self.generation = generation
            case ev.PersistGroup(group):
                self.groups[group.group] = group
            case ev.PersistFloor(floor):
                self.floors[floor.store] = floor
            case ev.PublishGroup(group):
                assert self.groups[group.group] == group, "published before it is journalled"
            case ev.PersistForgotten(job, fence):
                self.forgotten[job] = fence
            case ev.PersistDraining(worker_id, draining):
                (self.draining.add if draining else self.draining.discard)(worker_id)
            case ev.DropGroups(groups, floors):
                self.groups = {g: group for g, group in self.groups.items() if g not in groups}
                self.floors = {s: floor for s, floor in self.floors.items() if s not in floors}
            case ev.DropWorker(worker_id):
                del self.workers[worker_id]
            case ev.PublishForgotten(job, fence):
                assert self.forgotten[job] == fence, "published before it is journalled"
            case ev.PublishWorkers() | ev.PublishFloors():
                return

    def restart(self, groups: Collection[ReplicaGroup] | None = None) -> None:
        """From what is journalled; `groups` instead of the journal's: an older one was restored."""
        self.generation += 1
        restored = Restored(
            generation=self.generation,
            workers=self.workers.values(),
            groups=self.groups.values() if groups is None else groups,
            floors=self.floors.values(),
            forgotten=self.forgotten,
            draining=self.draining,
        )
        self.machine = ReplicationMachine(restored, LEASE_TIMES, now=self.now)

    def register(
        self,
        name: str,
        *reports: Report,
        incarnation: int = 1,
        process: str = "",
        seen: Epoch = NO_EPOCH,
        known: str = "",
    ) -> list[ev.Effect]:
        others = tuple(worker(other) for other in known)
        return self.do(
            ev.Registered(worker(name, incarnation), process or f"{name}-process", seen, reports, known=others)
        )

    def beat(self, name: str, *reports: Report, incarnation: int = 1) -> list[ev.Effect]:
        return self.do(ev.Beat(name, f"{name}/{incarnation}", 0, 0, 0, 0, reports))

    def resolve(self, name: str, group: GroupId = GROUP, settings: JobSettings | None = None) -> ReplicaGroup:
        self.do(ev.Resolve(group, name, settings or JobSettings()))
        return self.group(group)

    def group(self, group: GroupId = GROUP) -> ReplicaGroup:
        return self.machine.groups[group]

    def members(self, group: GroupId = GROUP) -> str:
        """Owner first; "?" behind one that is not whole."""
        return "".join(m.worker.worker_id + ("" if m.whole else "?") for m in self.group(group).members)

    def lose(self, name: str) -> None:
        """The stream of `name` breaks and its suspect lease ends; the others go on beating."""
        self.beat_all()
        self.do(ev.StreamBroken(name, f"{name}-process"))
        self.now += 1.5
        self.beat_all()
        self.do(ev.Tick())

    def beat_all(self) -> None:
        """Those that are live."""
        for record in list(self.machine.membership.records.values()):
            if record.state is WorkerState.LIVE:
                worker = record.worker
                disk = record.disk, record.disk_message
                self.do(ev.Beat(worker.worker_id, worker.incarnation, 0, 0, 0, 0, (), *disk))

    def a_lease_later(self) -> None:
        """Live workers go on sending heartbeats."""
        for _ in range(6):
            self.now += 1.0
            self.beat_all()
        self.do(ev.Tick())

    def whole(self, name: str) -> list[ev.Effect]:
        return self.beat(name, Report(GROUP, self.group().epoch, True, 10))


def written(number: int) -> StoreVersion:
    return StoreVersion(STORE, Version(number, f"id{number}"))
