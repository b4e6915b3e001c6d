from pathlib import Path

import pytest

from rhino.errors import PreconditionError, UnavailableError
from rhino.journal import Journal


def test_an_empty_journal_must_be_meant(tmp_path: Path) -> None:
    with pytest.raises(PreconditionError, match="--bootstrap"):
        Journal(tmp_path / "journal")


def test_values_survive_and_the_generation_rises_with_every_open(tmp_path: Path) -> None:
    first = Journal(tmp_path, bootstrap=True)
    first.put("group/a", {"members": [1, 2]})
    first.put("group/b", "text")
    first.put("other", None)
    first.close()
    second = Journal(tmp_path)
    assert second.generation == first.generation + 1
    assert dict(second.items("group/")) == {"group/a": {"members": [1, 2]}, "group/b": "text"}
    second.delete("group/a")
    second.delete("group/a")
    assert second.get("group/a") is None
    assert second.get("nothing") is None
    above = second.generation + 40
    assert second.raise_generation(above) == above
    second.close()
    third = Journal(tmp_path)
    assert third.generation == above + 1
    assert third.raise_generation(3) == above + 1
    third.close()


def test_an_empty_journal_begins_above_every_generation_of_a_former_one(tmp_path: Path) -> None:
    """Which may have been lost with its disk, while sidecars that are away have seen its epochs."""
    seen = []
    for _ in range(3):
        journal = Journal(tmp_path / "lost", bootstrap=True)
        seen.append((journal.fresh, journal.generation))
        journal.close()
    assert [fresh for fresh, _ in seen] == [True, False, False]
    new = Journal(tmp_path / "new", bootstrap=True)
    assert new.generation > max(generation for _, generation in seen)
    new.close()


def test_a_batch_is_written_as_a_whole(tmp_path: Path) -> None:
    journal = Journal(tmp_path, bootstrap=True)
    journal.put("a", 1)
    journal.put_all({"a": 2, "b": [3]})
    journal.put_all({})
    journal.close()
    assert dict(Journal(tmp_path).items()) == {"a": 2, "b": [3]}


def test_a_second_process_is_told_that_the_journal_is_in_use(tmp_path: Path) -> None:
    first = Journal(tmp_path, bootstrap=True)
    with pytest.raises(UnavailableError, match="another manager"):
        Journal(tmp_path)
    first.close()
