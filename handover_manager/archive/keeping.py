"""Deletes the unneeded content of an archive: manifests by the retention, and then packs without a name."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping

from rhino_archive.bucket import Bucket, Object
from rhino_archive.manifest import BATCHES, manifest_of
from rhino_archive.retention import Retention, Written, sweep
from rhino_core.errors import UnknownError

log = logging.getLogger(__name__)
UNNAMED = "unnamed"  # object with the packs that no manifest names, and since when
SWEEP_S_MAX = 3600.0  # one that has taken longer deletes nothing: this process hung, and others have gone on


class Keeper:
    """Keeps the archive of one query small. Only the cluster that may write it calls `keep`.

    Every time here is the store's: the clock of this machine may be wrong.
    """

    def __init__(self, bucket: Bucket, retention: Retention) -> None:
        self._bucket = bucket
        self._retention = retention
        # A name alone is not enough: a manifest that was deleted may be written again, with other packs.
        self._packs_of: dict[Written, frozenset[str]] = {}

    async def keep(self, job: str, newest: str = "") -> None:
        """`newest`: a manifest that stays: after a step of the store's clock it may seem old.

        Raises the errors of the bucket. A damaged manifest stops it, because nobody knows its packs.
        """
        clock, folder = asyncio.get_running_loop().time, f"{job}/packs"
        began_at = clock()
        # Packs come before manifests: one that was uploaded meanwhile has no name yet.
        found = {one.name: one async for one in self._bucket.list(f"{job}/", after=folder)}
        written = [_written(one) async for one in self._bucket.list(f"{job}/{BATCHES}/")]
        if not written:
            return
        stay = self._retention.kept(written) | {newest}
        kept = [one for one in written if one.name in stay]
        named = [pack for one in sorted(kept) for pack in await self._packs(one)]
        before, noted_ms = await self._unnamed(found.get(f"{job}/{UNNAMED}"))
        packs = [name.rpartition("/")[2] for name in found if name.startswith(f"{folder}/")]
        swept = sweep(packs, frozenset(named), before, noted_ms)
        old = [one.name for one in written if one.name not in stay]
        if clock() - began_at > SWEEP_S_MAX:
            return
        await self._bucket.put(f"{job}/{UNNAMED}", json.dumps(swept.unnamed).encode())
        await self._bucket.delete(*old)
        await self._bucket.delete(*(f"{folder}/{pack}" for pack in swept.gone))
        self._packs_of = {one: packs for one, packs in self._packs_of.items() if one in kept}
        if old or swept.gone:
            extra = {"job": job, "batches": len(old), "packs": len(swept.gone), "kept": len(kept)}
            log.info("archive pruned", extra=extra)

    async def _packs(self, one: Written) -> frozenset[str]:
        if one not in self._packs_of:
            try:
                self._packs_of[one] = manifest_of(await self._bucket.get(one.name), one.name).packs
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
