"""Faults on a running cluster: each is begun, lasts a while, and is healed."""

from __future__ import annotations

import os
import random
import shutil
import signal
from collections.abc import Callable, Collection
from dataclasses import dataclass

from rhino import HandoverClient
from rhino.client.overview import GroupView, Overview, fetch_overview
from rhino.client.scrub import scrub_status, start_scrub
from rhino.testing import LocalCluster
from rhino.testing.cluster import LocalWorker
from rhino.testing.process import ClusterError, Process, kill_pid
from rhino_core.errors import RhinoError
from tests.worker_runtime.tmpfs import fill

Heal = Callable[[], None]
HANDOVER_DEADLINE_S = 30.0
NEW_KIND_PROBABILITY = 0.75  # of drawing a kind that has not come yet, while there is one
FULL_DISK_FREE_BYTES = 64 << 20  # left for Spark; a sidecar's reserve is larger, so it takes no files


class NotNow(Exception):
    """The fault makes no sense, or would destroy data, as the cluster stands."""


@dataclass(frozen=True, slots=True)
class Begun:
    """`seconds`: how long the fault lasts before `heal` is called; 0: it has no duration."""

    what: str
    seconds: float = 0.0
    heal: Heal | None = None


class Faults:
    """Draws and carries out faults; the same seed draws the same faults and durations."""

    def __init__(
        self, cluster: LocalCluster, driver: Callable[[], Process], seed: int, *, own_disks: bool = False
    ) -> None:
        """`own_disks`: the folder of each worker is a file system of its own, which may be filled."""
        self.cluster = cluster
        self.driver = driver  # the driver's process as it is now
        self.random = random.Random(seed)
        self._seen: set[str] = set()  # kinds that have begun once
        self._full: set[str] = set()  # workers whose disk is filled now
        self._unscrubbed: dict[int, int | None] = {}  # workers with an altered file, number of the scrub that looks
        self.kinds: dict[str, tuple[int, Callable[[], Begun]]] = {  # weight, fault
            "kill executor": (4, self.kill_executor),
            "kill worker": (3, self.kill_worker),
            "kill sidecar": (3, self.kill_sidecar),
            "stop sidecar": (3, self.stop_sidecar),
            "stop executor": (2, self.stop_executor),
            "kill manager": (2, self.kill_manager),
            "stop manager": (1, self.stop_manager),
            "kill driver": (2, self.kill_driver),
            "handover": (6, self.hand_over),
            "alter file": (2, self.alter_file),
            "lose disk": (1, self.lose_disk),
        }
        if own_disks:
            self.kinds["fill disk"] = 2, self.fill_disk

    def limit(self, names: Collection[str]) -> None:
        """Only these faults are drawn. Raises ValueError for a name that is none."""
        if unknown := set(names) - set(self.kinds):
            raise ValueError(f"no fault {', '.join(sorted(unknown))}: choose from {', '.join(self.kinds)}")
        self.kinds = {name: self.kinds[name] for name in self.kinds if name in names}

    def draw(self) -> str:
        """By weight. Kinds that have not begun yet are preferred, so that a short run has all of them."""
        new = [name for name in self.kinds if name not in self._seen]
        names = new if new and self.random.random() < NEW_KIND_PROBABILITY else list(self.kinds)
        return self.random.choices(names, [self.kinds[n][0] for n in names])[0]

    def begin(self, name: str) -> Begun:
        """Raises NotNow."""
        begun = self.kinds[name][1]()
        self._seen.add(name)
        return begun

    # ---- the faults

    def kill_executor(self) -> Begun:
        worker = self._worker()
        pids = worker.executor_pids()
        if not pids:
            raise NotNow(f"{worker.worker_id} has no executor")
        for pid in pids:
            kill_pid(pid)
        return Begun(f"kill -9 of the executor of {worker.worker_id}")

    def kill_worker(self) -> Begun:
        index = self.cluster.workers.index(self._worker())
        self.cluster.kill_worker(index)
        return self._lasting(f"kill -9 of worker-{index}", 1, 15, lambda: self._restart(index))

    def kill_sidecar(self) -> Begun:
        index = self.cluster.workers.index(self._worker())
        self.cluster.kill_sidecar(index)
        return self._lasting(f"kill -9 of the sidecar of worker-{index}", 0, 5, lambda: self._revive(index))

    def stop_sidecar(self) -> Begun:
        worker = self._worker()
        sidecar = worker.sidecar
        assert sidecar is not None
        return self._stopped(f"SIGSTOP of the sidecar of {worker.worker_id}", [sidecar.pid])

    def stop_executor(self) -> Begun:
        worker = self._worker()
        pids = worker.executor_pids()
        if not pids:
            raise NotNow(f"{worker.worker_id} has no executor")
        return self._stopped(f"SIGSTOP of the executor of {worker.worker_id}", pids)

    def kill_manager(self) -> Begun:
        self.cluster.kill_manager()
        return self._lasting("kill -9 of the manager", 0, 10, self.cluster.restart_manager)

    def stop_manager(self) -> Begun:
        return self._stopped("SIGSTOP of the manager", [self.cluster.manager_pid])

    def kill_driver(self) -> Begun:
        self.driver().kill()
        return Begun("kill -9 of the driver")

    def hand_over(self) -> Begun:
        overview = self._overview()
        jobs = [j for j in overview.jobs if j.connected and j.virtual_nodes]
        if not jobs:
            raise NotNow("no job is connected")
        job = self.random.choice(jobs)
        target = self.random.choice(overview.workers).worker_id
        movable = [n.virtual_node for n in job.virtual_nodes if n.desired_worker != target]
        chosen = self.random.sample(movable, min(len(movable), self.random.randint(1, 2)))
        if not chosen:
            raise NotNow(f"everything of {job.name} is on {target}")
        try:
            with HandoverClient(self.cluster.manager) as client:
                client.start(job.job, chosen, target, deadline_s=HANDOVER_DEADLINE_S)
        except RhinoError as error:
            raise NotNow(f"handover refused: {error}") from error
        return Begun(f"handover of {', '.join(chosen)} of {job.name} to {target}")

    def alter_file(self) -> Begun:
        """One byte of a stored file; a link of the executor to the same file keeps what it had."""
        worker = self._worker()
        self._check_whole("a file is altered only while every group has all its copies")
        root = worker.folder / "rhino" / "store"
        files = sorted(p for p in root.rglob("*") if p.is_file() and p.stat().st_size)
        if not files:
            raise NotNow(f"{worker.worker_id} stores nothing")
        path = self.random.choice(files)
        try:
            data = bytearray(path.read_bytes())
            data[self.random.randrange(len(data))] ^= 1 << self.random.randrange(8)
            altered = path.with_name(path.name + ".altered")
            altered.write_bytes(data)
            altered.replace(path)
        except FileNotFoundError as error:
            raise NotNow(f"{path} has been collected") from error
        index = self.cluster.workers.index(worker)
        self._unscrubbed[index] = None
        what = f"one bit of {path.relative_to(root)} of {worker.worker_id} flipped"
        return self._lasting(what, 1, 5, lambda: self._begin_scrub(index))

    def lose_disk(self) -> Begun:
        worker = self._worker()
        self._check_whole("a disk is lost only while every group has all its copies")
        index = self.cluster.workers.index(worker)
        self.cluster.kill_sidecar(index)
        shutil.rmtree(worker.folder / "rhino")
        return self._lasting(f"disk of {worker.worker_id} lost", 0, 5, lambda: self._revive(index))

    def fill_disk(self) -> Begun:
        """The sidecar goes on but takes no files, until there is room again. Spark still writes its shuffle files."""
        worker = self._worker()
        if worker.worker_id in self._full:
            raise NotNow(f"the disk of {worker.worker_id} is full already")
        self._full.add(worker.worker_id)
        ballast = fill(worker.folder, FULL_DISK_FREE_BYTES)

        def empty() -> None:
            ballast.unlink()
            self._full.discard(worker.worker_id)

        return self._lasting(f"disk of {worker.worker_id} full", 5, 30, empty)

    # ---- parts

    def _worker(self) -> LocalWorker:
        alive = [w for w in self.cluster.workers if not w.killed and not w.sidecar_killed]
        if len(alive) < len(self.cluster.workers):
            raise NotNow("another worker is down")
        return self.random.choice(alive)

    def _lasting(self, what: str, least_s: float, most_s: float, heal: Heal) -> Begun:
        return Begun(what, self.random.uniform(least_s, most_s), heal)

    def _stopped(self, what: str, pids: list[int]) -> Begun:
        stopped = [pid for pid in pids if _signalled(pid, signal.SIGSTOP)]
        if not stopped:
            raise NotNow(f"{what}: it is down")

        def go_on() -> None:
            for pid in stopped:
                _signalled(pid, signal.SIGCONT)

        return self._lasting(what, 0.5, 8, go_on)

    def _restart(self, index: int) -> None:
        self.cluster.restart_worker(index, wait=False)  # the manager may be down

    def _revive(self, index: int) -> None:
        """Unless the whole worker was killed meanwhile: that fault's end brings its sidecar back as well."""
        if not self.cluster.workers[index].killed:
            self.cluster.restart_sidecar(index, wait=False)

    def _overview(self) -> Overview:
        try:
            return fetch_overview(self.cluster.manager)
        except (RhinoError, ClusterError) as error:
            raise NotNow(f"the manager does not answer: {error}") from error

    def _check_whole(self, why: str) -> None:
        """So that no fault takes the last good copy. NotNow(why) unless every copy is there and known to be good."""
        overview = self._overview()
        copies = len(self.cluster.workers)
        lacking = [g for g in overview.groups if len(live_copies(g)) < copies or g.lag_versions]
        if lacking or not overview.groups or not self._scrubbed():
            raise NotNow(why)

    def _begin_scrub(self, index: int) -> None:
        """Finds what `alter_file` has done; asked again by `_scrubbed` when it cannot be begun now."""
        try:
            self._unscrubbed[index] = start_scrub(*self._peer(index)).number
        except (RhinoError, NotNow):
            self._unscrubbed[index] = None

    def _peer(self, index: int) -> tuple[str, str]:
        """Id and address of a worker, as it registered last."""
        worker_id = self.cluster.workers[index].worker_id
        address = next((w.peer_address for w in self._overview().workers if w.worker_id == worker_id), None)
        if address is None:
            raise NotNow(f"the manager does not know {worker_id}")
        return worker_id, address

    def _scrubbed(self) -> bool:
        for index, number in list(self._unscrubbed.items()):
            try:
                scrub = scrub_status(*self._peer(index))
            except RhinoError:
                return False
            if number is None or scrub.number < number:
                self._begin_scrub(index)
            elif not scrub.running and scrub.missing == 0:
                del self._unscrubbed[index]
        return not self._unscrubbed


def _signalled(pid: int, number: signal.Signals) -> bool:
    """False when the process has been killed meanwhile."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def live_copies(group: GroupView) -> list[str]:
    return [m.worker_id for m in group.members if m.whole and m.state == "live"]
