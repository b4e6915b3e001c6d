"""Columns for people, pipes and `grep`: nothing is cut or wrapped, whatever the width."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from rhino.cli.columns import Cell, show_columns

NAME = "a-worker-whose-name-is-longer-than-any-terminal-would-like-" + "x" * 40


@pytest.mark.parametrize("width", [10, 80, 400])
def test_no_name_is_cut_or_wrapped(width: int) -> None:
    out = io.StringIO()
    show_columns(Console(file=out, width=width), ("worker", "free", "state"), [(NAME, "1.5 MB", Cell("live", "red"))])
    head, row = out.getvalue().splitlines()
    assert row.split() == [NAME, "1.5", "MB", "live"]
    assert head.split() == ["WORKER", "FREE", "STATE"]
    assert "\x1b" not in row


def test_figures_are_on_the_right_and_empty_fields_are_marked() -> None:
    out = io.StringIO()
    rows = [("a", "9", "127.0.0.1"), ("bb", "1000", ""), ("c", "?", "h")]
    show_columns(Console(file=out, width=80), ("name", "rows", "host"), rows)
    assert out.getvalue().splitlines() == [
        "NAME  ROWS  HOST",
        "a        9  127.0.0.1",
        "bb    1000  -",
        "c        ?  h",
    ]


def test_colours_are_for_terminals() -> None:
    out = io.StringIO()
    terminal = Console(file=out, width=80, force_terminal=True, color_system="standard")
    show_columns(terminal, ("state",), [(Cell("lost", "red"),)])
    assert "\x1b[31mlost" in out.getvalue()
