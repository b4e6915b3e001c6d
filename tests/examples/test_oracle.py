"""The comparison with DuckDB sees every lost, doubled and altered row, and only files that the sink's log names."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest

from examples.demo import oracle
from rhino_core.errors import IntegrityError
from workloads.nexmark.output import Verdict, committed_files

BASE = "timestamptz '2015-07-15 00:00:00+00'"
OUTPUT = """
select 1436918400000 + 300000 * (p // 10) as window_ms, 1000 + p as person, 'n' || p as name, 1000 + p as auction,
       10 as category, 7 * p as initial_bid, 5 * p as expires, md5('x' || p || 'y' || p) as payload_md5
from range({first}, {last}) t(p)
"""


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path, Path]:
    """Twenty persons over two windows, one auction each; the output in two committed files."""
    persons, auctions, output = (tmp_path / name for name in ("persons", "auctions", "output"))
    for folder in (persons, auctions, output / "_spark_metadata"):
        folder.mkdir(parents=True)
    seconds = "to_seconds(300 * (p // 10) + p)"
    duckdb.sql(
        f"select 1000 + p as id, 'n' || p as name, 'x' || p as extra, {BASE} + {seconds} as ts from range(20) t(p)"
    ).write_parquet(str(persons / "a.parquet"))
    duckdb.sql(
        f"select 1000 + p as id, 1000 + p as seller, 10 as category, 7 * p as initial_bid, 5 * p as expires, "
        f"'y' || p as extra, {BASE} + {seconds} as ts from range(20) t(p)"
    ).write_parquet(str(auctions / "a.parquet"))
    write(output, "a.parquet", OUTPUT.format(first=0, last=10))
    write(output, "b.parquet", OUTPUT.format(first=10, last=20))
    log(output, "0", "a.parquet")
    log(output, "1", "b.parquet")
    return persons, auctions, output


def write(output: Path, name: str, sql: str) -> None:
    duckdb.sql(sql).write_parquet(str(output / name))


def log(output: Path, batch: str, *names: str) -> None:
    entries = [json.dumps({"path": f"file://{output}/{n}", "action": "add"}) for n in names]
    (output / "_spark_metadata" / batch).write_text("\n".join(["v1", *entries]))


def test_equal(folders: tuple[Path, Path, Path]) -> None:
    assert oracle.compare(*folders) == Verdict(rows=20, missing=0, extra=0)


def test_a_missing_row(folders: tuple[Path, Path, Path]) -> None:
    write(folders[2], "b.parquet", OUTPUT.format(first=11, last=20))
    assert oracle.compare(*folders) == Verdict(rows=19, missing=1, extra=0)


def test_a_doubled_row(folders: tuple[Path, Path, Path]) -> None:
    write(folders[2], "c.parquet", OUTPUT.format(first=3, last=4))
    log(folders[2], "2", "c.parquet")
    verdict = oracle.compare(*folders)
    assert verdict == Verdict(rows=21, missing=0, extra=1)
    assert not verdict.equal


def test_altered_state_bytes(folders: tuple[Path, Path, Path]) -> None:
    write(folders[2], "b.parquet", OUTPUT.format(first=10, last=20).replace("'x'", "if(p = 12, 'z', 'x')"))
    assert oracle.compare(*folders) == Verdict(rows=20, missing=1, extra=1)


def test_a_row_of_another_window(folders: tuple[Path, Path, Path]) -> None:
    write(folders[2], "b.parquet", OUTPUT.format(first=10, last=20).replace("p // 10", "p // 11"))
    assert oracle.compare(*folders) == Verdict(rows=20, missing=1, extra=1)


def test_files_that_no_log_names_do_not_count(folders: tuple[Path, Path, Path]) -> None:
    write(folders[2], "left-over.parquet", OUTPUT.format(first=0, last=20))
    assert oracle.compare(*folders).equal


def test_a_compacted_log_replaces_what_came_before(folders: tuple[Path, Path, Path]) -> None:
    output = folders[2]
    log(output, "9.compact", "a.parquet", "b.parquet")
    log(output, "10")
    assert [p.name for p in committed_files(output)] == ["a.parquet", "b.parquet"]
    log(output, "19.compact", "b.parquet")
    assert [p.name for p in committed_files(output)] == ["b.parquet"]


def test_an_unknown_log_version_is_refused(folders: tuple[Path, Path, Path]) -> None:
    (folders[2] / "_spark_metadata" / "2").write_text("v9\n{}")
    with pytest.raises(IntegrityError, match="v9"):
        committed_files(folders[2])
