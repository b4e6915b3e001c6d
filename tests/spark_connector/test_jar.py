import zipfile
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from spark_connector import jar
from spark_connector.rpc.descriptors import descriptor_set


def test_the_descriptor_set_has_the_services_and_every_import_first() -> None:
    files = FileDescriptorSet.FromString(descriptor_set()).file
    seen: set[str] = set()
    for file in files:
        assert set(file.dependency) <= seen
        seen.add(file.name)
    assert {s.name for f in files for s in f.service} >= {"Sidecar", "HandoverManager"}


def test_a_jar_is_built_once_and_holds_classes_and_descriptors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = jar.ensure_jar(tmp_path)
    names = set(zipfile.ZipFile(built).namelist())
    package = "org/apache/spark/sql/execution/streaming/state"
    assert {f"{package}/Rhino{c}.class" for c in ("Plugin", "FileSystem", "StateStoreProvider")} <= names
    assert zipfile.ZipFile(built).read("rhino/descriptors.pb") == descriptor_set()
    monkeypatch.setattr(jar, "_build", lambda *_: pytest.fail("built again"))
    assert jar.ensure_jar(tmp_path) == built


def test_another_source_means_another_jar(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = jar.jar_name("4.3.0")
    (tmp_path / "Other.scala").write_text("class Other")
    monkeypatch.setattr(jar, "SOURCES", tmp_path)
    assert jar.jar_name("4.3.0") != before
