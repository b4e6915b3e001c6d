"""The simulated cluster: its workers, their queries, and the places of the groups."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass

from rhino_core.ids import (
    Epoch,
    GroupId,
    JobSettings,
    Member,
    ReplicaGroup,
    StoreId,
    StoreVersion,
    Version,
    Worker,
)

OPERATORS = (0, 1)  # of each query; they run in one task
ZONES = 3
WORKERS_OF_A_QUERY = 20
FIRST_VERSION = 1000
RETAINED = 100  # versions above the floor: spark.sql.streaming.minBatchesToRetain
GROUP_BYTES = 50_000_000
FIRST_NODE = uuid.UUID(int=1 << 100)
SETTINGS = JobSettings(replication_factor=1)


@dataclass(frozen=True, slots=True)
class Shape:
    """`probes`: workers without groups, in a process with little other work. `port`: of all simulated peer services."""

    workers: int
    groups: int
    groups_of_a_query: int
    probes: int
    port: int

    @property
    def busy(self) -> int:
        """Workers with queries. The probes come after them."""
        return self.workers - self.probes

    @property
    def jobs(self) -> int:
        return self.groups // self.groups_of_a_query

    @property
    def partitions(self) -> int:
        return self.groups_of_a_query // len(OPERATORS)

    def worker(self, number: int) -> Worker:
        """Each worker has a host of its own. All hosts are this machine."""
        host = f"127.1.{number // 250}.{number % 250 + 1}"
        incarnation = f"{uuid.UUID(int=FIRST_NODE.int + number)}/boot"
        zone, rack = f"zone-{number % ZONES}", f"rack-{number % 40}"
        return Worker(name_of(number), incarnation, host, f"{host}:{self.port}", zone, rack)

    def workers_of(self, job: int) -> list[int]:
        """The workers with executors of the query, in order."""
        count = min(WORKERS_OF_A_QUERY, self.busy)
        first = job * self.busy // self.jobs
        return [(first + position) % self.busy for position in range(count)]

    def chain(self, job: int, partition: int) -> tuple[int, int]:
        """The owner of a partition's groups, and the worker with the copy."""
        workers = self.workers_of(job)
        place = partition % len(workers)
        return workers[place], workers[(place + 1) % len(workers)]

    def replica_groups(self, epoch: Epoch) -> Iterator[ReplicaGroup]:
        """All groups under this epoch. Every member is whole."""
        workers = [self.worker(number) for number in range(self.workers)]
        for job in range(self.jobs):
            for partition in range(self.partitions):
                members = tuple(Member(workers[number], True) for number in self.chain(job, partition))
                for operator in OPERATORS:
                    group = GroupId(job_of(job), operator, partition)
                    yield ReplicaGroup(group, epoch, members, SETTINGS.copies, SETTINGS)


def name_of(worker: int) -> str:
    return f"worker-{worker:04d}"


def job_of(number: int) -> str:
    """The id of a query."""
    return str(uuid.UUID(int=FIRST_NODE.int + (1 << 64) + number))


def run_of(number: int) -> str:
    return str(uuid.UUID(int=FIRST_NODE.int + (1 << 65) + number))


def version_of(group: GroupId, number: int) -> StoreVersion:
    """The version of a group's only store. Its checkpoint id is as long as Spark's, and follows from the rest."""
    checkpoint = f"{number:08x}-0000-4000-8000-{group.operator:04x}{group.partition:08x}"
    return StoreVersion(StoreId(group.job, group.operator, group.partition, "default"), Version(number, checkpoint))
