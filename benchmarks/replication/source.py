"""The files to replicate: incompressible, all different, made once."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

PIECE_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Source:
    """`paths`: files of `file_bytes` each in `folder`."""

    folder: Path
    paths: tuple[Path, ...]
    file_bytes: int

    @property
    def total_bytes(self) -> int:
        return self.file_bytes * len(self.paths)


def make_source(folder: Path, total_bytes: int, files: int) -> Source:
    """Writes `files` files of equal size; a new folder."""
    folder.mkdir(parents=True)
    size = total_bytes // files
    paths = tuple(folder / f"{number:06d}.sst" for number in range(1, files + 1))
    for path in paths:
        with path.open("wb") as file:
            for offset in range(0, size, PIECE_BYTES):
                file.write(os.urandom(min(PIECE_BYTES, size - offset)))
    return Source(folder, paths, size)
