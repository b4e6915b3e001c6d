"""The archive of Spark's classes, as `make setup` makes it: JVMs of a local cluster do use it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rhino.testing import archive_classes, class_archive
from rhino.testing.spark_daemons import java_command

MASTER = "org.apache.spark.deploy.master.Master"


@pytest.mark.spark
@pytest.mark.nightly  # these tests run when the archive has been made
def test_a_daemons_classes_come_from_the_archive() -> None:
    if not class_archive.archive().is_file():
        pytest.skip("python -m rhino.testing.archive_classes has not been run here, or Java cannot write archives")
    java, *options = java_command("256m", MASTER)
    done = subprocess.run([java, "-Xlog:class+load", *options, "--help"], capture_output=True, text=True, check=False)
    assert "shared objects file (top)" in done.stdout, done.stdout[-2000:] + done.stderr


def test_without_the_archive_there_is_no_option(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert class_archive.archive_option() == ()
    path = class_archive.archive()
    path.parent.mkdir(parents=True)
    path.touch()
    assert class_archive.archive_option() == (f"-XX:SharedArchiveFile={path}",)


def test_a_java_that_cannot_write_one_is_no_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(archive_classes, "_train", lambda written, folder, conf: print("Java says no"))
    assert archive_classes.main() == 0
    said = capsys.readouterr().err
    assert "JVMs will start more slowly" in said
    assert not class_archive.archive().exists()
