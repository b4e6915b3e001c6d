"""Overviews of imagined clusters."""

from __future__ import annotations

from collections.abc import Iterable

from rhino.client.overview import GroupView, JobView, MemberView, Overview, VirtualNodeView, WorkerView
from rhino_core.ids import Epoch, GroupId, JobSettings

JOB = "5b1f0c3e-9a3f-4d5a-8a35-1d5a3a1f0c3e"


def worker(name: str, state: str = "live", host: str = "", disk: str = "ok", *, draining: bool = False) -> WorkerView:
    place = host or f"host-of-{name}"
    return WorkerView(
        name, place, f"{place}:7462", state, 10, 10**9, 2, 2, 0.1, 1, 1, disk=disk, disk_message="", draining=draining
    )


def group(partition: int, members: str, job: str = JOB, settings: JobSettings | None = None) -> GroupView:
    """`members`: names; a trailing "-" is a member that catches up, a trailing "!" one that is lost."""
    views = tuple(
        MemberView(name.rstrip("-!"), "lost" if name.endswith("!") else "live", not name.endswith("-"), 1, 100)
        for name in members.split()
    )
    given = settings or JobSettings()
    return GroupView(GroupId(job, 0, partition), Epoch(1, 1), given.copies, given.copies, 0, views, given)


def node(
    partition: int, desired: str, actual: str, rows: int | None = 10, task_s: float | None = 0.5
) -> VirtualNodeView:
    return VirtualNodeView(f"0/{partition}", desired, actual, 0, (desired,), rows, task_s)


def job(*nodes: VirtualNodeView, name: str = "counts", job_id: str = JOB, missed: int = 0) -> JobView:
    return JobView(job_id, name, True, 7, 1, nodes, missed_now=missed)


def overview(workers: Iterable[WorkerView], groups: Iterable[GroupView] = (), jobs: Iterable[JobView] = ()) -> Overview:
    return Overview(1, tuple(workers), tuple(groups), tuple(jobs))
