"""Finds Apache Flink: a named folder, FLINK_HOME, or the installation of PyPI's `apache-flink-libraries`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from rhino_core.errors import InvalidSettingError

PACKAGE = "apache-flink-libraries"
HOW_TO = f"`pip install {PACKAGE}` (2.0 or newer, 330 MB), FLINK_HOME or --flink brings it"


def find_flink(named: Path | None, environment: Mapping[str, str] | None = None) -> Path | None:
    """The folder with Flink's jars; None when there is no Flink.

    Raises InvalidSettingError for a named folder without jars.
    """
    env = os.environ if environment is None else environment
    if named is not None:
        return _jars_of("--flink", named)
    if home := env.get("FLINK_HOME"):
        return _jars_of("FLINK_HOME", Path(home))
    try:
        installed = Path(str(distribution(PACKAGE).locate_file("pyflink")))
    except PackageNotFoundError:
        return None
    return _jars_of(f"package {PACKAGE}", installed)


def version(jars: Path) -> str:
    """Such as "2.3.0", after the name of the jar."""
    return next(jars.glob("flink-dist-*.jar")).stem.removeprefix("flink-dist-")


def _jars_of(what: str, home: Path) -> Path:
    jars = home.resolve() / "lib"
    if not any(jars.glob("flink-dist-*.jar")):
        raise InvalidSettingError(f"{what} = {str(home)!r}: there is no lib/flink-dist-*.jar in it; {HOW_TO}")
    return jars
