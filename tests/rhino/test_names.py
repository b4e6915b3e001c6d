"""The public names: those that type checkers see are those that are imported on first use."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from types import ModuleType

import pytest

import query_evolution
import rhino


@pytest.mark.parametrize("package", [rhino, query_evolution], ids=lambda package: package.__name__)
def test_type_checkers_see_the_names_that_are_imported_on_first_use(package: ModuleType) -> None:
    assert package.__file__ is not None
    tree = ast.parse(Path(package.__file__).read_text())
    imports = next(node for node in tree.body if isinstance(node, ast.If)).body
    seen = {
        alias.asname: getattr(importlib.import_module(node.module or ""), alias.name)
        for node in imports
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == {name: getattr(package, name) for name in package.__all__}
