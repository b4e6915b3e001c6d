"""Functions of Scala and Java: what the command takes, what the record says, and where the jar lies."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import zipfile
from pathlib import Path
from typing import Any

import pytest

from query_evolution.modify import jars
from query_evolution.modify.jars import JarCode, jar_function
from query_evolution.modify.modifications import Modifications
from query_evolution.modify.record import Kind, Sample
from rhino_core import failpoints
from rhino_core.errors import ConflictError, IntegrityError, InvalidRequestError
from spark_connector.facts import replace_file
from tests import forked

CLASS = "com.acme.Score"


def jar_of(folder: Path, *names: str, content: str = "code") -> Path:
    path = folder / "new.jar"
    with zipfile.ZipFile(path, "w") as jar:
        for name in names or ("com/acme/Score.class",):
            jar.writestr(zipfile.ZipInfo(name), content)
    return path


def kept(checkpoint: Path) -> Path:
    """The only jar in the checkpoint."""
    (path,) = (checkpoint / "modifications" / "jars").iterdir()
    return path


def test_a_record_names_the_class_and_the_jar_lies_beside_it(checkpoint: Path, tmp_path: Path) -> None:
    jar = jar_of(tmp_path)
    query = Modifications(checkpoint)
    view = query.replace_function("score", jar_function(jar, CLASS), dry_run=True)
    digest = hashlib.sha256(jar.read_bytes()).hexdigest()
    assert view.record.change.jar == JarCode(CLASS, digest, jar.stat().st_size)
    assert (view.record.slot, view.record.sample) == ((Kind.FUNCTION, "score"), Sample(1000, b""))
    assert query.replace_function("score", jar_function(jar, CLASS), dry_run=True, sample=0).record.sample is None
    assert query.get(1).record == view.record
    assert (kept(checkpoint).name, kept(checkpoint).read_bytes()) == (f"{digest}.jar", jar.read_bytes())
    assert (kept(checkpoint).stat().st_mode & 0o777, kept(checkpoint).parent.stat().st_mode & 0o777) == (0o600, 0o700)
    fields = json.loads((checkpoint / "modifications" / "records" / "1").read_text())
    assert fields["kind"] == "function+jar"  # an older driver refuses it
    assert fields["jar"] == {"class": CLASS, "sha256": digest, "bytes": jar.stat().st_size}


def test_a_jar_is_written_once_and_a_damaged_one_again(checkpoint: Path, tmp_path: Path) -> None:
    function = jar_function(jar_of(tmp_path), CLASS)
    query = Modifications(checkpoint)
    query.replace_function("score", function)
    before = kept(checkpoint).stat()
    query.replace_function("other", function)
    assert kept(checkpoint).stat().st_ino == before.st_ino
    kept(checkpoint).write_bytes(b"damaged")
    query.replace_function("third", function)
    assert kept(checkpoint).read_bytes() == function.content


def test_a_change_that_is_refused_here_leaves_no_jar(checkpoint: Path, tmp_path: Path) -> None:
    query = Modifications(checkpoint)
    query.remove("function", "score")
    with pytest.raises(ConflictError, match="modification 1 of function score is on its way"):
        query.replace_function("score", jar_function(jar_of(tmp_path), CLASS))
    assert not (checkpoint / "modifications" / "jars").exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("com.acme.Missing", r"has no class com\.acme\.Missing$"),
        ("Score", r"has no class Score; it has com\.acme\.Score, com\.acme\.Tools\$Score"),
        ("com/acme/Score", r"'com/acme/Score' is no name of a class: give it as com\.acme\.Score"),
        ("", "is no name of a class"),
    ],
)
def test_a_class_that_the_jar_does_not_have_is_named(name: str, message: str, tmp_path: Path) -> None:
    jar = jar_of(tmp_path, "com/acme/Score.class", "com/acme/Tools$Score.class", "com/acme/NoScore.class")
    with pytest.raises(InvalidRequestError, match=message):
        jar_function(jar, name)


def test_what_is_no_jar_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidRequestError, match="cannot be read: No such file"):
        jar_function(tmp_path / "nowhere.jar", CLASS)
    text = tmp_path / "text.jar"
    text.write_text("text")
    with pytest.raises(InvalidRequestError, match="is no jar"):
        jar_function(text, CLASS)
    jar = jar_of(tmp_path)
    monkeypatch.setattr(jars, "JAR_MAX_BYTES", jar.stat().st_size - 1)
    with pytest.raises(InvalidRequestError, match="are allowed: leave out Spark, Scala and what the application has"):
        jar_function(jar, CLASS)


@pytest.mark.parametrize("jar", [None, {}, {"class": "A", "sha256": "../../x", "bytes": 1}])
def test_a_damaged_record_is_named(jar: Any, checkpoint: Path, tmp_path: Path) -> None:
    query = Modifications(checkpoint)
    query.replace_function("score", jar_function(jar_of(tmp_path), CLASS))
    path = checkpoint / "modifications" / "records" / "1"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"jar": jar}))
    with pytest.raises(IntegrityError, match="modification 1 is not readable"):
        query.list()


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    (tmp_path / "jars").mkdir(mode=0o700)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        replace_file(tmp_path / "jars" / "a.jar", b"code")
    assert list((tmp_path / "jars").iterdir()) == []


COMMAND = """
import os, sys
from rhino_core import failpoints
from query_evolution.modify.jars import jar_function
from query_evolution.modify.modifications import Modifications
failpoints.arm(os.environ)
Modifications(sys.argv[1]).replace_function("score", jar_function(sys.argv[2], sys.argv[3]))
"""
POINTS = ("modification.jar.before", "modification.jar.after")


@pytest.mark.parametrize("point", POINTS)
def test_a_command_that_dies_at_the_jar_leaves_no_record(point: str, checkpoint: Path, tmp_path: Path) -> None:
    jar = jar_of(tmp_path)
    env = {**os.environ, failpoints.VARIABLE: f"{point}=kill"}
    ended = forked.run(COMMAND, str(checkpoint), str(jar), CLASS, env=env)
    assert ended.returncode == -signal.SIGKILL
    query = Modifications(checkpoint)
    assert query.list() == ()
    assert query.replace_function("score", jar_function(jar, CLASS)).state == "pending"
    assert kept(checkpoint).read_bytes() == jar.read_bytes()
