"""Looks at a sidecar's data folder as the sidecar would recover it."""

from __future__ import annotations

from pathlib import Path

from rhino_core.ids import FileKind, StoreId
from worker_runtime.storage.store import Store

Acked = dict[tuple[StoreId, str], bytes]


def check_folder(worker: str, folder: Path, acked: Acked) -> dict[tuple[StoreId, str], int]:
    """Recovers a data folder and looks at everything in it; the checksums by name."""
    store = Store.open(worker, folder, 0)
    try:
        for (of, name), content in acked.items():
            record = store.files.record(of, name)
            assert record is not None, f"{worker} has lost {of}/{name}"
            assert store.files.path(record.entry).read_bytes() == content
            version = record.entry.version
            assert version is None or store.catalogue.store(of).holds(version), f"{worker} cannot open {of} {version}"
        known: set[Path] = set()
        checksums: dict[tuple[StoreId, str], int] = {}
        for of in store.catalogue.stores():
            entries = list(store.catalogue.store(of).entries())
            known.update(store.files.path(entry) for entry in entries)
            checksums.update({(of, entry.name): entry.crc32c for entry in entries})
            for shown in store.files.visible(of):
                if shown.entry.kind is FileKind.SNAPSHOT:
                    assert all(store.files.record(of, reference) for reference in shown.entry.references)
        assert {path for path in store.layout.store.rglob("*") if path.is_file()} == known
        assert not list(store.layout.tmp.iterdir())
        assert not list(store.layout.inbox.iterdir())
        return checksums
    finally:
        store.close()
