"""The public names: those that type checkers see are those that are imported on first use."""

from __future__ import annotations

import ast
from pathlib import Path

import rhino


def test_type_checkers_see_the_names_that_are_imported_on_first_use() -> None:
    assert rhino.__file__ is not None
    tree = ast.parse(Path(rhino.__file__).read_text())
    imports = next(node for node in tree.body if isinstance(node, ast.If)).body
    seen = [(alias.asname, node.module) for node in imports if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert dict(seen) == rhino._MODULES
