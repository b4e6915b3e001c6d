"""One partition of a stream-stream join as Spark 4.3 wrote it (data/): versions 1 to 5, snapshots of 1 and 4."""

from __future__ import annotations

import json
import tarfile
from dataclasses import dataclass
from pathlib import Path

from rhino_core.ids import FileKind, StoreId, Version, parse_name
from worker_runtime.storage.store import Store

ARCHIVE = Path(__file__).parent / "data" / "join-store-of-spark-4.3.tar.xz"
STORE = StoreId("join", 0, 1, "default")
KEYS_4 = 3172  # numKeys and numInternalKeys of the snapshot of version 4


@dataclass(frozen=True, slots=True)
class SparkFiles:
    content: dict[str, bytes]
    lineage: dict[str, list[Version]]

    def named(self, beginning: str) -> str:
        return next(name for name in sorted(self.content) if name.startswith(beginning))


def spark_files() -> SparkFiles:
    with tarfile.open(ARCHIVE) as archive:
        content = {member.name: archive.extractfile(member).read() for member in archive}  # type: ignore[union-attr]
    lineage = {name: [Version(*v) for v in versions] for name, versions in json.loads(content["lineage.json"]).items()}
    del content["lineage.json"]
    return SparkFiles(content, lineage)


async def fill(data_dir: Path, files: SparkFiles) -> None:
    """A store that holds these files, closed again. Data files first, as zips need them."""
    store = Store.open("a", data_dir, 0)
    for name in sorted(files.content, key=lambda n: parse_name(n).kind is not FileKind.SST):
        inbox = store.layout.inbox / "file"
        inbox.write_bytes(files.content[name])
        await store.uploads.take_over(STORE, name, inbox, tuple(files.lineage.get(name, ())))
    store.close()
