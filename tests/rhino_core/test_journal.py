import time
from pathlib import Path

import pytest

from rhino_core.errors import LocalProtocolError, PreconditionError, UnavailableError
from rhino_core.journal import Journal


def test_an_empty_journal_must_be_meant(tmp_path: Path) -> None:
    for folder in (tmp_path / "journal", tmp_path):
        with pytest.raises(PreconditionError, match="--bootstrap"):
            Journal(folder)
    assert not list(tmp_path.iterdir()), "a refused start leaves something behind"


def test_values_survive_and_the_generation_rises_with_every_open(tmp_path: Path) -> None:
    first = Journal(tmp_path, bootstrap=True)
    first.write({"group/a": {"members": [1, 2]}})
    first.write({"group/b": "text"})
    first.write({"other": None})
    first.close()
    second = Journal(tmp_path)
    assert second.generation == first.generation + 1
    assert dict(second.items("group/")) == {"group/a": {"members": [1, 2]}, "group/b": "text"}
    second.write({}, ["group/a"])
    second.write({}, ["group/a"])
    assert second.get("group/a") is None
    assert second.get("nothing") is None
    above = second.generation + 40
    second.write({}, generation=above)
    assert second.generation == above
    second.close()
    third = Journal(tmp_path)
    assert third.generation == above + 1
    third.write({}, generation=3)
    assert third.generation == above + 1
    third.close()


def test_an_empty_journal_begins_above_every_generation_of_a_former_one(tmp_path: Path) -> None:
    """Which may have been lost with its disk, while sidecars that are away have seen its epochs."""
    seen = []
    for number in range(4):
        journal = Journal(tmp_path / "lost", bootstrap=True)
        seen.append((journal.fresh, journal.generation))
        if number == 1:
            journal.settle()
        journal.close()
    assert [fresh for fresh, _ in seen] == [True, True, False, False], "a manager that dies early has not settled"
    new = Journal(tmp_path / "new", bootstrap=True)
    assert new.generation > max(generation for _, generation in seen)
    new.close()


def test_a_batch_is_written_as_a_whole(tmp_path: Path) -> None:
    journal = Journal(tmp_path, bootstrap=True)
    journal.write({"a": 1})
    journal.write({"a": 2, "b": [3]})
    journal.write({})
    journal.close()
    again = Journal(tmp_path)
    assert dict(again.items()) == {"a": 2, "b": [3]}
    above = again.generation + 40
    again.write({"c": 4}, ["a"], generation=above)
    again.close()
    last = Journal(tmp_path)
    assert (dict(last.items()), last.generation) == ({"b": [3], "c": 4}, above + 1)


def test_a_second_process_is_told_that_the_journal_is_in_use(tmp_path: Path) -> None:
    first = Journal(tmp_path, bootstrap=True)
    with pytest.raises(UnavailableError, match="another manager"):
        Journal(tmp_path)
    first.close()


def test_a_generation_that_no_manager_can_have_is_never_journalled_nor_gone_on_from(tmp_path: Path) -> None:
    journal = Journal(tmp_path, bootstrap=True)
    before = journal.generation
    with pytest.raises(LocalProtocolError, match="generation 18446744073709551615"):
        journal.write({}, generation=2**64 - 1)
    assert journal.generation == before
    journal._write({"generation": 2**63 - 1})
    journal.close()
    again = Journal(tmp_path)
    assert before <= again.generation <= time.time_ns() // 1_000_000
    again.close()
