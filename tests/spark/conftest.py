"""One local cluster for all Spark tests of this folder."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from rhino.testing import LocalCluster


def wait_for(condition: Callable[[], object], what: str, timeout_s: float = 90) -> None:
    """Polls until `condition()` is true; fails naming `what`."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {timeout_s} s"
        time.sleep(0.1)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("cluster"), workers=3) as running:
        yield running
