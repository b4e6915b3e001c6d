"""What the documents show exists: commands, options, Python names, signatures, settings, links between files."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from rhino import HandoverClient, local_session, rhino_checkpoint, rhino_conf
from rhino.cli.main import app

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md"]
BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
COMMANDS: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]


def blocks(language: str) -> Iterator[tuple[str, str]]:
    for path in PAGES:
        for indent, name, text in BLOCK.findall(path.read_text()):
            if name == language:
                yield path.relative_to(ROOT).as_posix(), re.sub(f"^{indent}", "", text, flags=re.MULTILINE)


def commands() -> list[tuple[str, str]]:
    """Page and command; also of a command inside `$(...)` and before `>` or `&&`."""
    lines = [(page, line) for page, text in blocks("sh") for line in text.replace("\\\n", " ").splitlines()]
    lines = [(page, line.replace("$(hostname)", "host")) for page, line in lines]
    found = re.compile(r"^(rhino [^>&]+)|\$\((rhino [^)>&]+)")
    return [(page, line or inside) for page, text in lines for line, inside in found.findall(text)]


@pytest.mark.parametrize(("page", "line"), commands())
def test_a_command_takes_the_options_that_it_is_shown_with(page: str, line: str) -> None:
    _, name, *arguments = shlex.split(line, comments=True)
    assert name in COMMANDS, f"{page}: {line}"
    command = COMMANDS[name]
    if hasattr(command, "commands"):
        name, *arguments = arguments
        assert name in command.commands, f"{page}: {line}"
        command = command.commands[name]
    command.make_context(name, arguments)  # raises UsageError


@pytest.mark.parametrize(("page", "text"), list(blocks("python")))
def test_python_is_well_formed_and_imports_what_there_is(page: str, text: str) -> None:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rhino"):
            module = importlib.import_module(node.module or "")
            missing = [name.name for name in node.names if not hasattr(module, name.name)]
            assert not missing, f"{page}: {node.module} has no {missing}"


@pytest.mark.parametrize("page", [*ROOT.glob("*.md"), ROOT / "deploy/README.md"], ids=lambda page: page.name)
def test_links_of_pages_outside_of_the_site_lead_somewhere(page: Path) -> None:
    assert [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()] == []


def shown_functions(page: str) -> dict[str, ast.FunctionDef]:
    found = [node for where, text in blocks("python") if where == page for node in ast.walk(ast.parse(text))]
    return {node.name: node for node in found if isinstance(node, ast.FunctionDef)}


def test_the_signatures_of_the_python_api_are_those_of_the_code() -> None:
    shown = shown_functions("docs/user/python-api.md")
    real = {"rhino_conf": rhino_conf, "rhino_checkpoint": rhino_checkpoint, "local_session": local_session}
    public = {name: f for name, f in vars(HandoverClient).items() if inspect.isfunction(f) and not name.startswith("_")}
    assert shown.keys() - {"__init__"} == real.keys() | public.keys()
    for name, function in (real | public | {"__init__": HandoverClient.__init__}).items():
        assert shown_parameters(shown[name]) == real_parameters(function), name


def shown_parameters(function: ast.FunctionDef) -> dict[str, str]:
    """Kind and type by name."""
    positional, keywords = function.args.args, function.args.kwonlyargs
    found = [(a, "positional") for a in positional] + [(a, "keyword") for a in keywords]
    return {a.arg: f"{kind} {ast.unparse(a.annotation) if a.annotation else ''}" for a, kind in found}


def real_parameters(function: Any) -> dict[str, str]:
    parameters = inspect.signature(function).parameters.values()
    kinds = {p.name: "keyword" if p.kind is p.KEYWORD_ONLY else "positional" for p in parameters}
    return {p.name: f"{kinds[p.name]} {'' if p.annotation is p.empty else p.annotation}" for p in parameters}


def test_the_settings_to_copy_are_those_of_rhino_conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jar = tmp_path / "rhino.jar"
    jar.touch()
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars/spark-core_2.13-4.3.0.jar").touch()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    text = next(text for page, text in blocks("properties") if page == "docs/user/settings.md")
    shown = dict(line.split() for line in text.splitlines() if line and not line.startswith("#"))
    expected = rhino_conf("manager-host:7461", jar=jar) | {"spark.jars": shown["spark.jars"]}
    as_number = re.compile(r"\.0$")
    assert shown == {key: as_number.sub("", value) for key, value in expected.items()}
