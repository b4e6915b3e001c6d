"""A handover core on a scripted cluster: events in, effects out, invariants after every event."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TypeVar

from handover_manager import events as ev
from handover_manager.adapt.policy import Policy
from handover_manager.drive.handover import DrivenHandover
from handover_manager.machine import USUAL
from handover_manager.queries.history import ACTION_PREFIX
from handover_manager.service.stored import restore
from handover_manager.view import ClusterView, GroupSeen, Remains, TaskGroup, WorkerSeen
from rhino_core.ids import (
    DiskState,
    Epoch,
    GroupId,
    JobSettings,
    Member,
    ReplicaGroup,
    StoreId,
    StoreVersion,
    Version,
    VirtualNode,
    Worker,
)
from rhino_core.records import encode
from rhino_model.handovers import DrainView, Plan
from rhino_model.intents import Request

E = TypeVar("E", bound=ev.Effect)
JOB, RUN = "job-a", "run-1"
WALL_OFFSET_S = 1_000_000.0


def worker(worker_id: str) -> Worker:
    return Worker(worker_id, f"{worker_id}/boot", f"host-{worker_id}", f"{worker_id}:1")


def node(name: str, job: str = JOB) -> VirtualNode:
    group, partition = name.split("/")
    return VirtualNode(job, int(group), int(partition))


def group(operator: int, partition: int, job: str = JOB) -> GroupId:
    return GroupId(job, operator, partition)


class Cluster:
    """Workers and groups that a test changes at will. A chain is written "w1 w2 w3?": "?" is not whole."""

    def __init__(self, *workers: str) -> None:
        self.workers = {w: WorkerSeen(worker(w), True, True, 1_000) for w in workers}
        self.groups: dict[GroupId, GroupSeen] = {}
        self.remains: dict[str, Remains] = {}

    def chain(self, group_id: GroupId, members: str, stored: dict[str, int] | None = None, factor: int = 1) -> None:
        names = members.split()
        chain = tuple(Member(worker(n.rstrip("?")), not n.endswith("?")) for n in names)
        replica = ReplicaGroup(group_id, Epoch(1, 1), chain, 1, JobSettings(factor))
        default = {n: 100 for n in names if not n.endswith("?")}
        self.groups[group_id] = GroupSeen(replica, default if stored is None else stored)

    def worker(
        self,
        name: str,
        *,
        reachable: bool = True,
        live: bool = True,
        free_bytes: int = 1_000,
        disk: DiskState = DiskState.OK,
        draining: bool = False,
    ) -> None:
        self.workers[name] = WorkerSeen(worker(name), reachable, live, free_bytes, disk, f"disk of {name}", draining)

    def lose(self, name: str) -> None:
        self.worker(name, reachable=False, live=False)

    @property
    def view(self) -> ClusterView:
        return ClusterView(dict(self.workers), dict(self.groups))


def _is_history(effect: ev.Effect) -> bool:
    """Acts of people become history. test_history_service.py is about that."""
    return isinstance(effect, ev.Persist) and effect.key.startswith(ACTION_PREFIX)


class Play:
    """Feeds a core and journals its effects; `now` is set by the test."""

    def __init__(
        self,
        cluster: Cluster,
        journal: dict[str, dict[str, object]] | None = None,
        now: float = 0.0,
        policy: Policy = USUAL,
    ) -> None:
        self.cluster = cluster
        self.policy = policy
        self.now = now
        self.journal = {} if journal is None else journal
        self.core = restore(self.journal, now=now, wall_offset_s=WALL_OFFSET_S, policy=policy)
        self.effects: list[ev.Effect] = []
        self._take(self.core.handle(ev.Restarted(), now=now))

    def __call__(self, event: ev.Event) -> list[ev.Effect]:
        self.effects = []
        self._take(self.core.handle(event, now=self.now))
        self.core.check_invariants()
        return self.effects

    def _take(self, effects: list[ev.Effect]) -> None:
        self.effects = [effect for effect in effects if not _is_history(effect)]
        for effect in effects:
            if isinstance(effect, ev.Persist):
                if effect.record is None:
                    self.journal.pop(effect.key, None)
                else:
                    self.journal[effect.key] = json.loads(json.dumps(encode(effect.record)))

    def of(self, kind: type[E]) -> list[E]:
        """The last event's effects of one kind."""
        return [effect for effect in self.effects if isinstance(effect, kind)]

    def drain_state(self, worker: str) -> DrainView:
        return self.core.drain_state(worker, self.cluster.remains.get(worker, Remains()), now=self.now)

    def see(self) -> list[ev.Effect]:
        return self(ev.ClusterSeen(self.cluster.view))

    def begin(
        self,
        *task_groups: TaskGroup,
        session: int = 1,
        run_id: str = RUN,
        job: str = JOB,
        name: str = "q",
        location: str = "",
        principal: str = "",
        temporary: bool = False,
    ) -> None:
        groups = task_groups or (TaskGroup(0, (0,), 2),)
        app, host = f"app-{session}", f"driver-{session}"
        started = ev.QueryStarted(session, app, job, run_id, name, groups, host=host, location=location)
        self(replace(started, principal=principal, temporary=temporary))

    def batch(
        self, batch_id: int, writers: dict[GroupId, str], job: str = JOB, run_id: str = RUN, *, repeated: bool = False
    ) -> list[ev.Effect]:
        """A logged batch together with the answer who wrote it."""
        versions = {
            StoreVersion(StoreId(*g, "default"), Version(batch_id + 1, f"{w}-{batch_id}")): w
            for g, w in writers.items()
        }
        self(ev.BatchLogged(self.session(job), job, run_id, batch_id, tuple(versions), repeated=repeated))
        return self(ev.WritersFound(job, batch_id, versions))

    def session(self, job: str = JOB) -> int:
        """The one that has the job; 0: none."""
        return self.core.jobs[job].run.session or 0

    def start(self, target: str, *nodes: str, deadline_s: float = 60.0, handover_id: str = "h1") -> DrivenHandover:
        self(ev.HandoverRequested(handover_id, Request(JOB, nodes, target, deadline_s)))
        return self.handover(handover_id)

    def plan(self, request: Request) -> Plan:
        return self.core.plan(request, now=self.now)

    def handover(self, handover_id: str = "h1") -> DrivenHandover:
        return self.core.handovers.find(handover_id)

    def desired(self, name: str) -> str:
        return self.core.jobs[JOB].map.desired[node(name)]

    def restart(self) -> Play:
        """The manager comes up again with what it journalled; nobody has introduced himself yet."""
        return Play(self.cluster, self.journal, self.now, self.policy)


def pair() -> Play:
    """A job of two virtual nodes on w1 with copies on w2; w3 holds nothing."""
    cluster = Cluster("w1", "w2", "w3")
    cluster.chain(group(0, 0), "w1 w2")
    cluster.chain(group(0, 1), "w1 w2")
    play = Play(cluster)
    play.begin()
    play.see()
    return play
