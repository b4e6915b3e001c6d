"""A query on Kubernetes through the events of its nodes and pods: the manifests, the image, and Spark in cluster mode.

The scenes are one play: each begins where the former one ended, and all batches of the query have the known answer.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubernetes import query
from tests.kubernetes.cluster import MANAGER, KubernetesCluster, ready, wait
from tests.kubernetes.containers import missing_tools

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(1800)]
BATCHES = 3  # after each event
BATCHES_TIMEOUT_S = 240.0
NOTICE_S = 30.0
ELASTIC = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "3",
    "spark.dynamicAllocation.maxExecutors": "4",
    "spark.decommission.enabled": "true",
}


class Play:
    """The cluster, and the query that runs on it."""

    def __init__(self, cluster: KubernetesCluster) -> None:
        self.cluster = cluster
        self.folder = cluster.shared / "counts"
        self.folder.mkdir()
        self.folder.chmod(0o777)
        application = cluster.shared / "query.py"
        shutil.copy(query.__file__, application)
        cluster.submit(application, [str(self.folder)], ELASTIC)

    def batches(self) -> list[dict[str, int]]:
        path = self.folder / "batches.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def go_on(self) -> None:
        """Waits for further batches, and checks all of them."""
        goal = len(self.batches()) + BATCHES
        try:
            wait(lambda: len(self.batches()) >= goal, f"{BATCHES} more batches", BATCHES_TIMEOUT_S)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.driver_log()[-5000:]}") from None
        known = self.batches()
        assert sorted({line["batch"] for line in known}) == list(range(known[-1]["batch"] + 1))
        for line in known:
            each = query.ROWS * (line["batch"] + 1) // query.KEYS
            assert (line["keys"], line["least"], line["most"]) == (query.KEYS, each, each), line

    def driver_log(self) -> str:
        (driver,) = self.cluster.objects.list("pods", "spark-role=driver")
        return self.cluster.kubelet.log(driver["metadata"]["name"])

    def lost(self) -> list[str]:
        """Workers that the manager declared lost, by its log."""
        log = self.cluster.kubelet.log("rhino-manager-0")
        states = [json.loads(line).get("states", {}) for line in log.splitlines() if '"message": "workers"' in line]
        return [worker for one in states for worker, state in one.items() if state == "lost"]

    def wait_until_whole(self) -> None:
        """All groups have all of their copies."""
        wait(lambda: self.cluster.rhino_succeeds("status", "--check", "--manager", MANAGER), "whole copies", 180)


@pytest.fixture(scope="module")
def play(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Play]:
    assert not missing_tools(), f"install {' '.join(missing_tools())}"
    folder = tmp_path_factory.mktemp("kubernetes")
    for parent in (folder, *folder.parents):  # pods of another user reach their volumes below it
        if Path("/tmp") in parent.parents:
            parent.chmod(0o755)
    with KubernetesCluster(folder) as cluster:
        made = Play(cluster)
        yield made
        assert cluster.kubelet.failures == []


def test_a_query_in_cluster_mode(play: Play) -> None:
    play.go_on()
    (driver,) = play.cluster.objects.list("pods", "spark-role=driver")
    owners = [owner["name"] for pod in play.cluster.executors() for owner in pod["metadata"]["ownerReferences"]]
    assert set(owners) == {driver["metadata"]["name"]}
    status = play.cluster.status()
    assert {worker["worker_id"] for worker in status["workers"]} == set(play.cluster.kubelet.nodes)
    assert len(status["groups"]) == 4


def test_an_executor_is_killed(play: Play) -> None:
    killed = play.cluster.executors()[0]["metadata"]["name"]
    play.cluster.podman("kill", killed)
    play.go_on()


def test_the_pod_of_a_sidecar_is_replaced(play: Play) -> None:
    """Its worker returns within its lease: no copy moves."""
    play.wait_until_whole()
    play.cluster.replace_sidecar("node-3")
    play.go_on()
    assert play.lost() == []


def test_a_rolling_update(play: Play) -> None:
    play.wait_until_whole()
    play.cluster.roll_out()
    play.go_on()
    play.wait_until_whole()
    assert play.lost() == []


def test_the_manager_moves_to_another_node(play: Play) -> None:
    play.cluster.delete_pod("rhino-manager-0")
    play.cluster.start_manager(node="node-2")
    play.go_on()
    play.wait_until_whole()


def test_a_node_leaves_with_a_notice(play: Play) -> None:
    """Its executor is decommissioned, and its sidecar drains first: the node is safe to remove within the notice."""
    cluster, started = play.cluster, time.monotonic()
    cluster.kubelet.nodes["node-1"].cordoned = True
    assert "safe to remove" in cluster.rhino("drain", "node-1", "--wait", "--manager", MANAGER)
    for pod in cluster.executors():
        if pod["spec"]["nodeName"] == "node-1":
            cluster.objects.delete("pods", pod["metadata"]["name"], max(NOTICE_S - (time.monotonic() - started), 1))
    play.go_on()
    cluster.delete_pod("rhino-sidecar-node-1")
    play.go_on()


def test_the_node_returns(play: Play) -> None:
    cluster = play.cluster
    cluster.start_sidecar("node-1")
    wait(lambda: ready(cluster.sidecar("node-1")), "the sidecar of node-1 is ready", 120)
    cluster.rhino("drain", "node-1", "--cancel", "--manager", MANAGER)
    cluster.kubelet.nodes["node-1"].cordoned = False
    play.go_on()
    play.wait_until_whole()


def test_a_node_is_gone_without_a_word(play: Play) -> None:
    play.cluster.kubelet.lose_node("node-3")
    play.go_on()
    wait(lambda: "node-3" in play.lost(), "the manager knows", 180)


def test_the_end_of_the_query_takes_its_pods_away(play: Play) -> None:
    (driver,) = play.cluster.objects.list("pods", "spark-role=driver")
    (play.folder / "stop").touch()
    name = driver["metadata"]["name"]
    wait(lambda: (play.cluster.objects.get("pods", name) or {})["status"]["phase"] == "Succeeded", "its end", 120)
    assert play.cluster.executors() == []
