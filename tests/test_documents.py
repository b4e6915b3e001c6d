"""The documents name files that exist, and the code names files, sections and pages that exist."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = [
    "benchmarks",
    "examples",
    "workloads",
    "rhino",
    "rhino_archive",
    "rhino_core",
    "rhino_model",
    "spark_connector",
    "query_evolution",
    "handover_manager",
    "replication_manager",
    "worker_runtime",
    "proto",
    "tests",
    "tools",
]
DOCUMENTS = [ROOT / name for name in ("ARCHITECTURE.md", "CONTRIBUTING.md", "README.md", "SECURITY.md")]
PATH = re.compile(r"`([\w.-]+(?:/[\w.-]+)*\.(?:py|scala|proto))`")
MODULE = re.compile(r"(?<![\w./{}*-])(?:[\w-]+/)*[\w-]+\.py\b(?!\.)")
EXAMPLES = ("FILE.py",)


def sources() -> list[Path]:
    kinds = ("*.py", "*.scala", "*.proto")
    return [path for name in FOLDERS for kind in kinds for path in (ROOT / name).rglob(kind)]


def text_of(path: Path) -> str:
    """Without line breaks and comment marks, so that a citation may be wrapped."""
    return re.sub(r"\s+(?:#|//|\*)?\s*", " ", path.read_text())


def prose_of(text: str) -> Iterator[str]:
    """The comments and docstrings of Python code. Other strings name files of users."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.string
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""


def test_documents_name_files_that_exist() -> None:
    files = {path.relative_to(ROOT).as_posix() for path in sources()}
    absent = [
        f"{page.relative_to(ROOT)}: {name}"
        for page in [*DOCUMENTS, *(ROOT / "docs").rglob("*.md")]
        for name in PATH.findall(page.read_text())
        if not any(f"/{file}".endswith(f"/{name}") for file in files)
    ]
    assert not absent


def test_comments_and_docstrings_name_files_that_exist() -> None:
    files = [f"/{path.relative_to(ROOT).as_posix()}" for path in sources() if path.suffix == ".py"]
    absent: list[str] = []
    for path in sources():
        if path.suffix != ".py" or not MODULE.search(text := path.read_text()):
            continue
        names = {name for part in prose_of(text) for name in MODULE.findall(part)}.difference(EXAMPLES)
        absent += [
            f"{path.relative_to(ROOT)}: {name}" for name in names if not any(f.endswith(f"/{name}") for f in files)
        ]
    assert not absent


def test_the_code_names_pages_and_sections_that_exist() -> None:
    architecture = DOCUMENTS[0].read_text()
    absent: list[str] = []
    for path in sources():
        text = text_of(path)
        pages = re.findall(r"\bdocs/[\w/-]+\.md\b", text)
        absent += [f"{path.relative_to(ROOT)}: {page}" for page in pages if not (ROOT / page).exists()]
        sections = re.findall(r'ARCHITECTURE\.md(?:, | \()"([^"\\]+)"', text)
        absent += [f"{path.relative_to(ROOT)}: {section}" for section in sections if section not in architecture]
    assert not absent


def test_every_row_of_a_table_is_below_its_head() -> None:
    """Otherwise the site shows the row as text, with its bars."""
    loose = []
    for page in [*DOCUMENTS, *(ROOT / "docs").rglob("*.md")]:
        lines = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL).splitlines()
        for above, line, below in zip(["", *lines], lines, [*lines[1:], ""], strict=False):
            if line.startswith("|") and not above.startswith("|") and not re.fullmatch(r"\|[ :|-]+\|", below):
                loose.append(f"{page.relative_to(ROOT)}: {line[:80]}")
    assert not loose
