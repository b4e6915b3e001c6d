"""Translates the manager's group updates into events of the chain machine."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from rhino_core.ids import Epoch, GroupId, ReplicaGroup
from worker_runtime.protocol import events as ev


def events_of_update(
    groups: Collection[ReplicaGroup],
    left: Iterable[GroupId],
    forgotten: Mapping[str, Epoch],
    known: Iterable[GroupId],
    *,
    snapshot: bool,
) -> list[ev.Event]:
    """Returns the events in the order that the machine requires.

    A snapshot contains all groups that concern this worker. So a group in `known` but not in the snapshot has gone.
    """
    gone = set(left)
    if snapshot:
        gone |= set(known) - {group.group for group in groups}
    return [
        *(ev.JobForgotten(job, fence) for job, fence in forgotten.items()),
        *(ev.GroupAdopted(group) for group in groups),
        *(ev.GroupLeft(group) for group in sorted(gone)),
    ]
