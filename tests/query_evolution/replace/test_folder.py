"""Facts are written once, and locks say who lives."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from query_evolution.replace import folder as folder_module
from query_evolution.replace.core import Answer, End, Restart
from query_evolution.replace.folder import RestartFolder
from rhino_core import failpoints
from rhino_core.errors import IntegrityError
from rhino_core.foreign import read_json
from spark_connector.facts import create_fact
from spark_connector.run_locks import RIGHT, is_locked
from tests import forked
from tests.query_evolution.support.folder import LOCKER

WRITES = {
    "request": "RestartFolder(Path(sys.argv[1])).ask('a')",
    "answer": "RestartFolder(Path(sys.argv[1])).answer(1, Answer.PARKED)",
    "end": "RestartFolder(Path(sys.argv[1])).end(1, End.RETURNED, 'why')",
}


@pytest.fixture
def folder(tmp_path: Path) -> RestartFolder:
    return RestartFolder(tmp_path)


def test_a_folder_that_is_not_there_has_no_restarts(folder: RestartFolder) -> None:
    assert (folder.read(), folder.open_requests(), folder.committed()) == ((), [], [])
    assert not folder.path.exists()


def test_a_restart_is_what_its_facts_say(folder: RestartFolder) -> None:
    assert [folder.ask("ada@host"), folder.ask("bob@host")] == [1, 2]
    assert folder.read() == (Restart(1), Restart(2))
    assert folder.asked(2)[0] == "bob@host"
    assert folder.asked(1)[1] <= folder.asked(2)[1]
    assert folder.answer(1, Answer.PARKED)
    assert folder.end(1, End.RETURNED, "it fails")
    assert folder.answer(2, Answer.REFUSED, "no")
    assert folder.read() == (
        Restart(1, Answer.PARKED, End.RETURNED, "it fails"),
        Restart(2, Answer.REFUSED, reason="no"),
    )
    assert folder.open_requests() == []


def test_only_the_first_answer_and_the_first_end_count(folder: RestartFolder) -> None:
    number = folder.ask("ada@host")
    assert [folder.answer(number, answer) for answer in (Answer.WITHDRAWN, Answer.PARKED)] == [True, False]
    assert [folder.end(number, end) for end in (End.CONFIRMED, End.RETURNED)] == [True, False]
    assert folder.read() == (Restart(number, Answer.WITHDRAWN, End.CONFIRMED),)


def test_a_damaged_fact_is_named(folder: RestartFolder) -> None:
    folder.ask("ada@host")
    (folder.path / "answers").mkdir()
    (folder.path / "answers" / "1").write_text("{")
    with pytest.raises(IntegrityError, match="answers/1 is not readable"):
        folder.read()


@pytest.mark.parametrize(
    "content", ["", "[]", "null", "{}", '{"answer": 7}', '{"answer": "maybe"}', "[" * 100_000, "\x00"]
)
def test_every_damage_of_a_fact_has_one_error(folder: RestartFolder, content: str) -> None:
    folder.ask("ada@host")
    create_fact(folder.path / "answers", 1, content)
    with pytest.raises(IntegrityError, match="answers/1 is not readable"):
        folder.read()


def test_only_a_request_that_this_user_alone_has_written_counts(folder: RestartFolder, tmp_path: Path) -> None:
    number = folder.ask("ada@host")
    request = folder.path / "requests" / str(number)
    assert folder.refusal(number) == ""
    request.chmod(0o606)
    assert "its mode 606 lets others write to it" in folder.refusal(number)
    request.rename(tmp_path / "mine")
    (tmp_path / "mine").chmod(0o600)
    request.symlink_to(tmp_path / "mine")
    assert "is a link" in folder.refusal(number)
    folder.path.chmod(0o777)
    assert f"can write to {folder.path}" in folder.refusal(number)


def test_restarts_that_are_decided_are_forgotten_some_day(
    folder: RestartFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_module, "KEPT", 3)
    for number in range(1, 9):
        assert folder.ask("ada@host") == number
        folder.lock(str(number)).parent.mkdir(exist_ok=True)
        folder.lock(str(number)).touch()
        if number != 2:  # it was granted, and is not decided
            folder.answer(number, Answer.WITHDRAWN if number % 2 else Answer.PARKED)
        if number in (4, 6):
            folder.end(number, End.RETURNED)
    folder.answer(2, Answer.PARKED)
    assert [one.number for one in folder.read()] == [2, 6, 7, 8]
    for kind in ("requests", "locks"):
        assert sorted(path.name for path in (folder.path / kind).iterdir()) == ["2", "6", "7", "8"]
    assert sorted(path.name for path in (folder.path / "ends").iterdir()) == ["6"]


def test_a_fact_is_read_once(folder: RestartFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in (1, 2):
        folder.ask("ada@host")
        folder.answer(number, Answer.REFUSED, "no")
    found = []

    def counted(path: Path, *, own: bool) -> dict[str, Any]:
        found.append(path.name)
        return read_json(path, own=own)

    monkeypatch.setattr(folder_module, "read_json", counted)
    assert [folder.read() for _ in range(5)] == [folder.read()] * 5
    assert found == ["1", "2"]


def test_a_lock_is_seen_as_long_as_its_process_lives(folder: RestartFolder) -> None:
    lock = folder.lock(str(folder.ask("ada@host")))
    assert not folder.lives(1)
    lock.parent.mkdir(parents=True)
    lock.touch()
    assert not folder.lives(1)
    other = subprocess.Popen([sys.executable, str(LOCKER), str(lock)], stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == "locked\n"
        assert folder.lives(1)
        assert is_locked(lock)  # looking has not taken it
        os.kill(other.pid, signal.SIGSTOP)
        assert folder.lives(1)
    finally:
        other.kill()
        other.wait()
    assert not folder.lives(1)


def test_the_owner_is_who_says_so(folder: RestartFolder) -> None:
    assert (folder.owner(), folder.owner_is_supervised()) == ("another process", True)
    lock = folder.lock(RIGHT)
    lock.parent.mkdir(parents=True)
    lock.write_text(json.dumps({"pid": 7, "user": "ada", "host": "h", "says": "unsupervised"}))
    assert (folder.owner(), folder.owner_is_supervised()) == ("process 7 of user ada on h", False)


@pytest.mark.parametrize("point", [f"restart.{step}.{when}" for step in WRITES for when in ("before", "after")])
def test_a_kill_leaves_a_whole_fact_or_none(folder: RestartFolder, point: str) -> None:
    """A process that comes after it goes on."""
    step, when = point.split(".")[1:]
    code = (
        "import sys\nfrom pathlib import Path\nimport os\nfrom rhino_core import failpoints\n"
        "from query_evolution.replace.core import Answer, End\n"
        "from query_evolution.replace.folder import RestartFolder\nfailpoints.arm(os.environ)\n" + WRITES[step]
    )
    environment = os.environ | {failpoints.VARIABLE: f"{point}=kill"}
    killed = forked.run(code, str(folder.path.parent), env=environment)
    assert killed.returncode == -signal.SIGKILL
    written = [path.name for path in folder.path.glob(f"{step}s/*")]
    assert written == (["1"] if when == "after" else [])
    if step == "request":
        assert folder.ask("next") == len(written) + 1
    else:
        again = folder.answer(1, Answer.PARKED) if step == "answer" else folder.end(1, End.RETURNED)
        assert again == (when == "before")
