"""Deletes the unneeded content of an archive: manifests by the retention, and then packs without a name."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from typing import NamedTuple

from rhino_archive.bucket import Bucket
from rhino_archive.manifest import BATCHES, manifest_of
from rhino_archive.retention import Retention, Written, sweep
from rhino_core.errors import UnknownError

log = logging.getLogger(__name__)
UNNAMED = "unnamed"  # object with the packs that no manifest names, and since when


class Unneeded(NamedTuple):
    """Names of objects to delete now, `pack_bytes` of the packs, and what stays: manifests, and packs without a name.

    `unnamed`: their hashes, and since when, in Unix milliseconds.
    """

    batches: tuple[str, ...]
    packs: tuple[str, ...]
    pack_bytes: int
    kept: frozenset[str]
    unnamed: Mapping[str, int]


class Keeper:
    """Keeps the archive of one query small.

    Every time here is the store's: the clock of this machine may be wrong. Two keepers at once, as that of a manager
    and one by hand, do no harm: both wait for a day, and their notes of packs without a name are as old as their work.
    """

    def __init__(self, bucket: Bucket, retention: Retention) -> None:
        self._bucket = bucket
        self._retention = retention
        self._packs_of: dict[str, frozenset[str]] = {}  # by manifest; manifests never change

    async def keep(self, job: str) -> Unneeded | None:
        """Deletes what `find` finds, and returns it."""
        found = await self.find(job)
        if found is None:
            return None
        await self._bucket.delete(*found.batches)
        await self._bucket.delete(*found.packs)
        await self._bucket.put(f"{job}/{UNNAMED}", json.dumps(dict(found.unnamed)).encode())
        if found.batches or found.packs:
            extra = {"job": job, "batches": len(found.batches), "packs": len(found.packs), "kept": len(found.kept)}
            log.info("archive pruned", extra=extra)
        return found

    async def find(self, job: str) -> Unneeded | None:
        """None if there is no batch. Raises the errors of the bucket.

        A damaged manifest is an error, because nobody knows its packs.
        """
        packs = {one.name.rpartition("/")[2]: one async for one in self._bucket.list(f"{job}/packs/")}
        found = [one async for one in self._bucket.list(f"{job}/{BATCHES}/")]
        written = [Written(one.name, round(one.changed.timestamp() * 1000)) for one in found]
        if not written:
            return None
        kept = self._retention.kept(written)
        named = [pack for name in sorted(kept) for pack in await self._packs(name)]
        self._packs_of = {name: self._packs_of[name] for name in kept}
        now_ms = max(one.written_ms for one in written)
        swept = sweep(packs, frozenset(named), await self._unnamed(job), now_ms)
        return Unneeded(
            tuple(one.name for one in written if one.name not in kept),
            tuple(packs[pack].name for pack in swept.gone),
            sum(packs[pack].size_bytes for pack in swept.gone),
            kept,
            swept.unnamed,
        )

    async def _packs(self, name: str) -> frozenset[str]:
        if name not in self._packs_of:
            try:
                data = await self._bucket.get(name)
                self._packs_of[name] = (await asyncio.to_thread(manifest_of, data, name)).packs
            except UnknownError:  # deleted meanwhile
                self._packs_of[name] = frozenset()
        return self._packs_of[name]

    async def _unnamed(self, job: str) -> Mapping[str, int]:
        """Of the last sweep. Damage costs a day."""
        try:
            found = json.loads(await self._bucket.get(f"{job}/{UNNAMED}"))
            return {str(pack): int(since_ms) for pack, since_ms in found.items()}
        except (UnknownError, ValueError, AttributeError, TypeError):
            return {}
