"""Holds for every test run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rhino.client import connection
from rhino_core import failpoints

failpoints.refuse_unknown()


@pytest.fixture(autouse=True)
def _transport_of_the_environment() -> Iterator[None]:
    """A command that a test runs in this process chooses the transport of the process."""
    yield
    connection.use(None)
