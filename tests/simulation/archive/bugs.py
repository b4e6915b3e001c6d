"""Deliberate bugs, by patching the real parts: the watch must find each."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from handover_manager.archive import archiver, machine
from handover_manager.archive import events as ev
from handover_manager.archive.archiver import Archiver
from handover_manager.archive.machine import ArchivedQuery, ArchiveMachine, Round
from rhino_archive import claims, keeping, retention
from rhino_archive.keeping import Keeper
from rhino_archive.manifest import Manifest
from rhino_archive.retention import Retention, Written
from rhino_core.errors import ConflictError, IntegrityError
from rhino_core.ids import GroupId, Lane
from tests.simulation.archive.world import DAY_S
from worker_runtime.archiving import uploading
from worker_runtime.archiving.uploading import Order

Patch = pytest.MonkeyPatch


def part_returned_before_its_last_pack(patch: Patch) -> None:
    """A sidecar returns its part while the last pack is still on its way."""

    async def finish(self: Any, job: str, archived: Mapping[GroupId, Iterable[Any]]) -> None:
        versions = [version for theirs in archived.values() for version in theirs]
        work = lambda: self._packer.close(versions, tuple(archived))  # noqa: E731
        closed = await self._store.threads.run(Lane.BULK, work)
        self._later = asyncio.get_running_loop().create_task(self._put(job, closed.packs))
        self._known.listed(closed.part, closed.versions)
        self._progress.part = closed.part

    patch.setattr(uploading._Upload, "_finish", finish)


def packs_deleted_at_once(patch: Patch) -> None:
    """A pack goes as soon as two sweeps have seen it without a name."""
    patch.setattr(retention, "GRACE_MS", 0)


def packs_are_old_when_first_seen(patch: Patch) -> None:
    """After the loss of the notes, every pack without a name counts as old."""
    original = retention.sweep

    def sweep(packs: Iterable[str], named: Any, before: Mapping[str, int | None], noted_ms: int) -> Any:
        packs = list(packs)
        return original(packs, named, {**dict.fromkeys(packs, 0), **before}, noted_ms)

    patch.setattr(keeping, "sweep", sweep)


def never_swept(patch: Patch) -> None:
    """The notes of the last sweep are not read."""

    async def unnamed(self: Keeper, noted: object) -> tuple[dict[str, int | None], int]:
        return {}, 0

    patch.setattr(Keeper, "_unnamed", unnamed)


def damaged_manifest_has_no_packs(patch: Patch) -> None:
    """Retention goes on without the packs of a manifest that it cannot read."""
    original = Keeper._packs

    async def packs(self: Keeper, one: Written) -> frozenset[str]:
        try:
            return await original(self, one)
        except IntegrityError:
            return frozenset()

    patch.setattr(Keeper, "_packs", packs)


def newest_is_deleted(patch: Patch) -> None:
    """Retention looks at the times of manifests only."""
    patch.setattr(Retention, "kept", lambda self, found: frozenset(sorted(one.name for one in found)[:1]))
    original = Keeper.keep
    patch.setattr(Keeper, "keep", lambda self, job, newest="": original(self, job))


def rounds_never_end(patch: Patch) -> None:
    """A round goes on for days."""
    patch.setattr(machine, "ROUND_S_MAX", 10 * DAY_S)


def claim_is_read_once(patch: Patch) -> None:
    """A manager reads at its first round only who may write."""
    original = Archiver._claim

    async def claim(self: Archiver, job: str) -> None:
        if job not in self._claimed:
            await original(self, job)

    patch.setattr(Archiver, "_claim", claim)


def stranger_writes(patch: Patch) -> None:
    """A cluster writes although another one has the claim."""
    original = claims.claim

    async def claim(*arguments: Any, **named: Any) -> None:
        with contextlib.suppress(ConflictError):
            await original(*arguments, **named)

    patch.setattr(archiver, "claim", claim)


def answers_to_any_round_count(patch: Patch) -> None:
    """The part of a former round goes into the manifest of this one."""

    def in_round(self: ArchiveMachine, job: str, number: int) -> ArchivedQuery | None:
        query = self.queries.get(job)
        return query if query is not None and query.round is not None else None

    patch.setattr(ArchiveMachine, "_in_round", in_round)
    # Calls of the former round go on.
    publish = Archiver.publish
    patch.setattr(
        Archiver, "publish", lambda self, effect: None if isinstance(effect, ev.StopUploads) else publish(self, effect)
    )


def last_part_is_returned_again(patch: Patch) -> None:
    """A sidecar returns the part of the groups that it has uploaded last, whatever the batch is."""
    original = uploading._Upload.run
    parts: dict[tuple[int, frozenset[GroupId]], Any] = {}

    async def run(self: Any, order: Order) -> None:
        key = id(self._known), frozenset(version.store.group for version in order.versions)
        if key in parts:
            self._progress.part = parts[key]
            return
        await original(self, order)
        parts[key] = self._progress.part

    patch.setattr(uploading._Upload, "run", run)


def refused_groups_count_as_done(patch: Patch) -> None:
    """A manifest is written although a sidecar has refused some of its groups."""
    original = ArchiveMachine._answered

    def answered(self: ArchiveMachine, event: Any, now: float) -> list[ev.Effect]:
        query = self._in_round(event.job, event.round)
        if isinstance(event, ev.PartUploaded) and query is not None and query.round is not None:
            around: Round = query.round
            groups = frozenset(event.part.groups) if event.part is not None else frozenset[GroupId]()
            if event.worker_id in around.asked:
                for group in around.asked[event.worker_id] - groups:
                    around.versions.pop(group)
                around.asked[event.worker_id] = groups
        return original(self, event, now)

    patch.setattr(ArchiveMachine, "_answered", answered)


def a_rewind_does_not_end_the_round(patch: Patch) -> None:
    """The files of the checkpoint that belong to a batch of the new history go with the state of the former one."""
    original = ArchiveMachine._logged

    def logged(self: ArchiveMachine, query: ArchivedQuery, event: ev.BatchKnown, now: float) -> list[ev.Effect]:
        around = query.round
        original(self, query, event, now)
        query.round = around
        return []

    patch.setattr(ArchiveMachine, "_logged", logged)


def manifest_has_the_batch_logged_last(patch: Patch) -> None:
    """A manifest has the number and digest of the newest batch, and the parts of the one of its round."""
    original = ArchiveMachine._manifest

    def manifest(self: ArchiveMachine, around: Round) -> Manifest:
        newest = self.queries[around.batch.job].logged
        assert newest is not None
        return original(self, dataclasses.replace(around, batch=newest))

    patch.setattr(ArchiveMachine, "_manifest", manifest)


BUGS = [
    part_returned_before_its_last_pack,
    packs_deleted_at_once,
    packs_are_old_when_first_seen,
    never_swept,
    damaged_manifest_has_no_packs,
    newest_is_deleted,
    rounds_never_end,
    claim_is_read_once,
    stranger_writes,
    answers_to_any_round_count,
    last_part_is_returned_again,
    refused_groups_count_as_done,
    a_rewind_does_not_end_the_round,
    manifest_has_the_batch_logged_last,
]
