"""What the operator's guide quotes exists: metrics, and the messages by which people find their case."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from handover_manager.service.metrics import QUERY_FIGURES
from rhino_core.security.identity import Role
from rhino_core.security.rights import RIGHTS

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs/operate"
METRICS = (
    "rhino_core/metrics.py",
    "worker_runtime/metrics.py",
    "replication_manager/service/metrics.py",
    "handover_manager/service/metrics.py",
)
PACKAGES = (
    "rhino",
    "query_evolution",
    "rhino_core",
    "rhino_archive",
    "spark_connector",
    "worker_runtime",
    "replication_manager",
    "handover_manager",
)
PAGES_OF_MESSAGES = ("runbook.md", "adopt-and-release.md", "drain-and-upgrade.md")
# What stands for a value in a quoted message, and what joins messages of two places.
PLACEHOLDER = re.compile(r"\.\.\.|'[^']*'|\b[A-Z]\b(?::[A-Z]\b)?|\bID\b|\d[\d./]*|[:;,()]|\. ")
WORDS_MIN = 3  # fewer say nothing


def test_the_metrics_of_the_guide_are_exported() -> None:
    exported = {name for home in METRICS for name in re.findall(r'"(rhino_[a-z_]+)"', (ROOT / home).read_text())}
    exported |= {f"rhino_query_{what}" for what, _ in QUERY_FIGURES}
    files = (GUIDE / "monitoring.md", GUIDE / "runbook.md", *(ROOT / "deploy/prometheus").iterdir())
    text = "".join(file.read_text() for file in files)
    named = {re.sub(r"_(total|bucket|count)$", "", name) for name in re.findall(r"\brhino_[a-z_]+[a-z]", text)}
    assert named - {"rhino_conf", "rhino_replication_lag"} <= {re.sub("_total$", "", name) for name in exported}


def _sources() -> str:
    """All texts of the code, one a line, with values left out."""
    texts = []
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            texts += [_text(node) for node in ast.walk(ast.parse(path.read_text()))]
        for path in (ROOT / package).rglob("*.scala"):
            joined = re.sub(r'" \+\s*s?"', "", path.read_text())
            texts.append(re.sub(r"\$\{[^}]*\}|\$\w+", " ", joined))
    return "\n".join(" ".join(text.split()) for text in texts)


def _text(node: ast.AST) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return " ".join(_text(value) for value in values)
        case _:
            return ""


def messages() -> list[tuple[str, str]]:
    """The quotations in the first column of tables."""
    rows = [(page, row) for page in PAGES_OF_MESSAGES for row in (GUIDE / page).read_text().splitlines()]
    return [
        (page, quoted)
        for page, row in rows
        for quoted in re.findall(r"`([^`]+)`", re.split(r"(?<!\\) \| ", row)[0])
        if row[:1] == "|"
    ]


@pytest.fixture(scope="module")
def sources() -> str:
    return _sources()


def is_said(words: list[str], sources: str) -> bool:
    """As a whole, or in two parts with at most one word between them, which is a value."""
    cuts = ((words[:i], words[j:]) for i in range(1, len(words) + 1) for j in (i, i + 1))
    return any(" ".join(before) in sources and " ".join(after) in sources for before, after in cuts)


@pytest.mark.parametrize(("page", "message"), messages())
def test_a_quoted_message_is_in_the_code(page: str, message: str, sources: str) -> None:
    for part in PLACEHOLDER.split(message):
        words = part.split()
        assert len(words) < WORDS_MIN or is_said(words, sources), f"{page}: {part!r} of {message!r}"


CALLS = {  # what the page says of a method for workers and the manager; the other roles have commands or queries
    "Register": "register under its own name",
    "RegisterInParts": "register under its own name",
    "Heartbeat": "register under its own name",
    "WatchGroups": "receive groups",
    "ResolveGroup": "receive groups",
    "OpenPush": "Push and fetch files",
    "Fetch": "Push and fetch files",
    "Inventory": "inventories",
    "CheckVersions": "versions",
    "Describe": "condition",
    "Archive": "archive versions",
    "Drill": "restore them for drills",
    **dict.fromkeys(("Identify", "Promise", "Append", "AppendInParts", "FetchRecords"), "keep its journal on them"),
}


def test_the_page_names_what_workers_and_the_manager_may_call() -> None:
    page = (GUIDE / "security.md").read_text()
    rows = {role: re.search(rf"^\| `{role.value}` \| (.*) \|$", page, re.MULTILINE) for role in Role}
    for method, right in RIGHTS.items():
        service, _, name = method.rpartition("/")
        if right.roles == frozenset(Role):
            assert "| every role | gRPC health |" in page
        elif service == "/grpc.reflection.v1alpha.ServerReflection":
            continue
        else:
            for role in right.roles & {Role.WORKER, Role.MANAGER}:
                row = rows[role]
                assert row is not None
                assert CALLS[name] in row[1], f"{role.value}: {method}"
