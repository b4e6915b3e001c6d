"""Branches: versions of one job become versions of another job, as links to the same files.

A restructured query is a branch with other operators: some stores change their operator, and some begin empty.

This worker becomes the owner of the new groups, and commits the links like files of an executor. Members of the new
groups with the files of the first job link them, too; others get the bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rhino_core.errors import InvalidRequestError, UnknownError
from rhino_core.ids import FileEntry, GroupId, ReplicaGroup, StoreId, StoreVersion
from worker_runtime.manager_link.client import ManagerClient
from worker_runtime.protocol import events as ev
from worker_runtime.protocol.versions.closure import pull_order
from worker_runtime.replication import Replication

log = logging.getLogger(__name__)
TIMEOUT_S = 60.0
AT_ONCE = 4  # stores at a time: commits of executors must not wait behind many links


@dataclass(frozen=True, slots=True)
class Branched:
    """The files linked on this worker."""

    files: int
    linked_bytes: int
    duration_ms: float


@dataclass(frozen=True, slots=True)
class VersionLink:
    """A version that becomes one of the store `target`, with the same number and id."""

    source: StoreVersion
    target: StoreId


@dataclass(frozen=True, slots=True)
class Empty:
    """A version without keys. `like`: a group of the former job; a new group gets its settings."""

    version: StoreVersion
    like: GroupId


class Brancher:
    """Serves `Peer.Branch`."""

    def __init__(self, replication: Replication, manager: ManagerClient) -> None:
        self._replication = replication
        self._store = replication.store
        self._manager = manager
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def branch(self, links: Sequence[VersionLink], empty: Sequence[Empty], timeout_s: float) -> Branched:
        """Returns when enough members of the new groups hold all versions.

        Raises InvalidRequestError, UnknownError if a version is not held here, PreconditionError for a forgotten job,
        CopiesTimeoutError, and the errors of `Branches.link`.
        """
        started = time.monotonic()
        timeout_s = timeout_s or TIMEOUT_S
        if same := [one.version for one in empty if one.version.store.job == one.like.job]:
            raise InvalidRequestError(f"{same[0]}: an empty store can be made for a new job only")
        closures = [self._closure(link) for link in links]
        groups = {link.target.group: link.source.store.group for link in links}
        groups |= {one.version.store.group: one.like for one in empty if one.version.store.group not in groups}
        settings = {group: self._source(source).settings for group, source in groups.items()}
        linked = {link.target.group for link in links}
        with contextlib.ExitStack() as kept:
            for link, closure in zip(links, closures, strict=True):
                names = [entry.name for entry in closure]
                kept.enter_context(self._store.retention.protecting(link.source.store, names))
            for group, source in sorted(groups.items()):
                await self._manager.known(group, settings[group], branch_of=source if group in linked else None)
            linking = [self._link(one, link.target, timeout_s) for one, link in zip(closures, links, strict=True)]
            await _all([*linking, *(self._make_empty(one.version, timeout_s) for one in empty)])
        files = [entry for closure in closures for entry in closure]
        branched = Branched(len(files), sum(entry.size_bytes for entry in files), (time.monotonic() - started) * 1000)
        job = next(iter(groups)).job if groups else ""
        extra = {"branch": job, "versions": len(links), "files": branched.files, "bytes": branched.linked_bytes}
        log.info("branched", extra={**extra, "duration_ms": round(branched.duration_ms, 1)})
        return branched

    def _closure(self, link: VersionLink) -> tuple[FileEntry, ...]:
        """The closure of the version, in the order in which its files may become known."""
        version, store = link.source, link.source.store
        if store.job == link.target.job:
            raise InvalidRequestError(f"{store}: a job cannot be a branch of itself")
        catalogue = self._store.catalogue.store(store)
        names = catalogue.closure(version.version)
        if names is None:
            me = self._replication.me.worker_id
            raise UnknownError(f"{version}: worker {me} does not hold this version")
        found = [entry for name in names if (entry := catalogue.get(name)) is not None]
        return pull_order(sorted(found, key=lambda entry: (entry.version or (), entry.name)))

    def _source(self, group: GroupId) -> ReplicaGroup:
        self._manager.require_unforgotten(group)
        source = self._replication.group(group)
        if source is None:
            raise UnknownError(f"group {group} is not known to worker {self._replication.me.worker_id}")
        return source

    async def _link(self, closure: Sequence[FileEntry], target: StoreId, timeout_s: float) -> None:
        """Links the files of one version, data files first, and waits for the copies of all changelogs and zips."""
        committed: list[FileEntry] = []
        async with self._turns:
            for source in closure:
                record = await self._store.branches.link(source, target)
                if record.entry.kind.versioned:
                    committed.append(record.entry)
                else:
                    self._replication.post(ev.FileStored(record.entry, written=True))
        await asyncio.gather(*(self._replication.commit(entry, timeout_s) for entry in committed))

    async def _make_empty(self, version: StoreVersion, timeout_s: float) -> None:
        async with self._turns:
            record = await self._store.branches.make_empty(version)
        await self._replication.commit(record.entry, timeout_s)


async def _all(work: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Runs everything at once. After a failure nothing goes on: the links are about to be forgotten."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
