"""What users do wrong with Spark's side of Rhino: a clear error that names the thing and the way out, nothing lost."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from rhino import rhino_conf
from rhino.testing import LocalCluster
from rhino.testing.conf import stock_settings
from spark_connector.conf import PROVIDER_CLASSES, state_conf
from tests.spark.support.bad_input import Outcome, run_sessions

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(300)]  # SettingsSuite has the messages
FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
CHANGELOGS = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
SOMEBODY = 12345  # a Unix user
CONTEXT_MANAGER = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileContextBasedCheckpointFileManager"  # the first choice
)
SNAPSHOTS = {
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "1",
    "spark.sql.streaming.stateStore.maintenanceInterval": "200ms",
}


def somebodys(path: Path) -> Path:
    """Where the sidecar's socket should be, another user has put a file; without root it is this user's."""
    path.touch()
    if os.geteuid() == 0:
        os.chown(path, SOMEBODY, SOMEBODY)
    return path


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory, cluster: LocalCluster) -> dict[str, Outcome]:
    socket = cluster.socket.replace("{host}", cluster.workers[0].host)
    good = rhino_conf(cluster.manager, socket=socket)
    stock = rhino_conf(cluster.manager, socket=socket, integration="checkpoint") | {"test.rhino": "true"}
    cases = {
        "manager": good | {"spark.rhino.manager": "127.0.0.1:1", "spark.rhino.managerTimeout": "3"},
        "workers": good | {"spark.rhino.replicationFactor": "5"},
        "unknown": good | {"spark.rhino.replicationFaktor": "1"},
        "malformed": good | {"spark.rhino.replicationFactor": "many"},
        "choice": good | {"spark.rhino.belowMinCopies": "maybe"},
        "durability": good | {"spark.rhino.durability": "forever"},
        "range": good | {"spark.rhino.minCopies": "3"},
        "format": good | {FORMAT: "1"},
        "changelogs": good | {CHANGELOGS: "false"},
        "late format": good | {"test.late": json.dumps({FORMAT: "1"})},
        "late changelogs": good | {"test.late": json.dumps({CHANGELOGS: "false"})},
        "late changelogs on rhino": stock | {"test.late": json.dumps({CHANGELOGS: "false"})},
        "both": good | {"test.rhino": "true"},
        "transform": good | {"test.transform": "true"},
        "format on rhino": stock | {FORMAT: "1"},
        "sidecar": good | {"spark.rhino.socket": "/nowhere/sidecar.sock"},
        "somebody's sidecar": good | {"spark.rhino.socket": str(somebodys(tmp_path_factory.mktemp("socket") / "s"))},
        "in memory": stock | {PROVIDER: PROVIDER_CLASSES["checkpoint"].replace("RocksDB", "HDFSBacked")},
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
        ("range", ["spark.rhino.minCopies = '3'", "from 1 to replicationFactor + 1 = 2"]),
        ("format", [f"{FORMAT} = 1: Rhino needs 2"]),
        ("changelogs", [f"{CHANGELOGS} = false: Rhino replicates changelogs"]),
        ("late format", [f"{FORMAT} = 1: Rhino needs 2"]),
        ("late changelogs", [f"{CHANGELOGS} = false: Rhino replicates changelogs"]),
        ("late changelogs on rhino", [f"{CHANGELOGS} = false: Rhino replicates changelogs"]),
        ("other:rhino", ["was made with the state store provider", "RocksDBStateStoreProvider", "rhino adopt"]),
        ("both", ["is on rhino:// and the state store provider is", "choose one"]),
        ("transform", ["insists on Spark's own state store provider", "rhino_checkpoint"]),
        ("format on rhino", [f"{FORMAT} = 1: Rhino needs 2"]),
        ("sidecar", ["no session with a Rhino sidecar on /nowhere/sidecar.sock", "rhino sidecar --socket"]),
        pytest.param(
            "somebody's sidecar",
            [f"belongs to the Unix user {SOMEBODY}", "sidecar and executors as one user"],
            marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away"),
        ),
        ("in memory", ["HDFSBackedStateStoreProvider", "RocksDBStateStoreProvider"]),
    ],
)
def test_the_error_names_the_thing_and_the_way_out(outcomes: dict[str, Outcome], case: str, texts: list[str]) -> None:
    assert not outcomes[case].done
    for text in texts:
        assert text in outcomes[case].error


@pytest.mark.parametrize("case", ["format", "changelogs", "late format", "late changelogs", "format on rhino", "both"])
def test_what_is_refused_leaves_the_checkpoint_alone(outcomes: dict[str, Outcome], case: str) -> None:
    assert not outcomes[case].offsets


def test_a_refused_checkpoint_goes_on_with_its_own_provider(outcomes: dict[str, Outcome]) -> None:
    assert outcomes["other:stock"].done, outcomes["other:stock"].error
    assert outcomes["other:stock again"].done, outcomes["other:stock again"].error


@pytest.fixture(scope="module")
def few_settings(tmp_path_factory: pytest.TempPathFactory, cluster: LocalCluster) -> dict[str, Outcome]:
    """The three settings and the jar, and what this cluster needs: as docs/user/settings.md says, nothing else."""
    good = rhino_conf(cluster.manager)
    needed = ("spark.jars", "spark.plugins", PROVIDER, "spark.rhino.manager", "spark.rhino.tls.dir")
    few = {key: good[key] for key in needed}
    few["spark.rhino.socket"] = cluster.socket.replace("{host}", cluster.workers[0].host)
    on_rhino = few | {PROVIDER: PROVIDER_CLASSES["checkpoint"], "test.rhino": "true"}
    sums = {"spark.sql.streaming.checkpoint.fileChecksum.enabled": "true", "test.batches": "4"} | SNAPSHOTS
    context = {"spark.sql.streaming.checkpointFileManagerClass": CONTEXT_MANAGER, "test.batches": "4"} | SNAPSHOTS
    cases = {
        "three": few,
        "three on rhino": on_rhino,
        "checksums:first": few | sums,
        "checksums:again": few | sums,
        "checksums on rhino:first": on_rhino | sums,
        "checksums on rhino:again": on_rhino | sums,
        "context on rhino:first": on_rhino | context,
        "context on rhino:again": on_rhino | context,
        "context and checksums on rhino": on_rhino | context | sums,
    }
    # In a process of its own: the provider of the first session becomes the default of the JVM.
    in_memory = {"in memory": {key: value for key, value in few.items() if key != PROVIDER}}
    folder = tmp_path_factory.mktemp("few")
    return run_sessions(folder, cases)[0] | run_sessions(folder, in_memory)[0]


@pytest.mark.parametrize("case", ["three", "three on rhino"])
def test_three_settings_suffice(few_settings: dict[str, Outcome], case: str) -> None:
    outcome = few_settings[case]
    assert outcome.done, outcome.error
    assert {key: outcome.conf.get(key) for key in state_conf()} == state_conf()


def test_a_session_of_sparks_in_memory_provider_is_left_alone(few_settings: dict[str, Outcome]) -> None:
    outcome = few_settings["in memory"]
    assert outcome.done, outcome.error
    assert FORMAT not in outcome.conf


@pytest.mark.parametrize(
    "case",
    [
        "checksums:first",
        "checksums:again",
        "checksums on rhino:first",
        "checksums on rhino:again",
        "context on rhino:first",
        "context on rhino:again",
        "context and checksums on rhino",
    ],
)
def test_sparks_own_defaults_for_checkpoint_files_work(few_settings: dict[str, Outcome], case: str) -> None:
    assert few_settings[case].done, few_settings[case].error


def test_another_file_system_means_copies_and_one_warning(tmp_path: Path, cluster: LocalCluster) -> None:
    memory = Path("/dev/shm")
    if not memory.is_dir() or memory.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("this machine has no second file system to try")
    socket = cluster.socket.replace("{host}", cluster.workers[0].host)
    conf = rhino_conf(cluster.manager, socket=socket) | SNAPSHOTS | {"spark.local.dir": "/dev/shm"}
    found, log = run_sessions(tmp_path, {"copies": conf | {"test.batches": "8"}})
    assert found["copies"].done, found["copies"].error
    assert log.count("cannot hard-link") == 1
