"""A fact is on disk before its folder says so, and each folder before the one above it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from spark_connector import facts


def test_a_power_loss_leaves_no_empty_fact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    fsync = os.fsync

    def file(descriptor: int) -> None:
        assert os.fstat(descriptor).st_size == len("text")
        synced.append("file")
        fsync(descriptor)

    folder = tmp_path / "restarts/answers"
    monkeypatch.setattr("os.fsync", file)
    monkeypatch.setattr(facts, "sync_folder", lambda one: synced.append(str(one.relative_to(tmp_path))))
    assert facts.create_fact(folder, 1, "text")
    assert synced == [".", "restarts", "file", "restarts/answers"]
    assert not facts.create_fact(folder, 1, "more")
    assert (folder / "1").read_text() == "text"
