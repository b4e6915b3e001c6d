"""New settings for a job after a restart of its query with other values.

Only settings from the driver of the run that the handover manager follows count. Settings from executors count for the
first group of a job only, because executors of a former run may live on for a while.
"""

from __future__ import annotations

from dataclasses import replace

from replication_manager.protocol import events as ev
from replication_manager.protocol.changes.chains import Chains
from rhino_core.ids import Durability, GroupId, JobSettings


class Resettling:
    """Applies other settings to the groups of a job.

    A chain is shortened only when enough of it is whole.
    """

    def __init__(self, chains: Chains) -> None:
        self._chains = chains
        self._surplus: dict[GroupId, frozenset[str]] = {}  # groups that are too long, with their members at that time

    def named(self, job: str, asked: JobSettings) -> list[ev.Effect]:
        """Applies the driver's settings `asked`. A job without groups gets settings with its first group.

        Raises PreconditionError for a setting that cannot change.
        """
        present = self._chains.settings_of(job)
        settings = present and settings_from_now(present, asked)
        if settings is None or settings == present:
            return []
        self._chains.remember(job, settings)
        effects: list[ev.Effect] = []
        for group in self._chains.of_job(job):
            self._surplus[group.group] = frozenset(m.worker.worker_id for m in group.members)
            effects += self._chains.resettle(group, settings, self._surplus[group.group])
            self._settle(group.group)
        return effects

    def shorten(self, group_id: GroupId) -> list[ev.Effect]:
        """Lets surplus members leave. Call it when a member may have become whole."""
        group, surplus = self._chains.groups.get(group_id), self._surplus.get(group_id)
        if group is None or surplus is None:
            return []
        effects = self._chains.shorten(group, surplus)
        self._settle(group_id)
        return effects

    def forget(self, group: GroupId) -> None:
        self._surplus.pop(group, None)

    def _settle(self, group_id: GroupId) -> None:
        if not self._chains.too_long(self._chains.groups[group_id]):
            self._surplus.pop(group_id, None)


def settings_from_now(present: JobSettings, asked: JobSettings) -> JobSettings:
    """Returns the settings of the job after its query has been started with `asked`.

    A synced job stays synced, because sidecars remember the stronger durability.
    """
    synced = Durability.SYNCED in (present.durability, asked.durability)
    settled = replace(asked, durability=Durability.SYNCED) if synced else asked
    same = replace(settled, min_copies=settled.copies) == replace(present, min_copies=present.copies)
    return present if same else settled
