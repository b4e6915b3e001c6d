"""A scaler: as many workers as the manager wants, by the calls of a user's own scaler."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from pyspark.sql import SparkSession

from benchmarks.balance.running import QUERY_NAME
from rhino import HandoverClient, ScaleOut, Weight
from rhino.client.overview import query_names
from rhino.testing import ElasticCluster, LocalWorker
from rhino.testing.query_watch import RunError, driver_hosts
from rhino_core.errors import AlreadyThereError, ConflictError, PreconditionError

LOOK_S = 1.0
EXECUTOR_S = 60.0
HANDOVER_S = 120.0


@dataclass(frozen=True, slots=True)
class Scaled:
    """An action of the scaler, or a message to it. `workers`: their number then."""

    at_ms: int
    what: str
    workers: int
    detail: str = ""


class Scaler:
    """Follows the wanted number of one query, within bounds. It works in the thread of `run`."""

    def __init__(self, cluster: ElasticCluster, spark: SparkSession, least: int, most: int) -> None:
        self._cluster, self._spark = cluster, spark
        self._least, self._most = least, most
        self._ended = threading.Event()
        self._wanted: int | None = None
        self.done: list[Scaled] = []

    def stop(self) -> None:
        """`run` returns at the end of its present work."""
        self._ended.set()

    def run(self) -> None:
        """Raises RhinoError when a worker does not start, or cannot be emptied in time."""
        with HandoverClient(self._cluster.manager) as client:
            while not self._ended.wait(LOOK_S):
                wanted, present = self._look(client), self._cluster.present
                try:
                    if wanted > len(present):
                        self._grow(client, wanted - len(present))
                    elif wanted < len(present):
                        self._shrink(client, present[-1])
                except (ConflictError, PreconditionError) as error:  # adaptation moves something: look again
                    self._note("refused", str(error))

    def _look(self, client: HandoverClient) -> int:
        jobs = client.jobs()
        names = query_names(jobs)
        job = next((one for one in jobs if names[one.job] == QUERY_NAME and one.connected), None)
        if job is None or job.workers_wanted is None:
            return len(self._cluster.present)
        if job.workers_wanted != self._wanted:
            self._wanted = job.workers_wanted
            self._note("wanted", f"{job.workers_wanted}: {job.workers_wanted_why}")
        return min(max(job.workers_wanted, self._least), self._most)

    def _grow(self, client: HandoverClient, count: int) -> None:
        self._note("growing", f"by {count}")
        added = [self._cluster.add_worker() for _ in range(count)]
        names = tuple(worker.worker_id for worker in added)
        self._note("started", ", ".join(names))
        self._await_executors(added)
        self._note("executors", ", ".join(names))
        while True:
            try:
                begun = client.start(QUERY_NAME, intent=ScaleOut(names, Weight.TIME), deadline_s=HANDOVER_S)
                break
            except AlreadyThereError as error:  # adaptation was faster
                self._note("moved", str(error))
                return
            except ConflictError as error:
                self._note("refused", str(error))
                if self._ended.wait(LOOK_S):
                    return
        ended = client.wait(begun.handover_id, timeout_s=HANDOVER_S + 10)
        self._note("moved", f"{len(ended.plan.moves)} virtual nodes onto {', '.join(names)}: {ended.phase.value}")

    def _await_executors(self, added: list[LocalWorker]) -> None:
        deadline, hosts = time.monotonic() + EXECUTOR_S, {worker.host for worker in added}
        while not hosts <= driver_hosts(self._spark):
            if time.monotonic() > deadline:
                raise RunError(f"no executors at {', '.join(sorted(hosts))} within {EXECUTOR_S:g} s")
            time.sleep(0.1)

    def _shrink(self, client: HandoverClient, worker: LocalWorker) -> None:
        self._note("draining", worker.worker_id)
        client.drain(worker.worker_id, deadline_s=HANDOVER_S)
        client.wait_until_safe(worker.worker_id, timeout_s=HANDOVER_S)
        self._note("safe", worker.worker_id)
        self._cluster.remove_worker(self._cluster.workers.index(worker))
        self._note("removed", worker.worker_id)

    def _note(self, what: str, detail: str) -> None:
        self.done.append(Scaled(time.time_ns() // 1_000_000, what, len(self._cluster.present), detail))
