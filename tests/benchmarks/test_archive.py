"""The benchmark of the archive: its figures, its store, and a small run."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.archive import requests, restore
from benchmarks.archive.requests import Mark
from benchmarks.archive.store import URL, s3
from rhino_archive.bucket import Bucket
from rhino_core.errors import RhinoError

ROOT = Path(__file__).resolve().parents[2]


def test_figures_of_requests_are_between_the_first_and_the_last_archived_batch() -> None:
    before = Counter({"put": 5, "get": 7, "bytes": 1000})
    after = before + Counter({"put": 11, "get": 22, "post": 1, "bytes": 900})
    written = [100 * (batch + 1) for batch in range(30)]
    row = requests.figures([Mark(50.0, 9, before), Mark(55.0, 14, before), Mark(60.0, 19, after)], written)
    assert (row["batches"], row["batch_s"], row["archived_batches"]) == (10, 1.0, 2)
    assert (row["put_a_day"], row["get_a_day"], row["list_a_day"]) == (11 * 8640, 22 * 8640, 0)
    assert row["requests_a_day"] == 34 * 8640
    assert row["dollars_a_month"] == pytest.approx(30 * 8640 * (12 * 0.005 + 22 * 0.0004) / 1000)
    assert (row["uploaded_mb"], row["new_mb"], row["uploaded_over_new"]) == (0.0009, 0.001, 0.9)


def test_the_rate_of_a_restore_is_that_of_all_loads_together() -> None:
    loads = [(100.5, 102.0, 100_000_000), (101.0, 102.5, 100_000_000)]
    row = restore.figures(loads, 100.0, 1_000_000_000)
    assert (row["loads"], row["loaded_bytes"], row["load_s"], row["loaded_at_s"]) == (2, 200_000_000, 2.0, 2.5)
    assert row["share_of_link"] == 0.8
    with pytest.raises(RhinoError, match="nothing was loaded"):
        restore.figures([], 100.0, 1)


async def test_the_store_counts_what_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ALLOW_HTTP", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "before")
    with s3() as store:
        before, bucket = store.seen(), Bucket(URL)
        await bucket.put("one", b"content")
        assert await bucket.get("one") == b"content"
        assert [one.name async for one in bucket.list("")] == ["one"]
        assert store.seen() - before == Counter({"put": 1, "get": 1, "list": 1, "bytes": len(b"content")})


@pytest.mark.nightly
def test_a_small_run_counts_requests(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    sizes = ("--partitions", "4", "--workers", "2", "--seconds", "1")
    command = [sys.executable, "-m", "benchmarks.archive", "requests", *sizes, "--dir", str(tmp_path)]
    run = subprocess.run([*command, "--json", str(report)], capture_output=True, text=True, timeout=200, cwd=ROOT)
    assert run.returncode == 0, run.stderr
    (row,) = json.loads(report.read_text())["requests"]
    assert (row["workers"], row["partitions"], row["archived_batches"]) == (2, 4, 1)
    seconds = row["batches"] * row["batch_s"]
    assert round(row["put_a_day"] * seconds / 86_400) == 3  # a pack of each worker, and the manifest
    assert row["new_mb"] > 0
    assert row["age_max_s"] >= row["age_p50_s"] >= 0
