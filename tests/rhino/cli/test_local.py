"""`rhino local`: what notebooks keep on this machine, and its deletion. Daemons are real in one test only."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from spark_connector.local.daemons import end_unused, join, leave
from spark_connector.local.directory import LocalDirectory
from tests import forked

JOB = "1b2c3d4e-0000-4000-8000-000000000001"


def rhino(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return forked.run(forked.RHINO, "local", *arguments, env=os.environ | environment)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data directory with the state of one query."""
    directory = LocalDirectory(tmp_path / "state")
    directory.create()
    for name, size in (("1_a.changelog", 1000), ("1_a.zip", 500)):
        path = directory.sidecar / "store" / JOB / "0" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(size))
    (directory.manager).mkdir()
    return directory.path


def test_show_lists_queries_and_users(folder: Path) -> None:
    shown = rhino("show", "--data-dir", str(folder))
    assert shown.returncode == 0, shown.stderr
    assert JOB in shown.stdout
    assert "1.5 kB" in shown.stdout
    assert "processes that use it: none; manager: not running" in shown.stdout
    as_json = json.loads(rhino("show", "--data-dir", str(folder), "--json").stdout)
    assert [(query["job"], query["files"], query["bytes"]) for query in as_json["queries"]] == [(JOB, 2, 1500)]


@pytest.mark.parametrize("command", [("show",), ("clean", "--dry-run")])
def test_no_name_is_cut_or_wrapped_in_a_pipe(folder: Path, command: tuple[str, ...]) -> None:
    name = "a-query-id-that-is-longer-than-a-terminal-would-like-" + "x" * 60
    (folder / "sidecar" / "store" / JOB).rename(folder / "sidecar" / "store" / name)
    shown = rhino(*command, "--data-dir", str(folder), COLUMNS="30")
    assert shown.returncode == 0, shown.stderr
    where, head, row, other, *_ = shown.stdout.splitlines()
    assert where == str(folder)
    assert head.split() == ["QUERY", "NAME", "FILES", "BYTES", "LAST", "CHANGE"]
    assert row.split()[:5] == [name, "-", "2", "1.5", "kB"]
    assert other.startswith("journal, index, logs and temporary files: ")
    assert shown.stdout.isascii(), "no lines of a table"


def test_clean_lists_what_it_deletes_and_leaves_an_empty_directory(folder: Path) -> None:
    cleaned = rhino("clean", "--data-dir", str(folder), "--yes")
    assert cleaned.returncode == 0, cleaned.stderr
    assert JOB in cleaned.stdout
    assert cleaned.stdout.endswith("deleted; start these queries with a new checkpoint\n")
    assert not (folder / "sidecar").exists()
    assert not (folder / "manager").exists()
    assert "no query has state here" in rhino("show", "--data-dir", str(folder)).stdout


def test_a_dry_run_deletes_nothing(folder: Path) -> None:
    dry = rhino("clean", "--data-dir", str(folder), "--dry-run")
    assert dry.returncode == 0, dry.stderr
    assert JOB in dry.stdout
    assert (folder / "sidecar" / "store" / JOB / "0" / "1_a.zip").stat().st_size == 500


def test_without_yes_and_without_a_terminal_nothing_is_deleted(folder: Path) -> None:
    refused = rhino("clean", "--data-dir", str(folder))
    assert refused.returncode == 2
    assert "--yes" in refused.stderr
    assert (folder / "sidecar" / "store" / JOB).is_dir()


def test_a_folder_of_somebody_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "sidecar").mkdir()
    (tmp_path / "sidecar" / "thesis.tex").write_text("mine")
    for command in ("show", "clean"):
        refused = rhino(command, "--data-dir", str(tmp_path), *(["--yes"] if command == "clean" else []))
        assert refused.returncode == 3
        assert "is no folder of a Rhino local session" in refused.stderr
    assert (tmp_path / "sidecar" / "thesis.tex").read_text() == "mine"


def test_a_directory_in_use_is_not_deleted(tmp_path: Path) -> None:
    daemons = join(tmp_path / "state")
    try:
        refused = rhino("clean", "--data-dir", str(tmp_path / "state"), "--yes")
        assert refused.returncode == 3
        assert f"in use by process {os.getpid()}; end it first" in refused.stderr
        used = json.loads(rhino("show", "--data-dir", str(tmp_path / "state"), "--json").stdout)
        assert (used["users"], used["manager"]) == ([os.getpid()], daemons.manager)
    finally:
        leave(daemons)
        end_unused(daemons.directory).release()


def test_the_default_directory_is_that_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    nothing = rhino("show")
    assert nothing.returncode == 0
    assert nothing.stdout.startswith(f"{tmp_path}/rhino-state/local\n")
    assert "no query has state here" in nothing.stdout
    assert list(tmp_path.iterdir()) == []
