"""Journal records of jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from handover_manager.queries.job import Job
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
    """A query with its newest run and its map. Older records lack the fields with defaults."""

    job: str
    run_id: str
    name: str
    application_id: str
    task_groups: tuple[TaskGroup, ...]
    configuration_epoch: int
    desired: tuple[DesiredWorker, ...]
    host: str = ""
    since_ms: int = 0
    location: str = ""


def job_key(job: str) -> str:
    return f"{JOB_PREFIX}{job}"


def record_of_job(job: Job) -> JobRecord:
    return JobRecord(
        job=job.job,
        run_id=job.run_id,
        name=job.name,
        application_id=job.application_id,
        task_groups=job.task_groups,
        configuration_epoch=job.configuration_epoch,
        desired=tuple(DesiredWorker(n.task_group, n.partition, w) for n, w in sorted(job.desired.items())),
        host=job.host,
        since_ms=job.since_ms,
        location=job.location,
    )


def job_of_record(record: JobRecord) -> Job:
    return Job(
        job=record.job,
        run_id=record.run_id,
        name=record.name,
        application_id=record.application_id,
        host=record.host,
        since_ms=record.since_ms,
        location=record.location,
        task_groups=record.task_groups,
        configuration_epoch=record.configuration_epoch,
        desired={VirtualNode(record.job, d.task_group, d.partition): d.worker for d in record.desired},
    )
