"""`release` while somebody starts the query. Only the sidecar is made up."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from rhino_core.errors import ConflictError, PreconditionError
from rhino_core.ids import StoreVersion
from spark_connector.conf import PROVIDER_CLASSES
from spark_connector.query_checkpoint import PROVIDER_KEY, QueryCheckpoint
from spark_connector.rpc.sidecar import SidecarSession
from spark_connector.takeover.release import release


class Session:
    """A sidecar that has every version. `copying` is called when one is asked for."""

    worker_id = "w1"

    def __init__(self, folder: Path, copying: Callable[[], object]) -> None:
        self._folder = folder
        self._copying = copying

    def prepare(self, wanted: StoreVersion) -> None:
        self._copying()

    def folder(self, store: object) -> Path:
        return self._folder


@pytest.fixture
def checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys.modules[release.__module__], "closure_in", lambda *_: [])
    folder = tmp_path / "checkpoint"
    for name in ("offsets", "commits", "state"):
        (folder / name).mkdir(parents=True)
    (folder / "metadata").write_text('{"id": "job"}')
    (folder / "commits" / "0").write_text('v2\n{"stateUniqueIds": {"0": [["a"]]}}')
    plan(folder, 0)
    return folder


def plan(folder: Path, batch: int) -> None:
    """What a driver writes first."""
    conf = {PROVIDER_KEY: PROVIDER_CLASSES["provider"]}
    (folder / "offsets" / str(batch)).write_text("v1\n" + json.dumps({"conf": conf}) + "\n-")


def run(folder: Path, copying: Callable[[], object]) -> None:
    session = cast(SidecarSession, Session(folder.parent, copying))
    release(folder, session, dry_run=False, idle_s=0)


def test_a_query_that_was_started_meanwhile_keeps_its_checkpoint(checkpoint: Path) -> None:
    with pytest.raises(PreconditionError, match="changed meanwhile: a driver runs this query"):
        run(checkpoint, lambda: plan(checkpoint, 1))
    assert QueryCheckpoint(checkpoint).provider() == PROVIDER_CLASSES["provider"]
    assert not [*checkpoint.glob("backup-*")]


def test_a_query_that_was_started_without_new_data_keeps_its_checkpoint(checkpoint: Path) -> None:
    """Its logs do not change. Only the manager knows it."""

    def refuse() -> None:
        raise ConflictError("query job: its driver runs it")

    session = cast(SidecarSession, Session(checkpoint.parent, lambda: None))
    with pytest.raises(ConflictError):
        release(checkpoint, session, dry_run=False, idle_s=0, refuse_running=refuse)
    assert QueryCheckpoint(checkpoint).provider() == PROVIDER_CLASSES["provider"]
    assert not [*checkpoint.glob("backup-*")]


def test_a_stopped_query_is_released(checkpoint: Path) -> None:
    run(checkpoint, lambda: None)
    assert QueryCheckpoint(checkpoint).provider() == PROVIDER_CLASSES["checkpoint"]
