"""Deletes the unneeded content of an archive: manifests by the retention, and then packs without a name."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from typing import NamedTuple

from rhino_archive.bucket import Bucket, Object
from rhino_archive.manifest import BATCHES, manifest_of
from rhino_archive.retention import Retention, Written, sweep
from rhino_core.errors import UnknownError

log = logging.getLogger(__name__)
UNNAMED = "unnamed"  # object with the packs that no manifest names, and since when
SWEEP_S_MAX = 3600.0  # one that has taken longer deletes nothing: this process hung, and others have gone on


class Unneeded(NamedTuple):
    """Names of objects to delete now, `pack_bytes` of the packs, and what stays: manifests, and packs without a name.

    `unnamed`: their hashes, and since when, in Unix milliseconds; None: since this look.
    """

    batches: tuple[str, ...]
    packs: tuple[str, ...]
    pack_bytes: int
    kept: frozenset[str]
    unnamed: Mapping[str, int | None]


class Keeper:
    """Keeps the archive of one query small.

    Every time here is the store's: the clock of this machine may be wrong. Two keepers at once, as that of a manager
    and one by hand, do no harm: both wait for a day, and their notes of packs without a name are as old as their work.
    """

    def __init__(self, bucket: Bucket, retention: Retention) -> None:
        self._bucket = bucket
        self._retention = retention
        # A name alone is not enough: a manifest that was deleted may be written again, with other packs.
        self._packs_of: dict[Written, frozenset[str]] = {}

    async def keep(self, job: str, newest: str = "") -> Unneeded | None:
        """Deletes what `find` finds, and returns it. None also if the look took too long: others have gone on."""
        clock = asyncio.get_running_loop().time
        began_at = clock()
        found = await self.find(job, newest)
        if found is None or clock() - began_at > SWEEP_S_MAX:
            return None
        await self._bucket.put(f"{job}/{UNNAMED}", json.dumps(dict(found.unnamed)).encode())
        await self._bucket.delete(*found.batches)
        await self._bucket.delete(*found.packs)
        if found.batches or found.packs:
            extra = {"job": job, "batches": len(found.batches), "packs": len(found.packs), "kept": len(found.kept)}
            log.info("archive pruned", extra=extra)
        return found

    async def find(self, job: str, newest: str = "") -> Unneeded | None:
        """`newest`: a manifest that stays: after a step of the store's clock it may seem old.

        None if there is no batch. Raises the errors of the bucket. A damaged manifest is an error, because nobody knows
        its packs.
        """
        folder = f"{job}/packs"
        # Packs come before manifests: one that was uploaded meanwhile has no name yet.
        stored = {one.name: one async for one in self._bucket.list(f"{job}/", after=folder)}
        written = [_written(one) async for one in self._bucket.list(f"{job}/{BATCHES}/")]
        if not written:
            return None
        stay = self._retention.kept(written) | {newest}
        kept = [one for one in written if one.name in stay]
        named = [pack for one in sorted(kept) for pack in await self._packs(one)]
        before, noted_ms = await self._unnamed(stored.get(f"{job}/{UNNAMED}"))
        packs = [name.rpartition("/")[2] for name in stored if name.startswith(f"{folder}/")]
        swept = sweep(packs, frozenset(named), before, noted_ms)
        gone = [f"{folder}/{pack}" for pack in swept.gone]
        self._packs_of = {one: packs for one, packs in self._packs_of.items() if one in kept}
        return Unneeded(
            tuple(one.name for one in written if one.name not in stay),
            tuple(gone),
            sum(stored[name].size_bytes for name in gone),
            frozenset(one.name for one in kept),
            swept.unnamed,
        )

    async def _packs(self, one: Written) -> frozenset[str]:
        if one not in self._packs_of:
            try:
                data = await self._bucket.get(one.name)
                self._packs_of[one] = (await asyncio.to_thread(manifest_of, data, one.name)).packs
            except UnknownError:  # deleted meanwhile
                return frozenset()
        return self._packs_of[one]

    async def _unnamed(self, noted: Object | None) -> tuple[Mapping[str, int | None], int]:
        """The note of the last sweep, and its time. Damage costs a day."""
        if noted is None:
            return {}, 0
        try:
            found = json.loads(await self._bucket.get(noted.name))
            times = {str(pack): None if since_ms is None else int(since_ms) for pack, since_ms in found.items()}
        except (UnknownError, ValueError, AttributeError, TypeError):
            return {}, 0
        return times, _written(noted).written_ms


def _written(one: Object) -> Written:
    return Written(one.name, round(one.changed.timestamp() * 1000))
