"""docs/design/invariants.md names every checker under the number that its docstring has."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "design" / "invariants.md"


def numbered_checkers() -> Iterator[tuple[str, str]]:
    """Number and name of each function whose docstring begins with the number of an invariant."""
    for path in sorted(HERE.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and (found := re.match(r"(\d+)\. ", ast.get_docstring(node) or "")):
                yield found[1], node.name


def test_every_numbered_checker_is_named_in_its_section() -> None:
    _, *sections = re.split(r"^## (?=\d+\. )", PAGE.read_text(), flags=re.MULTILINE)
    text_of = {section.partition(".")[0]: section for section in sections}
    checkers = list(numbered_checkers())
    assert {number for number, _ in checkers} == text_of.keys()
    absent = [f"{number}. {name}" for number, name in checkers if not re.search(rf"\b{name}\b", text_of[number])]
    assert not absent, "name them in docs/design/invariants.md"
