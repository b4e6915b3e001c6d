"""The place of the jar, in Spark's settings and in the output of `rhino conf`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rhino import local_session, rhino_conf
from rhino.cli.main import app
from rhino_core.errors import InvalidSettingError
from spark_connector.jar_place import jar_setting


@pytest.fixture
def jar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "rhino.jar"
    path.touch()
    return path


@pytest.mark.parametrize(
    "url",
    [
        "http://host:8081/jars/rhino.jar",
        "https://bucket.example.com/rhino.jar?signature=1",
        "hdfs://namenode:8020/jars/rhino.jar",
        "hdfs:///jars/rhino.jar",
        "s3a://bucket/rhino.jar",
        "abfss://container@account.dfs.core.windows.net/rhino.jar",
        "local:///opt/rhino/rhino.jar",
        "local:/opt/rhino/rhino.jar",
    ],
)
def test_a_url_goes_to_spark_as_it_is(url: str) -> None:
    assert jar_setting(url) == ("spark.jars", url)


def test_a_file_is_named_by_its_absolute_path(jar: Path) -> None:
    for place in (jar, "rhino.jar", Path("rhino.jar"), f"file://{jar}", f"file:{jar}"):
        assert jar_setting(place) == ("spark.jars", str(jar))


def test_a_package_is_no_jar_in_the_settings() -> None:
    conf = rhino_conf("h:7461", jar="ivy://com.example:rhino-spark_2.13:0.1.0")
    assert conf["spark.jars.packages"] == "com.example:rhino-spark_2.13:0.1.0"
    assert "spark.jars" not in conf


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("missing.jar", "no such file; `rhino jar` makes it"),
        ("file:///missing.jar", "no such file"),
        ("", "no such file"),
        ("http:/host/rhino.jar", "names no host; in Python give it as str"),
        (Path("https://host/rhino.jar"), "names no host; in Python give it as str"),
        ("http://host/jars/", "its path must be absolute and end with .jar"),
        ("hdfs:rhino.jar", "its path must be absolute"),
        ("s3a://bucket/rhino", "end with .jar"),
        ("com.example:rhino-spark:0.1.0", "write ivy://com.example:rhino-spark:0.1.0 for a package"),
        ("ivy://rhino-spark", "not of the form ivy://GROUP:ARTIFACT:VERSION"),
        ("rhino://file/rhino.jar", "this jar has the classes that read rhino://"),
        ("http://host/a.jar,http://host/b.jar", "a comma ends an entry"),
    ],
)
def test_a_place_that_spark_cannot_read_is_refused_by_name(jar: Path, place: str | Path, why: str) -> None:
    with pytest.raises(InvalidSettingError) as caught:
        rhino_conf("h:7461", jar=place)
    assert str(caught.value).startswith(f"setting jar = {str(place)!r}: ")
    assert why in str(caught.value)


def test_a_local_session_takes_a_file_only_and_starts_nothing_otherwise(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettingError, match="no such file"):
        local_session(data_dir=tmp_path / "state", jar=Path("http://host/rhino.jar"))
    assert not (tmp_path / "state").exists()


def printed(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["conf", "--manager", "h", *arguments])
    if result.exception is not None:
        raise result.exception
    return result.stdout


def test_the_command_line_has_spark_submits_own_options_for_the_jar() -> None:
    url, package = "https://host/rhino.jar", "com.example:rhino-spark:0.1.0"
    assert printed("--jar", url, "--format", "arguments").startswith(f"--jars {url} --conf spark.plugins=")
    of_package = printed("--jar", f"ivy://{package}", "--format", "arguments")
    assert of_package.startswith(f"--packages {package} --conf spark.plugins=")
    assert "spark.jars" not in of_package
    assert json.loads(printed("--jar", url, "--format", "json"))["spark.jars"] == url
    assert f"spark.jars.packages{' ' * 10}" in printed("--jar", f"ivy://{package}")


def test_arguments_that_the_shell_would_split_are_refused(tmp_path: Path) -> None:
    jar = tmp_path / "my jars" / "rhino.jar"
    jar.parent.mkdir()
    jar.touch()
    with pytest.raises(InvalidSettingError, match="the shell splits arguments at white space; use --format properties"):
        printed("--jar", str(jar), "--format", "arguments")
    assert str(jar) in printed("--jar", str(jar))
