"""The scene that loses every kind of process: its check of the output, and the whole of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from examples.survive.application import KEYS, ROWS, STRIDE
from examples.survive.output import check

BATCHES = 12  # keys come again


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """What the query would write, counted here in another way than in `check`."""
    seen: dict[int, int] = {}
    for batch in range(BATCHES):
        now: dict[int, int] = {}
        for value in range(batch * ROWS, (batch + 1) * ROWS):
            key = value * STRIDE % KEYS
            now[key] = seen[key] = seen.get(key, 0) + 1
        write(tmp_path / str(batch), list(now.items()))
    return tmp_path


def write(folder: Path, rows: list[tuple[int, int]]) -> None:
    folder.mkdir(exist_ok=True)
    keys, counts = zip(*rows, strict=True)
    with duckdb.connect() as db:
        relation = "select unnest($keys::bigint[]) as k, unnest($counts::bigint[]) as n"
        db.execute(f"copy ({relation}) to '{folder}/part.parquet'", {"keys": keys, "counts": counts})


def test_an_exact_output_is_exact_and_one_wrong_row_is_found(output: Path) -> None:
    found = check(output, BATCHES)
    assert (found.missing, found.extra) == (0, 0)
    assert found.rows == BATCHES * ROWS
    assert max(BATCHES * ROWS // KEYS, 2) == 2, "some keys come twice"
    rows = [(value * STRIDE % KEYS, 1) for value in range(ROWS)]
    write(output / "0", [(rows[0][0], 2), *rows[1:]])  # as if the first batch had been counted twice
    found = check(output, BATCHES)
    assert (found.missing, found.extra) == (1, 1)
    write(output / "0", rows[1:])
    assert (check(output, BATCHES).missing, check(output, BATCHES).extra) == (1, 0)


@pytest.mark.spark
@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_it_survives(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "examples.survive", "--pause-s", "3", "--out", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert " rows, 0 missing, 0 extra" in done.stdout
    assert done.stderr.count("longest time between two batches") == 5
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["survive.png"]
