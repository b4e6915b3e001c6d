"""In two processes (`pytest -n 2 --dist loadgroup`) tests with a Spark cluster run one after another, and first."""

from __future__ import annotations

import pytest


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.xdist_group("spark"))
    items.sort(key=lambda item: item.get_closest_marker("spark") is None)  # stable
