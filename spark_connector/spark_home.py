"""Finds the installed Spark as PySpark does: SPARK_HOME, then the PySpark package."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Mapping
from pathlib import Path

from rhino_core.errors import InvalidSettingError, UnknownError

SUPPORTED = ("4.2", "4.3")  # minor versions
_CORE = re.compile(r"spark-core_[\d.]+-(\d+\.\d+\..+)\.jar")


def spark_jars(environment: Mapping[str, str] | None = None) -> tuple[str, Path]:
    """Returns the version and the jar folder of the installed Spark.

    Raises InvalidSettingError for a SPARK_HOME without Spark, and UnknownError without a supported Spark.
    """
    env = os.environ if environment is None else environment
    if home := env.get("SPARK_HOME"):
        jars = Path(home) / "jars"
        version = _version(jars)
        if version is None:
            raise InvalidSettingError(
                f"SPARK_HOME = {home!r}: there is no jars/spark-core_*.jar in it; unset it, or name an unpacked Spark"
            )
        return _supported(version, jars), jars
    package = importlib.util.find_spec("pyspark")
    if package is None or package.origin is None:
        raise UnknownError("Spark is not installed: pip install 'rhino-state[spark]', or set SPARK_HOME")
    python = Path(package.origin).parent
    for jars in (python / "jars", python.parents[1] / "jars"):  # of the package; of a Spark archive with `python` in it
        if version := _version(jars):
            return _supported(version, jars), jars
    raise UnknownError(f"PySpark in {python} has no jars: pip install 'rhino-state[spark]', or set SPARK_HOME")


def minor(version: str) -> str:
    """Returns "4.3" for "4.3.0". The versions of one minor version use the same jar."""
    return ".".join(version.split(".")[:2])


def _version(jars: Path) -> str | None:
    found = (_CORE.fullmatch(path.name) for path in sorted(jars.glob("spark-core_*.jar")))
    return next((match[1] for match in found if match), None)


def _supported(version: str, jars: Path) -> str:
    if minor(version) not in SUPPORTED:
        supported = " or ".join(f"{v}.x" for v in SUPPORTED)
        raise UnknownError(f"Spark {version} in {jars.parent} is not supported: use {supported}")
    return version
