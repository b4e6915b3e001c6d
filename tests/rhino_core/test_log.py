"""Logs: field names come from the source, and nothing that others chose reaches a terminal as it is."""

from __future__ import annotations

import ast
import json
import logging
from collections.abc import Iterator
from pathlib import Path

from rhino_core.log import JsonFormatter, TextFormatter

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    "rhino",
    "worker_runtime",
    "replication_manager",
    "handover_manager",
    "spark_connector",
    "query_evolution",
    "rhino_core",
)
TAKEN = set(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


def record(**extra: object) -> logging.LogRecord:
    return logging.getLogger("x").makeRecord("x", logging.INFO, "file", 1, "hello", (), None, extra=extra)


def test_an_extra_never_hides_what_every_line_has() -> None:
    line = json.loads(JsonFormatter().format(record(time="later", level="none", job="q")))
    assert (line["level"], line["level_"], line["time_"], line["job"]) == ("info", "none", "later", "q")


def test_what_cannot_be_written_as_json_is_written_somehow() -> None:
    assert "object at" in JsonFormatter().format(record(thing=object(), name_="\udc80"))


def test_escape_sequences_do_not_reach_a_terminal() -> None:
    line = TextFormatter().format(record(job="\x1b[2J\x9b\u202e\nfoo"))
    assert line.isprintable()
    assert "\\x1b[2J" in line


def extras() -> Iterator[tuple[str, ast.expr]]:
    """Every `extra=` of a log call, with the place; what a name in it stands for in the same function as well."""
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            tree = ast.parse(path.read_text())
            named = {
                target.id: node.value
                for node in ast.walk(tree)
                if isinstance(node, ast.Assign)
                for target in node.targets
                if isinstance(target, ast.Name) and target.id in ("extra", "fields")
            }
            for node in ast.walk(tree):
                if not isinstance(node, ast.Call) or not ast.unparse(node.func).startswith("log."):
                    continue
                for keyword in node.keywords:
                    if keyword.arg == "extra":
                        value = keyword.value
                        found = named.get(value.id) if isinstance(value, ast.Name) else value
                        yield f"{path.relative_to(ROOT)}:{node.lineno}", found or value


def test_names_of_log_fields_are_written_in_the_source_and_are_free() -> None:
    """`logging` raises KeyError for "name", "process" and others: a worker with such an id ended the manager."""
    found = list(extras())
    assert len(found) > 40
    for place, value in found:
        assert isinstance(value, ast.Dict), f"{place}: the fields of a log line are a dict that is written there"
        for key in value.keys:
            assert key is None or (isinstance(key, ast.Constant) and key.value not in TAKEN), place
