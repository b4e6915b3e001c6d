"""Journal records of jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from handover_manager.events import Persist
from handover_manager.queries.desired_map import DesiredMap
from handover_manager.queries.job import Job
from handover_manager.queries.run import Run
from handover_manager.view import TaskGroup
from rhino_core.ids import VirtualNode
from rhino_core.records import Record

JOB_PREFIX = "handover_manager/job/"


class DesiredWorker(NamedTuple):
    task_group: int
    partition: int
    worker: str


@dataclass(frozen=True, slots=True)
class JobRecord(Record):
    """A query with its newest run and its map."""

    job: str
    run_id: str
    name: str
    application_id: str
    task_groups: tuple[TaskGroup, ...]
    configuration_epoch: int
    desired: tuple[DesiredWorker, ...]
    host: str
    since_ms: int
    location: str
    owner: str
    temporary: bool


def job_key(job: str) -> str:
    return f"{JOB_PREFIX}{job}"


def persist_job(job: Job) -> Persist:
    return Persist(job_key(job.job), record_of_job(job))


def record_of_job(job: Job) -> JobRecord:
    run, desired = job.run, job.map
    return JobRecord(
        job=job.job,
        run_id=run.run_id,
        name=run.name,
        application_id=run.application_id,
        task_groups=desired.task_groups,
        configuration_epoch=desired.configuration_epoch,
        desired=tuple(DesiredWorker(n.task_group, n.partition, w) for n, w in sorted(desired.desired.items())),
        host=run.host,
        since_ms=run.since_ms,
        location=job.location,
        owner=job.owner,
        temporary=job.temporary,
    )


def job_of_record(record: JobRecord) -> Job:
    """The job of a former process."""
    run = Run(record.run_id, record.name, record.application_id, record.host, record.since_ms)
    desired = {VirtualNode(record.job, d.task_group, d.partition): d.worker for d in record.desired}
    restored = DesiredMap(record.job, record.task_groups, record.configuration_epoch, desired)
    return Job(record.job, restored, run, record.location, record.owner, record.temporary)
