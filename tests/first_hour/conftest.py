"""The wheel, built once, and the commands of the documents."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.deploy.wheel import build_wheel


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))
