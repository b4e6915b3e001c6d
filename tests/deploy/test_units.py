"""The systemd units: this version accepts their commands, and their files of settings."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from rhino.cli.main import app
from rhino.daemons.loading import load
from rhino_core.setting import declared
from rhino_core.settings import ManagerSettings, SidecarSettings

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy/systemd"
COMMANDS = getattr(typer.main.get_command(app), "commands")  # noqa: B009  of the Click group inside
KINDS: dict[str, Any] = {"manager": ManagerSettings, "sidecar": SidecarSettings}
BLOCK = re.compile(r"^```toml\n(# /etc/rhino/(\w+)\.toml\n.*?)^```$", re.DOTALL | re.MULTILINE)
PAGE = (ROOT / "docs/operate/deploy.md").read_text()


def _lines(unit: str, key: str) -> list[str]:
    return re.findall(rf"^{key}=(.*)$", (FOLDER / f"rhino-{unit}.service").read_text(), re.MULTILINE)


@pytest.mark.parametrize("unit", KINDS)
def test_commands_of_units_are_accepted(unit: str) -> None:
    (line,) = _lines(unit, "ExecStart")
    program, command, *arguments = shlex.split(line)
    assert (program, command) == ("/opt/rhino/bin/rhino", unit)
    context = COMMANDS[unit].make_context(unit, arguments)  # raises UsageError for what is no option or no value
    assert context.params["config"] == Path(f"/etc/rhino/{unit}.toml")


@pytest.mark.parametrize("unit", KINDS)
def test_files_of_settings_are_accepted(unit: str) -> None:
    settings = load(KINDS[unit], {}, {}, FOLDER / f"{unit}.toml", host_name="node-1").settings
    assert settings.data_dir == Path("/var/lib") / f"rhino-{unit}"
    assert settings.listen.startswith("127.0.0.1:")


@pytest.mark.parametrize(("text", "unit"), BLOCK.findall(PAGE))
def test_files_of_the_operators_guide_are_accepted(text: str, unit: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text(text)
    load(KINDS[unit], {}, {}, tmp_path / "file", host_name="node-1")


def test_the_operators_guide_shows_both_files() -> None:
    assert {unit for _, unit in BLOCK.findall(PAGE)} == set(KINDS)


@pytest.mark.parametrize("unit", KINDS)
def test_settings_for_one_start_reach_the_daemon(unit: str) -> None:
    assert _lines(unit, "PassEnvironment") == [one.variable for one in declared(KINDS[unit]) if one.about.one_start]


@pytest.mark.parametrize("unit", KINDS)
def test_data_and_socket_folders_are_made_by_systemd(unit: str) -> None:
    settings = load(KINDS[unit], {}, {}, FOLDER / f"{unit}.toml", host_name="node-1").settings
    assert _lines(unit, "StateDirectory") == [settings.data_dir.name]
    if isinstance(settings, SidecarSettings):
        assert _lines(unit, "RuntimeDirectory") == [settings.socket.parent.name]


@pytest.mark.parametrize("unit", KINDS)
def test_units_leave_no_core_and_few_rights(unit: str) -> None:
    wanted = {
        "LimitCORE": "0",
        "SystemCallFilter": "@system-service",
        "CapabilityBoundingSet": "",
        "PrivateDevices": "yes",
    }
    assert {key: _lines(unit, key) for key in wanted} == {key: [value] for key, value in wanted.items()}
