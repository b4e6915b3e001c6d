"""Public names of a package, imported on first use."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping


def lazy(
    package: str, modules: Mapping[str, str]
) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Returns `__getattr__`, `__dir__` and `__all__` of the package. `modules`: by module, its names."""
    home = {name: module for module, names in modules.items() for name in names.split()}

    def attribute(name: str) -> object:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(home[name]), name)

    return attribute, lambda: sorted(home), sorted(home)
