import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from rhino.cli import main
from rhino.cli.examples import EXAMPLES
from rhino_core.version import PROTOCOL
from tests import forked
from tests.forked import rhino


def test_help_names_every_command_and_the_exit_codes() -> None:
    result = rhino("--help")
    assert result.returncode == 0
    around_handovers = ("plan", "handover", "drain", "explain")
    upkeep = ("scrub", "verify", "forget", "moved", "rewind")
    for word in ("sidecar", "manager", "status", *around_handovers, *upkeep, "Exit codes"):
        assert word in result.stdout


def test_the_version_is_told_with_the_protocol() -> None:
    result = rhino("--version")
    assert result.returncode == 0
    assert result.stdout.startswith(f"rhino {version('rhino-state')} (protocol {PROTOCOL}, Python ")


def test_the_shells_completion_names_commands() -> None:
    environment = os.environ | {"_RHINO_COMPLETE": "complete_bash", "COMP_WORDS": "rhino st", "COMP_CWORD": "1"}
    command = [sys.executable, "-m", "rhino.cli.main"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
    assert done.stdout.split() == ["status"]


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Each command of the tree with the words that name it."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


COMMANDS = dict(commands(typer.main.get_command(main.app)))


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_the_help_of_every_command_has_examples_that_can_be_typed(
    path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    shown = CliRunner().invoke(main.app, [*path, "-h"])
    lines = EXAMPLES[" ".join(path)]
    assert shown.exit_code == 0
    assert lines
    for line in lines:
        assert line in shown.output
        words = line.split()
        assert words[: len(path) + 1] == ["rhino", *path]
        context = COMMANDS[path].make_context(line, words[len(path) + 1 :])  # raises for a line that is wrong
        assert context.args == []


def test_no_example_is_left_of_a_command_that_is_gone() -> None:
    assert {" ".join(path) for path in COMMANDS} == EXAMPLES.keys()


def test_the_log_tells_who_asked_for_what(tmp_path: Path) -> None:
    options = ("--bootstrap", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "data"))
    with forked.daemon("manager", *options, log=tmp_path / "log") as ready:
        for arguments in (("drain", "w1"), ("forget", "--worker", "w1"), ("handover", "cancel", "h1")):
            assert rhino(*arguments, "--manager", ready["address"]).returncode == 3
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    audited = {line["method"].rpartition("/")[2]: line for line in lines if line["message"] == "audit"}
    assert audited.keys() == {"DrainWorker", "ForgetWorker", "CancelHandover"}
    assert audited["DrainWorker"]["names"] == {"worker": "w1"}
    assert audited["CancelHandover"]["names"] == {"handover_id": "h1"}
    assert {line["outcome"] for line in audited.values()} == {"UnknownError"}
    assert all(line["peer"].startswith("ipv4:127.0.0.1:") for line in audited.values())
    assert not [line for line in lines if line["message"] == "call refused"], "the same once more"


def test_a_manager_announces_itself_and_answers_status(tmp_path: object) -> None:
    command = [sys.executable, "-m", "rhino.cli.main", "manager", "--bootstrap", "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(
        [*command, "--data-dir", str(tmp_path), "--exit-with-parent"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        status = rhino("status", "--manager", ready["address"], "--json")
        assert status.returncode == 0
        assert json.loads(status.stdout)["workers"] == []
        unknown = rhino("handover", "move", "0/1", "--job", "x", "--to", "w", "--manager", ready["address"])
        assert unknown.returncode == 3
        assert "'x'" in unknown.stderr or "x" in unknown.stderr
        moved = rhino("moved", "--job", "x", "--to", "/ckpt/q", "--manager", ready["address"])
        assert (moved.returncode, "job 'x': no query with this id" in moved.stderr) == (3, True)
    finally:
        process.terminate()
        assert process.wait(20) == 0
        process.stdout.close()  # type: ignore[union-attr]


@pytest.mark.parametrize("daemon", ["sidecar", "manager"])
def test_settings_come_from_a_file_and_the_environment(
    daemon: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "rhino.toml"
    file.write_text('data_dir = "/data/rhino"\nmetrics_port = 1\n')
    monkeypatch.setenv(f"RHINO_{daemon.upper()}_CONFIG", str(file))
    monkeypatch.setenv(f"RHINO_{daemon.upper()}_METRICS_PORT", "2")
    printed = rhino(daemon, "--print-settings", "--log-level", "debug")
    assert printed.returncode == 0, printed.stderr
    sources = {line.split(" = ")[0]: line.partition("# ")[2] for line in printed.stdout.splitlines()}
    assert sources["data_dir"] == str(file)
    assert sources["metrics_port"] == f"RHINO_{daemon.upper()}_METRICS_PORT"
    assert (sources["log_level"], sources["listen"]) == ("--log-level", "default")
    refused = rhino(daemon, "--config", str(tmp_path / "other.toml"))
    assert (refused.returncode, "other.toml" in refused.stderr) == (2, True)
