"""A cluster with one query: its workers, and managers that all believe they lead."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

from handover_manager.archive import archiver as archiver_module
from handover_manager.archive import events as ev
from handover_manager.archive.archiver import CLUSTER_KEY, Archiver
from handover_manager.archive.machine import ArchiveMachine
from handover_manager.view import ClusterView, GroupSeen, WorkerSeen
from rhino_archive.manifest import CheckpointFile, digest_of
from rhino_core.ids import Epoch, GroupId, Member, ReplicaGroup, Worker
from rhino_core.settings import ManagerSettings
from rhino_pb import archive_pb2
from tests.simulation.archive.query import JOB, Query
from tests.simulation.archive.sidecar import Call, Sidecar
from tests.simulation.archive.store import URL, Client, Store
from tests.simulation.archive.world import HOUR_S, MINUTE_S, World

EVERY_S = 10 * MINUTE_S  # between rounds
WORKERS = 4


class WatchedMachine(ArchiveMachine):
    """The real machine, in a process that may hang."""

    client: Client
    held: list[ev.Event]

    @property
    def hangs(self) -> bool:
        return not self.client.awake.is_set()

    def next_deadline(self) -> float | None:
        return None if self.hangs else super().next_deadline()

    def handle(self, event: ev.Event, *, now: float) -> Sequence[ev.Effect]:
        if self.hangs:
            if not isinstance(event, ev.Due):
                self.held.append(event)
            return ()
        effects = super().handle(event, now=now)
        self.check_invariants()
        if any(isinstance(effect, ev.WriteManifest) for effect in effects):
            self.client.began_at = now
        return effects


class Manager:
    """A process of the manager. It forgets everything at its end."""

    def __init__(self, cluster: Cluster, keep: str) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self.client = Client(cluster.world, cluster.store, cluster.name)
        self._withheld: list[ev.Event] = []
        journal = SimpleNamespace(get={CLUSTER_KEY: cluster.name}.get)
        with (
            patch.object(archiver_module, "bucket", lambda url: self.client),
            patch.object(archiver_module, "ArchiveMachine", WatchedMachine),
        ):
            settings = ManagerSettings(
                Path("/x"), archive=URL, archive_every_s=EVERY_S, archive_keep=keep, archive_drill_every_s=0.0
            )
            self.archiver = Archiver(settings, cast(Any, journal), cast(Any, self))
        self._machine = cast(WatchedMachine, self.archiver.machine)
        self._machine.client, self._machine.held = self.client, []
        self.archiver.ask_driver(self._ask_driver)
        self._task = cluster.world.loop.create_task(self.archiver.run())
        self._task.add_done_callback(self._ended)
        self.hear(ev.ViewSeen(cluster.view()))
        if cluster.query.log:
            self._world.loop.call_later(self._world.random.uniform(0.0, MINUTE_S), self._hear_last)

    def _hear_last(self) -> None:
        """The driver has come back to it."""
        self.hear(self._cluster.query.log[-1])

    def _ended(self, task: asyncio.Task[None]) -> None:
        if self.archiver.failure:
            self._world.fail(f"the archive of a manager ended: {self.archiver.failure}")
        elif not task.cancelled() and (error := task.exception()) is not None:
            self._world.fail(f"a manager ended: {_innermost(error)!r}")

    def hear(self, event: ev.Event) -> None:
        if not self.client.awake.is_set():
            self._withheld.append(event)
        elif isinstance(event, ev.ViewSeen):
            self.archiver.seen(event.view)
        else:
            self.archiver.post(cast(Any, event))

    def hang(self, for_s: float) -> None:
        """As after SIGSTOP. When it goes on, answers to it come before its deadlines."""
        self.client.awake.clear()
        self._world.loop.call_later(for_s, self.wake)

    def wake(self) -> None:
        self.client.awake.set()
        heard, self._machine.held, self._withheld = [*self._machine.held, *self._withheld], [], []
        self._world.loop.call_later(0.01, self._catch_up, (*heard, ev.ViewSeen(self._cluster.view())))

    def _catch_up(self, events: Sequence[ev.Event]) -> None:
        for event in events:
            self.hear(event)

    def kill(self) -> None:
        self._task.cancel()

    def _ask_driver(self, job: str, batch_id: int) -> bool:
        if self._world.chance(self._world.faults.silent_driver):
            return self._world.chance(0.5)
        self._world.loop.call_later(self._world.random.uniform(0.0, 20.0), self.send_checkpoint, batch_id)
        return True

    def send_checkpoint(self, batch_id: int) -> None:
        """The driver's answer: by the history of that time. Its file has the digest of the versions."""
        log = self._cluster.query.log
        if batch_id >= len(log):
            self.hear(ev.CheckpointRead(JOB, batch_id, error="no such batch"))
            return
        data = digest_of(log[batch_id].versions).encode()
        self.hear(ev.CheckpointRead(JOB, batch_id, (CheckpointFile(f"offsets/{batch_id}", data),)))

    @asynccontextmanager
    async def channel(self, worker: Worker) -> AsyncIterator[Channel]:
        yield Channel(self._world, self._cluster.sidecars.get(worker.worker_id), self.client)


@dataclass(frozen=True)
class Channel:
    world: World
    sidecar: Sidecar | None
    client: Client

    def Archive(self, request: archive_pb2.ArchiveRequest, timeout: float) -> Call:
        return Call(self.world, self.sidecar, request, self.client)


def _innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


class Cluster:
    """`keep`: the retention. The first member of a group is its owner."""

    def __init__(self, world: World, store: Store, name: str, keep: str) -> None:
        self.world = world
        self.store = store
        self.name = name
        self.query = Query(world, name)
        self._keep = keep
        self.sidecars = {f"{name}{at}": Sidecar(world, f"{name}{at}") for at in range(WORKERS)}
        names = list(self.sidecars)
        self.members: dict[GroupId, dict[str, bool]] = {  # whether each is whole
            group: dict.fromkeys(world.random.sample(names, 2), True) for group in self.query.groups
        }
        self.managers: list[Manager] = []
        self.start_manager()

    def start_manager(self) -> None:
        self.managers.append(Manager(self, self._keep))

    def kill_manager(self, manager: Manager) -> None:
        self.managers.remove(manager)
        manager.kill()

    def view(self) -> ClusterView:
        workers = {name: WorkerSeen(one.worker, one.up, one.up, 1000) for name, one in self.sidecars.items()}
        groups = {}
        for group, members in self.members.items():
            chain = tuple(Member(self.sidecars[name].worker, whole) for name, whole in members.items())
            groups[group] = GroupSeen(ReplicaGroup(group, Epoch(1, 1), chain, 1), {})
        return ClusterView(workers, groups)

    def changed(self) -> None:
        for manager in self.managers:
            manager.hear(ev.ViewSeen(self.view()))

    # ---------------------------------------------------------------- the query

    def log_batch(self) -> None:
        known, files = self.query.batch()
        for entry, data in files:
            for name in self.members[entry.store.group]:
                if self.sidecars[name].up:
                    self.sidecars[name].add(entry, data)
        self.world.say(f"{self.name}: batch {known.batch_id} of {known.versions[0].version}")
        for manager in self.managers:
            manager.hear(known)
        for store in self.query.stores:
            for name in self.members[store.group]:
                if self.sidecars[name].up:
                    self.sidecars[name].logged(store, self.query.floor(store))

    def end_query(self) -> None:
        """Its driver sends the last files of its checkpoint, unasked."""
        if self.query.log:
            for manager in self.managers:
                manager.send_checkpoint(len(self.query.log) - 1)

    # ---------------------------------------------------------------- workers

    def others(self, group: GroupId, name: str) -> list[str]:
        """Other whole members that are up."""
        members = self.members[group].items()
        return [other for other, whole in members if whole and other != name and self.sidecars[other].up]

    def lose(self, name: str) -> bool:
        """The worker ends, with its disk. Not if it has the last copy of something."""
        theirs = [group for group, members in self.members.items() if name in members]
        if not self.sidecars[name].up or not all(self.others(group, name) for group in theirs):
            return False
        sidecar = self.sidecars[name]
        sidecar.kill()
        for group in theirs:
            del self.members[group][name]
            sidecar.leave(group)
        self.changed()
        self.world.loop.call_later(self.world.random.uniform(0.0, HOUR_S), self.start, name)
        for group in theirs:
            self.world.loop.call_later(self.world.random.uniform(0.0, HOUR_S), self.join, group)
        return True

    def stop(self, name: str) -> bool:
        """The sidecar is restarted. It has missed batches, and is whole again a little later."""
        theirs = [group for group, members in self.members.items() if name in members]
        if not self.sidecars[name].up or not all(self.others(group, name) for group in theirs):
            return False
        self.sidecars[name].kill()
        for group in theirs:
            self.members[group][name] = False
        self.changed()
        self.world.loop.call_later(self.world.random.uniform(0.0, HOUR_S), self.start, name)
        return True

    def start(self, name: str) -> None:
        if not self.sidecars[name].up:
            self.sidecars[name].start()
            self.changed()
        for group, members in self.members.items():
            if name in members:
                self._make_whole(group, name)

    def join(self, group: GroupId) -> None:
        """A further member, whole after some time."""
        able = [n for n, one in self.sidecars.items() if one.up and n not in self.members[group]]
        if able:
            name = self.world.random.choice(able)
            self.members[group][name] = False
            self.changed()
            self.world.loop.call_later(self.world.random.uniform(0.0, HOUR_S), self._make_whole, group, name)

    def _make_whole(self, group: GroupId, name: str) -> None:
        others = self.others(group, name)
        if name in self.members[group] and not self.members[group][name] and self.sidecars[name].up and others:
            self.sidecars[name].copy(group, self.sidecars[others[0]])
            self.members[group][name] = True
            self.changed()

    def move(self, group: GroupId) -> None:
        """One member leaves, or becomes the owner, or another one joins."""
        name = self.world.random.choice(sorted(self.members[group]))
        if len(self.members[group]) < 3:
            self.join(group)
        elif self.others(group, name) and self.world.chance(0.7):
            del self.members[group][name]
            self.sidecars[name].leave(group)
            self.changed()
        elif self.members[group][name]:
            rest = {other: whole for other, whole in self.members[group].items() if other != name}
            self.members[group] = {name: True, **rest}
            self.changed()

    def mend(self) -> None:
        """All faults end."""
        for sidecar in self.sidecars.values():
            sidecar.pack_s = 0.0
        for name in self.sidecars:
            self.start(name)
        for manager in self.managers:
            manager.wake()
