"""Opens a snapshot as a database of RocksDB, and reads it to its end. For data files without checksums of their own."""

from __future__ import annotations

import tempfile
from pathlib import Path

from rhino_core.errors import IntegrityError
from spark_connector.doctor.tree import Tree
from worker_runtime.verify.snapshot import MergedValuesError, SnapshotDatabase, lay_out, unzip


def problem(tree: Tree, folder: str, name: str) -> str:
    """Returns what RocksDB says against the snapshot `name` of the store in `folder`. Empty: nothing."""

    def fetch(below: str, target: Path) -> None:
        target.write_bytes(tree.read(f"{folder}/{below}"))

    with tempfile.TemporaryDirectory(prefix="rhino-doctor-") as work:
        place = Path(work)
        try:
            (place / "zip").write_bytes(tree.read(name))
            metadata = unzip(place / "zip", place / "db")
            if not metadata.files:
                return ""
            lay_out(metadata, fetch, place / "db")
            database = SnapshotDatabase(place / "db")
            try:
                database.count()
            finally:
                database.close()
        except MergedValuesError:  # readable by Spark's merge operator only
            return ""
        except IntegrityError as error:
            return str(error)
    return ""
