"""Parts of the tests of collector that other tests use as well."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from rhino_core.ids import StoreId, Version
from worker_runtime.storage.store import Store


def around(store: Store) -> Any:
    def in_use(of: StoreId, floor: Version | None) -> Iterable[str]:
        return ()

    return SimpleNamespace(store=store, view=SimpleNamespace(names_in_use=in_use), post=lambda event: None)
