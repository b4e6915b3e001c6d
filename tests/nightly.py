"""Cases of one test of which few run in `make test`, and the others in `make test-nightly`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def few(cases: Iterable[Any], kept: int = 1) -> list[Any]:
    """Parameters. The first `kept` of them run in `make test`."""
    return [case if at < kept else pytest.param(case, marks=pytest.mark.nightly) for at, case in enumerate(cases)]
