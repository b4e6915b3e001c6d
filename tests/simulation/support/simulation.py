"""Parts of the tests of simulation that other tests use as well."""

from __future__ import annotations

from typing import Any

import pytest


def in_ci_and_more(ci: int, seeds: int, *of: object) -> list[Any]:
    """Parameters of a test: the first seeds, and those that CI has no time for; `of` are the parameters before them."""
    name = "".join(f"{value}-" for value in of)
    more = pytest.param(*of, range(ci, seeds), id=f"{name}{ci}-{seeds}", marks=pytest.mark.nightly)
    return [pytest.param(*of, range(ci), id=f"{name}{ci}"), more]
