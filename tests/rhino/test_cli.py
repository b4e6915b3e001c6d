import json
import subprocess
import sys

import pytest

from rhino.cli.intents import parse_virtual_nodes
from rhino.errors import InvalidRequestError


def rhino(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rhino.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_virtual_nodes_and_ranges() -> None:
    assert parse_virtual_nodes("0/1, 0/4-6,1/0") == ["0/1", "0/4", "0/5", "0/6", "1/0"]


@pytest.mark.parametrize("text", ["", "5", "0/", "0/5-2", "0/1;0/2", "a/b"])
def test_malformed_virtual_nodes_are_named(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="virtual node"):
        parse_virtual_nodes(text)


def test_help_names_every_command_and_the_exit_codes() -> None:
    result = rhino("--help")
    assert result.returncode == 0
    around_handovers = ("plan", "handover", "rebalance", "drain", "explain")
    commands = ("sidecar", "manager", "status", *around_handovers, "scrub", "verify", "forget", "rewind", "demo")
    for word in (*commands, "Exit codes"):
        assert word in result.stdout


def test_an_unreachable_manager_is_exit_code_4_and_named_on_stderr() -> None:
    result = rhino("status", "--manager", "127.0.0.1:1", "--json")
    assert result.returncode == 4
    assert "127.0.0.1:1" in result.stderr
    assert result.stdout == ""


def test_a_malformed_setting_is_exit_code_2_and_named(tmp_path: object) -> None:
    result = rhino("manager", "--data-dir", str(tmp_path), "--listen", "nowhere")
    assert result.returncode == 2
    assert "listen = 'nowhere'" in result.stderr


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
        unknown = rhino("handover", "--job", "x", "--virtual-nodes", "0/1", "--to", "w", "--manager", ready["address"])
        assert unknown.returncode == 3
        assert "'x'" in unknown.stderr or "x" in unknown.stderr
    finally:
        process.terminate()
        assert process.wait(20) == 0
        process.stdout.close()  # type: ignore[union-attr]
