"""Names that others have chosen: no terminal obeys them, and no name is taken for markup."""

from __future__ import annotations

import ast
import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from rhino.cli import output
from rhino.cli.status import render
from rhino.client.overview import GroupView, JobView, MemberView, Overview, VirtualNodeView, WorkerView
from rhino_core.ids import Epoch, GroupId
from rhino_core.text import legible
from rhino_model.handovers import Handover, Phase, Plan, Step

COMMANDS = Path(output.__file__).parent
HOSTILE = [
    "orders [/eu]",
    "orders [eu]",
    "[link=http://evil.example]click[/link]",
    "[blink]alarm[/blink]",
    "\x1b]0;title\x07\x1b[2Jcleared",
    "a\nb",
    "\x9b31mred",
    "\u202egnp.exe",
    ":warning:",
    "back\\",
    "lone \udcff",
    "over" + "\u0336" * 40,
    "\u0301begins with a mark",
    "in\u200bvisible\u2060",
]


def overview(name: str) -> Overview:
    worker = WorkerView(name, name, name, "live", 1, 1, 1, 1, 0.1, 1, 1, disk="full", disk_message=name)
    member = MemberView(name, "lost", False, 1, 1)
    group = GroupView(GroupId(name, 0, 0), Epoch(1, 1), 2, 1, 0, (member,))
    node = VirtualNodeView("0/0", name, f"{name}x", 1, (name,))
    job = JobView(name, name, True, 1, 1, (node,))
    step = Step(Phase.MARKED, name, {name: 1}, 1, 0, -1, 0, None)
    plan = Plan((), intent=name)
    handover = Handover(name, Phase.MARKED, plan, name, 1, 1, 1, 0, -1, 0, (name,), (step,))
    return Overview(1, (worker,), (group,), (job,), (handover,))


@pytest.mark.parametrize("name", HOSTILE)
def test_status_shows_every_name_as_it_is(name: str) -> None:
    out = io.StringIO()
    render(overview(name), Console(file=out, force_terminal=True, width=400, emoji=False, color_system=None))
    text = out.getvalue()
    assert legible(name) in text
    assert not [c for c in text if c in "\x07\x9b\u202e\x00"]
    assert "\x1b]" not in text
    assert "\x1b[2J" not in text
    assert "evil.example" not in text or "[link=" in text


@pytest.mark.parametrize("name", HOSTILE)
def test_lines_and_errors_show_every_name_as_it_is(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    output.say(f"worker {name}: safe to remove")
    output.say(f"error: {name}", error=True)
    captured = capsys.readouterr()
    assert captured.out == f"worker {legible(name)}: safe to remove\n"
    assert captured.err == f"error: {legible(name)}\n"
    assert captured.out.isascii() or name.isprintable()


@pytest.mark.parametrize("name", HOSTILE)
def test_json_is_ascii(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    output.say_json(overview(name))
    text = capsys.readouterr().out
    assert text.replace("\n", "").isprintable()
    assert text.isascii()
    assert json.loads(text)["jobs"][0]["name"] == name


def test_what_is_legible_stays_as_it_is() -> None:
    for text in ("orders", "Bestellungen für Köln", "注文", "commandes 🚲", "a b", ""):
        assert legible(text) == text
    assert legible("a\tb\x7f") == "a\\x09b\\x7f"


def test_all_commands_print_through_one_module() -> None:
    """Names that are shown in tables go through `shown` there."""
    for path in COMMANDS.glob("*.py"):
        if path.name in ("output.py", "daemon.py"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            called = node.func if isinstance(node, ast.Call) else None
            name = getattr(called, "id", "")
            assert name not in ("print", "Console"), f"{path.name}:{getattr(node, 'lineno', 0)} prints by itself"
            if name == "Table":
                assert "shown" in path.read_text(), f"{path.name} shows names of others"
