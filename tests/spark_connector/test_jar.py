import zipfile
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from typer.testing import CliRunner

from rhino.cli.main import app
from rhino_core.errors import UnavailableError
from rhino_core.version import rhino_version
from spark_connector import jar
from spark_connector.jar import descriptor_set
from spark_connector.spark_home import minor, spark_jars


def test_the_descriptor_set_has_the_services_and_every_import_first() -> None:
    files = FileDescriptorSet.FromString(descriptor_set()).file
    seen: set[str] = set()
    for file in files:
        assert set(file.dependency) <= seen
        seen.add(file.name)
    assert {s.name for f in files for s in f.service} >= {"Sidecar", "HandoverManager"}


def test_the_jar_holds_classes_and_descriptors() -> None:
    built = zipfile.ZipFile(jar.ensure_jar())  # `make setup` may have built it
    names = ("Plugin", "FileSystem", "StateStoreProvider")
    assert {f"rhino/spark/Rhino{name}.class" for name in names} <= {*built.namelist()}
    assert built.read("rhino/descriptors.pb") == descriptor_set()
    extensions = built.read("META-INF/services/rhino.spark.driver.DriverExtension").decode().split()
    assert {f"{name.replace('.', '/')}.class" for name in extensions} <= {*built.namelist()}
    assert extensions


def test_a_jar_is_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def compile_scala(jars: Path, files: list[Path], classes: Path, *, timeout_s: float) -> None:
        classes.mkdir()
        (classes / "Compiled.class").write_bytes(b"code")

    monkeypatch.setattr(jar, "compile_scala", compile_scala)
    built = jar.ensure_jar(tmp_path)
    assert zipfile.ZipFile(built).read("Compiled.class") == b"code"
    monkeypatch.setattr(jar, "build", lambda *_, **__: pytest.fail("built again"))
    assert jar.ensure_jar(tmp_path) == built


def test_a_compiler_that_does_not_end_is_stopped_and_the_way_out_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java, out = tmp_path / "bin" / "java", tmp_path / "out"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 600\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    result = CliRunner().invoke(app, ["jar", "--output-dir", str(out), "--timeout-s", "1"])
    assert isinstance(result.exception, UnavailableError)
    assert str(result.exception).startswith("the Scala compiler had not ended after 1 s and was stopped")
    assert "`rhino jar --timeout-s` gives it more time" in str(result.exception)
    assert list(out.iterdir()) == [], "nothing is left behind"
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()


def test_the_patch_versions_of_one_spark_share_a_jar() -> None:
    assert jar.jar_name("4.3.0") == jar.jar_name("4.3.12") == jar.jar_name("4.3")
    assert jar.jar_name("4.2.1") != jar.jar_name("4.3.1")
    assert zipfile.ZipFile(jar.ensure_jar()).read("rhino/spark-version").decode() == minor(spark_jars()[0])


def test_the_jar_has_the_version_of_this_rhino_and_another_version_means_another_jar(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert zipfile.ZipFile(jar.ensure_jar()).read("rhino/version").decode() == rhino_version()
    before = jar.jar_name("4.3.0")
    monkeypatch.setattr(jar, "rhino_version", lambda: "0.0.0")
    assert jar.jar_name("4.3.0") != before


def test_another_source_means_another_jar(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = jar.jar_name("4.3.0")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "Other.scala").write_text("class Other")
    monkeypatch.setattr(jar, "ROOTS", (tmp_path,))
    other = jar.jar_name("4.3.0")
    assert other != before
    (tmp_path / "folder" / "Other.scala").rename(tmp_path / "Other.scala")
    moved = jar.jar_name("4.3.0")
    assert moved not in (before, other)
    (tmp_path / jar.SERVICES).mkdir(parents=True)
    (tmp_path / jar.SERVICES / "Extension").write_text("Other\n")
    assert jar.jar_name("4.3.0") not in (before, other, moved)
