"""Deliberate bugs in Prepare, in who hears of what, and in clocks; see bugs.py."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from unittest.mock import patch

import pytest

from replication_manager.protocol.pending_changes import PendingChanges
from rhino_core.ids import ReplicaGroup, StoreVersion, Worker
from tests.simulation.cluster import Cluster
from tests.simulation.faults import FaultInjector
from tests.simulation.sidecar import Sidecar
from worker_runtime.protocol import events as ev
from worker_runtime.protocol.chain.membership import GroupState
from worker_runtime.protocol.copies.preparing import Known, Survey, Verdict
from worker_runtime.storage.index.arrivals import Arrivals

Patch = pytest.MonkeyPatch
_verdict = Survey.verdict


def lost_though_a_worker_is_absent(patch_: Patch) -> None:
    """Prepare does not wait for workers that may come back with the version."""

    def verdict(self: Survey, unknown: Sequence[StoreVersion], known: Known, me: Worker) -> Verdict:
        return _verdict(self, unknown, dataclasses.replace(known, absent=(), may_hold=None), me)

    patch_.setattr(Survey, "verdict", verdict)


def lost_though_a_worker_is_silent(patch_: Patch) -> None:
    """A worker that does not answer is taken for one that does not hold the version."""

    def verdict(self: Survey, unknown: Sequence[StoreVersion], known: Known, me: Worker) -> Verdict:
        live = tuple(worker for worker in known.live if worker.worker_id not in self.silent)
        with patch.object(self, "silent", {}):
            return _verdict(self, unknown, dataclasses.replace(known, live=live, may_hold=None), me)

    patch_.setattr(Survey, "verdict", verdict)


def lost_though_nobody_says_who_lives(patch_: Patch) -> None:
    """Prepare believes the last word of a manager that cannot be asked."""

    def verdict(self: Survey, unknown: Sequence[StoreVersion], known: Known, me: Worker) -> Verdict:
        return _verdict(self, unknown, dataclasses.replace(known, connected=True), me)

    patch_.setattr(Survey, "verdict", verdict)


def only_members_hear_of_a_group(patch_: Patch) -> None:
    """A worker that stores files of a group that it has left gets no updates of the group."""
    patch_.setattr(PendingChanges, "_stores", lambda self, group: False)


def files_come_by_the_wall_clock(patch_: Patch) -> None:
    """Files that arrive after the clock was set back seem older than those before. Clocks are set more often here."""
    original = FaultInjector.__init__

    def restless(self: FaultInjector, cluster: Cluster) -> None:
        original(self, cluster)
        self._kinds[self._set_clock] = 20

    patch_.setattr(FaultInjector, "__init__", restless)
    patch_.setattr(Sidecar, "monotonic_ns", Sidecar.wall_ns)
    patch_.setattr(Arrivals, "now_ns", lambda self: self._clock())


def not_counted_and_no_catch_up(patch_: Patch) -> None:
    """A member that learns that it does not count as whole relies on what it has compared before."""
    original = GroupState.adopt

    def adopt(self: GroupState, new: ReplicaGroup, me: Worker) -> list[ev.Effect]:
        before, mine = self.group.member(me.worker_id), new.member(me.worker_id)
        if before is not None and before.whole and mine is not None and not mine.whole:
            counting = tuple(dataclasses.replace(m, whole=m.whole or m is mine) for m in new.members)
            effects = original(self, dataclasses.replace(new, members=counting), me)
            self.group = new
            return effects
        return original(self, new, me)

    patch_.setattr(GroupState, "adopt", adopt)


SEAM_BUGS = [
    lost_though_a_worker_is_absent,
    lost_though_a_worker_is_silent,
    lost_though_nobody_says_who_lives,
    only_members_hear_of_a_group,
    files_come_by_the_wall_clock,
    not_counted_and_no_catch_up,
]
