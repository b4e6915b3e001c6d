"""Parts of the tests of checkpoint that other tests use as well."""

from __future__ import annotations

import json
from pathlib import Path

from spark_connector.conf import PROVIDER_CLASSES
from spark_connector.query_checkpoint import PROVIDER_KEY, QueryCheckpoint

STOCK, RHINO = PROVIDER_CLASSES["checkpoint"], PROVIDER_CLASSES["provider"]


def make(folder: Path, ids: dict[str, list[list[str]]], *, log: str = "v2", batches: int = 2) -> QueryCheckpoint:
    """A checkpoint with these checkpoint ids in its newest batch."""
    for name in ("offsets", "commits", "state"):
        (folder / name).mkdir(parents=True)
    (folder / "metadata").write_text('{"id":"job-1"}')
    for batch in range(batches):
        conf = {"conf": {PROVIDER_KEY: STOCK, "other": "ä"}, "batchWatermarkMs": 0}
        (folder / "offsets" / str(batch)).write_text(f'v1\n{json.dumps(conf)}\n{{"offset":1}}\n-')
        (folder / "offsets" / f".{batch}.crc").write_bytes(b"crc")
        (folder / "commits" / str(batch)).write_text(f"{log}\n" + json.dumps({"stateUniqueIds": ids}))
    return QueryCheckpoint(folder)
