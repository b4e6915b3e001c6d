"""Deletes the unneeded content of an archive: manifests by the retention, and then packs without a name."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping

from rhino_archive.bucket import Bucket
from rhino_archive.manifest import BATCHES, manifest_of
from rhino_archive.retention import Retention, Written, sweep
from rhino_core.errors import UnknownError

log = logging.getLogger(__name__)
UNNAMED = "unnamed"  # object with the packs that no manifest names, and since when


class Keeper:
    """Keeps the archive of one query small. Only the cluster that may write it calls `keep`.

    Every time here is the store's: the clock of this machine may be wrong.
    """

    def __init__(self, bucket: Bucket, retention: Retention) -> None:
        self._bucket = bucket
        self._retention = retention
        self._packs_of: dict[str, frozenset[str]] = {}  # by manifest; manifests never change

    async def keep(self, job: str) -> None:
        """Raises the errors of the bucket. A damaged manifest stops it, because nobody knows its packs."""
        packs = {one.name.rpartition("/")[2]: one async for one in self._bucket.list(f"{job}/packs/")}
        found = [one async for one in self._bucket.list(f"{job}/{BATCHES}/")]
        written = [Written(one.name, round(one.changed.timestamp() * 1000)) for one in found]
        if not written:
            return
        kept = self._retention.kept(written)
        old = [one.name for one in written if one.name not in kept]
        named = [pack for name in sorted(kept) for pack in await self._packs(name)]
        await self._bucket.delete(*old)
        now_ms = max(one.written_ms for one in written)
        swept = sweep(packs, frozenset(named), await self._unnamed(job), now_ms)
        await self._bucket.delete(*(packs[pack].name for pack in swept.gone))
        await self._bucket.put(f"{job}/{UNNAMED}", json.dumps(swept.unnamed).encode())
        self._packs_of = {name: self._packs_of[name] for name in kept}
        if old or swept.gone:
            extra = {"job": job, "batches": len(old), "packs": len(swept.gone), "kept": len(kept)}
            log.info("archive pruned", extra=extra)

    async def _packs(self, name: str) -> frozenset[str]:
        if name not in self._packs_of:
            try:
                self._packs_of[name] = manifest_of(await self._bucket.get(name), name).packs
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
