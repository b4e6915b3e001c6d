"""`rhino doctor` without a checkpoint."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from pathlib import Path

from typer.testing import CliRunner

from rhino.cli import exit_codes
from rhino.cli.main import app
from rhino.cli.node_doctor import Check, _reach
from rhino_core.version import version_line
from spark_connector.conf import application_settings
from tests.rhino.client.views import worker

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


def test_workers_that_cannot_be_reached_are_named() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        here = f"127.0.0.1:{server.getsockname()[1]}"
        away = replace(worker("gone"), peer_address=NOWHERE)
        seen = [replace(worker("a"), peer_address=here), away, replace(away, worker_id="lost", state="lost")]
        all_of_them, failed = _reach(seen)
    assert all_of_them == Check("workers", "1 of 2 live ones can be reached from here")
    assert (failed.what, failed.text) == (f"worker gone at {NOWHERE}", "Connect call failed ('127.0.0.1', 9)")
    assert not list(_reach([]))


def test_settings_of_spark_are_compared_with_ours(tmp_path: Path) -> None:
    path = tmp_path / "spark-defaults.conf"
    wanted = application_settings(NOWHERE, jar="hdfs:///rhino.jar")
    what = f"settings in {path}"

    def found(settings: dict[str, str]) -> tuple[str, bool]:
        path.write_text("# ours\n\n" + "".join(f"{name}   {value}\n" for name, value in settings.items()))
        return doctor("--socket", tmp_path / "s", "--spark-conf", path)[1][what]

    assert found(wanted) == ("as `rhino conf` has them", True)
    assert not found(wanted | {"spark.rhino.manager": "other:7461"})[1]
    assert found({}) == (f"spark.rhino.manager is not set; `rhino conf` has {NOWHERE!r}", False), "the last of three"
    only = application_settings(NOWHERE, jar="hdfs:///rhino.jar", recovery=False)
    assert found(only) == ("as `rhino conf` has them, without those for short recoveries", True)
    assert not doctor("--socket", tmp_path / "s", "--spark-conf", tmp_path / "none")[1][
        f"settings in {tmp_path / 'none'}"
    ][1]
