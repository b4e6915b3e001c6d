"""The files stored by adopt, and the reading of their content."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rhino_core.errors import PreconditionError
from rhino_core.ids import FileEntry, StoreVersion
from worker_runtime.verify import changelog, lz4_blocks

CODEC_KEY = "spark.sql.streaming.stateStore.compression.codec"
CHANGELOGS_KEY = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"


@dataclass(frozen=True, slots=True)
class StateFile:
    """A file to store in Rhino under the name in `entry`, with the content of `path`.

    `gets_lineage`: the content is a changelog of format 1, to be extended by the lineage in `entry`. Its size in
    `entry` is then the size of `path`, nearly the size of the result.
    """

    entry: FileEntry
    path: Path
    gets_lineage: bool = False


@dataclass(frozen=True, slots=True)
class StoreFiles:
    """A store's newest committed version, and its closure, in the order required by a sidecar."""

    version: StoreVersion
    files: tuple[StateFile, ...]

    @property
    def size_bytes(self) -> int:
        return sum(file.entry.size_bytes for file in self.files)


def read_changelog(path: Path) -> bytes:
    """Returns the content, still compressed. Raises PreconditionError when it cannot be unpacked here."""
    data = path.read_bytes()
    if not changelog.is_lz4(data):
        raise PreconditionError(
            f"{path}: this changelog is not compressed with LZ4, and no other codec can be read ({CODEC_KEY}). Run one "
            f"more batch with Spark's own provider and {CHANGELOGS_KEY}=false, which writes the state without "
            "changelogs, then adopt again"
        )
    if not lz4_blocks.available():
        raise PreconditionError(
            f"{path}: to read changelogs, adopt and release need the packages lz4 and xxhash: "
            "pip install 'rhino-state[verify]'"
        )
    return data
