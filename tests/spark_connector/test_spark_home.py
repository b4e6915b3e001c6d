"""Where Spark is looked for, and what is said when it is not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from rhino_core.errors import InvalidSettingError, UnknownError
from spark_connector.spark_home import SUPPORTED, minor, spark_jars


def spark(home: Path, version: str) -> Path:
    (home / "jars").mkdir(parents=True)
    (home / "jars" / f"spark-core_2.13-{version}.jar").touch()
    return home


def test_the_package_is_found() -> None:
    version, jars = spark_jars({})
    assert minor(version) in SUPPORTED
    assert (jars / f"spark-core_2.13-{version}.jar").is_file()


def test_spark_home_comes_first(tmp_path: Path) -> None:
    home = spark(tmp_path, "4.2.7")
    assert spark_jars({"SPARK_HOME": str(home)}) == ("4.2.7", home / "jars")


def test_a_package_in_an_unpacked_archive_has_its_jars_beside_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = spark(tmp_path, "4.3.1-vendor-2")
    (home / "python" / "pyspark").mkdir(parents=True)
    (home / "python" / "pyspark" / "__init__.py").touch()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: Spec(home / "python" / "pyspark" / "__init__.py"))
    assert spark_jars({}) == ("4.3.1-vendor-2", home / "jars")


def test_what_is_no_spark_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidSettingError, match=f"SPARK_HOME = '{tmp_path}': there is no jars/spark-core_"):
        spark_jars({"SPARK_HOME": str(tmp_path)})
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UnknownError, match=r"pip install 'rhino-state\[spark\]', or set SPARK_HOME"):
        spark_jars({})


def test_an_unsupported_spark_is_named(tmp_path: Path) -> None:
    home = spark(tmp_path, "4.0.1")
    with pytest.raises(UnknownError, match=r"Spark 4\.0\.1 in .* is not supported: use 4\.2\.x or 4\.3\.x"):
        spark_jars({"SPARK_HOME": str(home)})


class Spec:
    """The result of `find_spec`, as far as it is used."""

    def __init__(self, origin: Path) -> None:
        self.origin = str(origin)
