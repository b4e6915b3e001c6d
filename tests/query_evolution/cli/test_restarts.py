"""`rhino restarts`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

from query_evolution.replace.core import Answer, End
from query_evolution.replace.folder import RestartFolder
from rhino.cli.main import app
from spark_connector.run_locks import RIGHT
from tests.query_evolution.support.folder import LOCKER


def rhino(*arguments: str | Path) -> str:
    result = CliRunner().invoke(app, ["restarts", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    return result.output


def test_restarts_are_listed_with_their_states_and_the_owner(tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text('{"id": "job"}')
    assert rhino(tmp_path) == "no supervised application runs the query\n"
    folder = RestartFolder(tmp_path)
    for _ in range(4):
        folder.ask("ada@host")
    folder.answer(1, Answer.PARKED)
    folder.end(1, End.RETURNED, "it fails")
    folder.answer(2, Answer.REFUSED, "no")
    folder.answer(4, Answer.PARKED)
    locks = [folder.lock(name) for name in (RIGHT, "4")]
    locks[0].parent.mkdir()
    for lock in locks:
        lock.write_text(json.dumps({"pid": 7, "user": "ada", "host": "h", "says": "supervised"}))
    processes = [subprocess.Popen([sys.executable, str(LOCKER), str(lock)], stdout=subprocess.PIPE) for lock in locks]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == b"locked\n"
        first, heads, *rows = rhino(tmp_path).splitlines()
        assert first == "process 7 of user ada on h runs the query"
        assert heads.split() == ["NUMBER", "STATE", "BY", "AT", "REASON"]
        assert [row.split()[1] for row in rows] == ["returned", "refused", "abandoned", "on"]
        assert rows[0].endswith("it fails")
        found = json.loads(rhino(tmp_path, "--json"))
        assert found["restarts"][3]["state"] == "on trial"
        assert found["owner"].startswith("process 7")
    finally:
        for process in processes:
            process.kill()
            process.wait()
