"""What `rhino adopt` and `rhino release` refuse before they change anything."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from rhino.cli import takeover
from rhino.cli.takeover import TakeoverArguments, refuse_forgotten, run_release
from rhino_core.errors import PreconditionError
from tests.rhino.client.views import JOB, job, node, overview, worker


def test_a_forgotten_query_is_taken_back_before_it_is_adopted() -> None:
    query = job(node(0, "a", "a"))
    refuse_forgotten(overview([worker("a")], jobs=[query]), JOB)
    forgotten = overview([worker("a")], jobs=[dataclasses.replace(query, delete_in_s=9.0)])
    refuse_forgotten(forgotten, "another")
    with pytest.raises(PreconditionError, match=f"{JOB} is forgotten.*`rhino forget --job {JOB} --undo`"):
        refuse_forgotten(forgotten, JOB)


def test_release_looks_before_it_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nothing to release, so nobody is asked."""
    (tmp_path / "metadata").write_text('{"id": "job"}')
    for log in ("offsets", "commits"):
        (tmp_path / log).mkdir()
    (tmp_path / "offsets/0").write_text('v1\n{"conf": {}}\n-')

    @contextmanager
    def session(*_: object, **__: object) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(manager="127.0.0.1:1")

    monkeypatch.setattr(takeover, "SidecarSession", session)
    monkeypatch.setattr(takeover, "fetch_overview", lambda manager: overview([worker("a")]))
    monkeypatch.setattr(takeover, "confirm", lambda *_, **__: pytest.fail("asked"))
    with pytest.raises(PreconditionError, match="there is nothing to release"):
        run_release(TakeoverArguments(tmp_path, tmp_path / "s", dry_run=False, idle_s=0, as_json=False))
