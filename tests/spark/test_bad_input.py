"""What users do wrong with Spark's side of Rhino: a clear error that names the thing and the way out, nothing lost."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from deploy.local import LocalCluster
from deploy.local.conf import stock_settings
from spark_connector import rhino_conf
from spark_connector.conf import WAYS
from spark_connector.jar import spark_jars

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
REPOSITORY = Path(__file__).parents[2]
SMALL = {
    "spark.master": "local[1]",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.memory": "600m",
    "spark.log.level": "WARN",
}


@dataclass(frozen=True)
class Outcome:
    done: bool
    error: str


def run_sessions(folder: Path, cases: dict[str, dict[str, str]]) -> tuple[dict[str, Outcome], str]:
    """Runs two batches of an aggregation under each set of settings; the outcomes by name, and the log.

    Cases that share the part of their name before ":" share a query checkpoint.
    """
    request = json.dumps({name: SMALL | conf for name, conf in cases.items()})
    command = [sys.executable, "-m", "tests.spark.sessions", str(folder)]
    result = subprocess.run(
        command, cwd=REPOSITORY, input=request, capture_output=True, text=True, timeout=280, check=False
    )
    assert result.returncode == 0, result.stderr[-3000:]
    outcomes = {name: Outcome(**value) for name, value in json.loads(result.stdout.splitlines()[-1]).items()}
    return outcomes, result.stderr


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory, cluster: LocalCluster) -> dict[str, Outcome]:
    socket = cluster.socket.replace("{host}", cluster.workers[0].host)
    good = rhino_conf(cluster.manager, socket=socket)
    stock = rhino_conf(cluster.manager, socket=socket, through="checkpoint") | {"test.rhino": "true"}
    cases = {
        "manager": good | {"spark.rhino.manager": "127.0.0.1:1", "spark.rhino.managerTimeout": "3"},
        "workers": good | {"spark.rhino.replicationFactor": "5"},
        "unknown": good | {"spark.rhino.replicationFaktor": "1"},
        "malformed": good | {"spark.rhino.replicationFactor": "many"},
        "choice": good | {"spark.rhino.belowMinCopies": "maybe"},
        "durability": good | {"spark.rhino.durability": "forever"},
        "placement": good | {"spark.rhino.placement": "anywhere"},
        "range": good | {"spark.rhino.minCopies": "3"},
        "format": good | {FORMAT: "1"},
        "both": good | {"test.rhino": "true"},
        "transform": good | {"test.transform": "true"},
        "format on rhino": stock | {FORMAT: "1"},
        "in memory": stock | {PROVIDER: WAYS["checkpoint"].replace("RocksDB", "HDFSBacked")},
    }
    # In a process of its own: the settings of the first session become defaults of the JVM, its jars the class path.
    plain = stock_settings() | {"spark.jars": good["spark.jars"]}
    others = {"other:stock": plain, "other:rhino": good, "other:stock again": plain}
    folder = tmp_path_factory.mktemp("sessions")
    return run_sessions(folder, cases)[0] | run_sessions(folder, others)[0]


@pytest.mark.parametrize(
    ("case", "texts"),
    [
        ("manager", ["no Rhino manager answers at 127.0.0.1:1 within 3.0 s", "spark.rhino.manager", "rhino manager"]),
        ("workers", ["needs 6 live workers, 3 are live"]),
        ("unknown", ["unknown Rhino setting spark.rhino.replicationFaktor = '1'", "spark.rhino.replicationFactor"]),
        ("malformed", ["spark.rhino.replicationFactor = 'many'", "whole number"]),
        ("choice", ["spark.rhino.belowMinCopies = 'maybe'", "'degraded' or 'block'"]),
        ("durability", ["spark.rhino.durability = 'forever'", "'replicated' or 'synced'"]),
        ("placement", ["spark.rhino.placement = 'anywhere'", "'state' or 'block'"]),
        ("range", ["spark.rhino.minCopies = '3'", "from 1 to replicationFactor + 1 = 2"]),
        ("format", [f"{FORMAT} = 1: Rhino needs 2"]),
        ("other:rhino", ["was made with the state store provider", "RocksDBStateStoreProvider", "rhino adopt"]),
        ("both", ["is on rhino:// and the state store provider is", "choose one"]),
        ("transform", ["insists on Spark's own state store provider", "rhino_checkpoint"]),
        ("format on rhino", ["expected <version>_<id>.changelog", "checkpointFormatVersion=2"]),
        ("in memory", ["HDFSBackedStateStoreProvider", "RocksDBStateStoreProvider"]),
    ],
)
def test_the_error_names_the_thing_and_the_way_out(outcomes: dict[str, Outcome], case: str, texts: list[str]) -> None:
    assert not outcomes[case].done
    for text in texts:
        assert text in outcomes[case].error


def test_a_refused_checkpoint_goes_on_with_its_own_provider(outcomes: dict[str, Outcome]) -> None:
    assert outcomes["other:stock"].done, outcomes["other:stock"].error
    assert outcomes["other:stock again"].done, outcomes["other:stock again"].error


def test_no_sidecar_on_the_node_names_the_socket(tmp_path: Path, cluster: LocalCluster) -> None:
    conf = rhino_conf(cluster.manager, socket="/nowhere/sidecar.sock")
    outcome = run_sessions(tmp_path, {"sidecar": conf})[0]["sidecar"]
    assert not outcome.done
    assert "no Rhino sidecar answers on /nowhere/sidecar.sock" in outcome.error
    assert "rhino sidecar --socket" in outcome.error


def test_another_file_system_means_copies_and_one_warning(tmp_path: Path, cluster: LocalCluster) -> None:
    memory = Path("/dev/shm")
    if not memory.is_dir() or memory.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("this machine has no second file system to try")
    socket = cluster.socket.replace("{host}", cluster.workers[0].host)
    snapshots = {
        "spark.sql.streaming.stateStore.minDeltasForSnapshot": "1",
        "spark.sql.streaming.stateStore.maintenanceInterval": "200ms",
    }
    conf = rhino_conf(cluster.manager, socket=socket) | snapshots | {"spark.local.dir": "/dev/shm"}
    found, log = run_sessions(tmp_path, {"copies": conf | {"test.batches": "8"}})
    assert found["copies"].done, found["copies"].error
    assert log.count("cannot hard-link") == 1


def test_an_unsupported_pyspark_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import pyspark

    monkeypatch.setattr(pyspark, "__version__", "4.0.1")
    with pytest.raises(LookupError, match=r"PySpark 4\.0\.1 is not supported: use 4\.2\.x or 4\.3\.x"):
        spark_jars()


def test_the_embedded_default_for_notebooks(tmp_path: Path) -> None:
    outcome = run_sessions(tmp_path, {"embedded": {"test.embedded": "true"}})[0]["embedded"]
    assert outcome.done, outcome.error
