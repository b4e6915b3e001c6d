"""A journal with altered bytes: either everything is there, or the start is refused, and nothing is changed by it."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from rocksdict import Options, Rdict

from rhino_core.errors import IntegrityError, RhinoError
from rhino_core.journal import Journal

VALUES = {f"replication/group/{n}": {"n": n, "text": "x" * 150} for n in range(40)}


@pytest.fixture(scope="module", params=["killed", "closed"])
def journal(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The journal of a process that was killed (it is in RocksDB's log), or of one that closed it (in a table)."""
    made, left = tmp_path_factory.mktemp("made"), tmp_path_factory.mktemp("left") / "journal"
    journal = Journal(made, bootstrap=True)
    for key, value in VALUES.items():
        journal.write({key: value})
    if request.param == "closed":
        journal.close()
        return made
    shutil.copytree(made, left)
    journal.close()
    return left


def outcome(folder: Path) -> dict[str, object] | None:
    """Returns the contents of the journal, or None if it was refused."""
    try:
        journal = Journal(folder)
    except RhinoError:
        return None
    found = dict(journal.items())
    journal.close()
    return found


def altered(journal: Path, scratch: Path) -> Iterator[tuple[str, int]]:
    """Copies of the journal in `scratch`, each with one bit of one file altered: (file, position)."""
    chosen = random.Random(1)
    for file in sorted(path for path in journal.iterdir() if path.name != "LOG" and path.stat().st_size):
        size = file.stat().st_size
        many = 40 if file.suffix in (".log", ".sst") else 6
        for position in sorted({0, size - 1, *chosen.sample(range(size), min(size, many))}):
            shutil.rmtree(scratch, ignore_errors=True)
            shutil.copytree(journal, scratch)
            data = bytearray(file.read_bytes())
            data[position] ^= 1 << chosen.randrange(8)
            (scratch / file.name).write_bytes(data)
            yield file.name, position


def test_a_flipped_bit_drops_nothing_in_silence(journal: Path, tmp_path: Path) -> None:
    refused = 0
    for name, position in altered(journal, tmp_path / "journal"):
        found = outcome(tmp_path / "journal")
        assert found in (None, VALUES), f"{name} at {position}: {len(found or ())} of {len(VALUES)} are left"
        refused += found is None
    assert refused > 30, "the log and the tables are not looked at"


@pytest.mark.parametrize("journal", ["killed"], indirect=True)
def test_a_refused_start_names_the_way_out_and_changes_nothing(journal: Path, tmp_path: Path) -> None:
    shutil.copytree(journal, tmp_path, dirs_exist_ok=True)
    log = max(tmp_path.glob("*.log"), key=lambda path: path.stat().st_size)
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    for _ in range(2):
        with pytest.raises(IntegrityError, match=r"41 writes were acknowledged, \d+ can be read.*--bootstrap"):
            Journal(tmp_path)
    assert log.read_bytes() == data
    (tmp_path / "acknowledged").unlink()
    found = outcome(tmp_path)
    assert found is not None
    assert 0 < len(found) < len(VALUES)
    assert outcome(tmp_path) == found, "what was given up is no damage any more"


def test_a_torn_end_is_no_damage(tmp_path: Path) -> None:
    """A process that was killed in a write has not acknowledged it."""
    journal = Journal(tmp_path / "made", bootstrap=True)
    journal.write({"a": 1})
    (log,) = (tmp_path / "made").glob("*.log")
    before = log.stat().st_size
    shutil.copytree(tmp_path / "made", tmp_path / "acknowledged")
    journal.write({"b": "x" * 500})
    after = log.stat().st_size
    for size in (before + 1, before + 6, before + 8, (before + after) // 2, after - 1):
        shutil.copytree(tmp_path / "acknowledged", tmp_path / "torn")
        (tmp_path / "torn" / log.name).write_bytes(log.read_bytes()[:size])
        assert outcome(tmp_path / "torn") == {"a": 1}
        shutil.rmtree(tmp_path / "torn")
    journal.close()


def test_a_process_that_is_killed_after_the_write_and_before_it_is_counted(tmp_path: Path) -> None:
    """There may be more than was acknowledged."""
    journal = Journal(tmp_path / "made", bootstrap=True)
    journal.write({"a": 1})
    number = (tmp_path / "made" / "acknowledged").read_bytes()
    journal.write({"b": 2})
    shutil.copytree(tmp_path / "made", tmp_path / "left")
    journal.close()
    (tmp_path / "left" / "acknowledged").write_bytes(number)
    assert outcome(tmp_path / "left") == {"a": 1, "b": 2}


def test_a_loss_of_power_may_take_the_number_back(journal: Path, tmp_path: Path) -> None:
    shutil.copytree(journal, tmp_path, dirs_exist_ok=True)
    (tmp_path / "acknowledged").write_bytes(bytes(12))
    assert outcome(tmp_path) == VALUES
    (tmp_path / "acknowledged").write_bytes(b"")
    assert outcome(tmp_path) == VALUES


def test_a_journal_of_a_former_version_has_no_count(tmp_path: Path) -> None:
    former = Rdict(str(tmp_path), Options(raw_mode=False))
    former["generation"], former["k/a"] = 7, "1"
    former.close()
    journal = Journal(tmp_path)
    assert (journal.generation, dict(journal.items())) == (8, {"a": 1})
    journal.write({"b": 2})
    journal.close()
    former = Rdict(str(tmp_path), Options(raw_mode=False))  # and goes on with it
    former["generation"] = int(former["generation"]) + 1
    former.close()
    assert outcome(tmp_path) == {"a": 1, "b": 2}


def test_a_log_that_is_gone_is_no_empty_journal(journal: Path, tmp_path: Path) -> None:
    shutil.copytree(journal, tmp_path, dirs_exist_ok=True)
    for path in (*tmp_path.glob("*.log"), *tmp_path.glob("*.sst")):
        path.unlink()
    with pytest.raises(IntegrityError):
        Journal(tmp_path, bootstrap=True)
