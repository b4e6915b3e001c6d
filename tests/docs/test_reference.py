"""The generated reference has every setting and every command."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer

from rhino.cli.main import app
from rhino_core.setting import declared
from rhino_core.settings import ManagerSettings, SidecarSettings

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs/generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("kind", [SidecarSettings, ManagerSettings])
def test_the_page_of_settings_has_every_field(generate: ModuleType, kind: Any) -> None:
    page = "\n".join(generate.settings())
    for one in declared(kind):
        (row,) = [row for row in page.splitlines() if row.startswith(f"| `{one.flag}` `{one.variable}`")]
        assert one.about.help in row
        assert one.about.one_start or f"`{one.key}`" in row
        assert one.default_text in row


def test_the_page_of_the_command_line_has_every_command(generate: ModuleType) -> None:
    headings = {line.lstrip("# ") for line in "\n".join(generate.command_line()).splitlines() if line.startswith("##")}
    group: Any = typer.main.get_command(app)
    expected = set()
    for name, command in group.commands.items():
        expected |= {f"rhino {name}"} | {f"rhino {name} {inner}" for inner in getattr(command, "commands", ())}
    assert headings == expected


@pytest.mark.parametrize("kind", [SidecarSettings, ManagerSettings])
def test_every_setting_is_a_flag_of_its_daemon(kind: Any) -> None:
    group: Any = typer.main.get_command(app)
    flags = {name for option in group.commands[kind.DAEMON].params for name in option.opts}
    assert {one.flag for one in declared(kind)} <= flags
