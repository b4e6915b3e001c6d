"""`python -m tools.build_jars`: the jars of all supported Spark versions, beside the code, for the wheel.

A Spark that is not installed is taken from its PySpark package, into a temporary folder (some 450 MB each).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from rhino_core.errors import RhinoError
from rhino_core.version import rhino_version
from spark_connector.jar import HERE, build, find_jar
from spark_connector.spark_home import SUPPORTED, minor, spark_jars

JARS = HERE / "jars"
INSTALL_TIMEOUT_S = 1200


def build_jar(version: str) -> Path:
    """Builds the jar for a minor version of Spark unless it is there, and returns its path."""
    if found := find_jar(version, [JARS]):
        return found
    with tempfile.TemporaryDirectory() as folder:
        installed, jars = _installed() or ("", Path())
        if minor(installed) != version:
            print(f"fetching PySpark {version}", flush=True)
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
            command += ["--target", folder, f"pyspark=={version}.*"]
            subprocess.run(command, check=True, timeout=INSTALL_TIMEOUT_S)
            installed, jars = spark_jars({"SPARK_HOME": f"{folder}/pyspark"})
        return build(installed, jars, JARS)


def _installed() -> tuple[str, Path] | None:
    try:
        return spark_jars(os.environ)
    except RhinoError:
        return None


def check_version() -> None:
    """Raises SystemExit if the package is installed in another version than this tree has: jars name their version."""
    written = tomllib.loads((HERE.parent / "pyproject.toml").read_text())["project"]["version"]
    if rhino_version() != written:
        sys.exit(
            f"rhino-state {rhino_version()} is installed, and pyproject.toml has {written}: install this tree first"
        )


def main() -> None:
    check_version()
    built = {build_jar(version) for version in SUPPORTED}
    for old in set(JARS.glob("*.jar")) - built:  # of former sources: the wheel takes every jar in the folder
        old.unlink()
    for jar in sorted(built):
        print(f"{jar}, {jar.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
