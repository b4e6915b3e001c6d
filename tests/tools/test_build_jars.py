"""Checks before jars are built for a wheel."""

from __future__ import annotations

import pytest

from tools import build_jars


def test_jars_of_another_version_than_the_wheel_are_not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_jars, "rhino_version", lambda: "0.0.0")
    with pytest.raises(SystemExit, match=r"rhino-state 0\.0\.0 is installed, and pyproject\.toml has .*: install this"):
        build_jars.main()
