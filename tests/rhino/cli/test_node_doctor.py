"""`rhino doctor` without a checkpoint."""

from __future__ import annotations

import json
import socket
from pathlib import Path

from typer.testing import CliRunner

from rhino.cli import exit_codes
from rhino.cli.main import app
from rhino_core.version import version_line

NOWHERE = "127.0.0.1:9"  # the port "discard"


def doctor(*arguments: object) -> tuple[int, dict[str, tuple[str, bool]]]:
    result = CliRunner().invoke(app, ["doctor", "--json", "--manager", NOWHERE, *map(str, arguments)])
    checks = json.loads(result.stdout)
    return result.exit_code, {check["what"]: (check["text"], not check["way_out"]) for check in checks}


def test_a_node_without_daemons_is_told_to_start_them(tmp_path: Path) -> None:
    code, found = doctor("--socket", tmp_path / "none")
    assert code == exit_codes.FAILED
    assert found["version"] == (version_line(), True)
    assert found[f"socket {tmp_path / 'none'}"] == ("No such file or directory", False)
    assert not found[f"manager {NOWHERE}"][1]


def test_a_listening_socket_is_well_and_a_dead_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        assert doctor("--socket", path)[1][f"socket {path}"] == ("a sidecar listens", True)
    assert doctor("--socket", path)[1][f"socket {path}"] == ("Connection refused", False)


def test_folders_of_one_disk_are_linked_and_nothing_is_left(tmp_path: Path) -> None:
    data, local = tmp_path / "data", tmp_path / "local"
    data.mkdir()
    local.mkdir()
    _, found = doctor("--socket", tmp_path / "s", "--data-dir", data, "--spark-local-dir", local)
    assert found[f"hard links from {data} to {local}"] == ("work", True)
    assert found[f"space of {data}"][0].endswith("% free")
    assert not [*data.iterdir(), *local.iterdir()]


def test_folders_of_two_file_systems_are_told(tmp_path: Path) -> None:
    other = Path("/dev/shm")
    _, found = doctor("--socket", tmp_path / "s", "--data-dir", tmp_path, "--spark-local-dir", other)
    assert not found[f"hard links from {tmp_path} to {other}"][1]


def test_a_certificate_that_ends_soon_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "tls"
    result = CliRunner().invoke(app, ["cert", "init", str(tmp_path / "ca")])
    assert result.exit_code == 0, result.output
    for days, well in ((3, False), (30, True)):
        made = ["cert", "worker", "worker-1", "--ca-dir", str(tmp_path / "ca"), "--output", str(folder / str(days))]
        result = CliRunner().invoke(app, [*made, "--days", str(days)])
        assert result.exit_code == 0, result.output
        _, found = doctor("--socket", tmp_path / "s", "--certificates", folder / str(days))
        assert found[f"certificate in {folder / str(days)}"][1] is well
