"""A query on Kubernetes through the events of its nodes and pods: the manifests, the image, and Spark in cluster mode.

The scenes are one play: each begins where the former one ended, and all batches of the query have the known answer.
"""

from __future__ import annotations

import json
import platform
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubernetes import query
from tests.kubernetes.cluster import MANAGER, KubernetesCluster, ready, wait
from tests.kubernetes.containers import IMAGE, missing_tools

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


class Query:
    """The query of `query.py` as an application of its own."""

    def __init__(self, cluster: KubernetesCluster, name: str, settings: dict[str, str]) -> None:
        self.cluster, self.name = cluster, name
        self.folder = cluster.shared / name
        self.folder.mkdir()
        self.folder.chmod(0o777)
        application = cluster.shared / "query.py"
        shutil.copy(query.__file__, application)
        cluster.submit(name, application, [str(self.folder)], settings)

    def batches(self) -> list[dict[str, int]]:
        path = self.folder / "batches.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def go_on(self) -> None:
        """Waits for further batches, and checks all of them."""
        goal = len(self.batches()) + BATCHES
        try:
            wait(lambda: len(self.batches()) >= goal, f"{BATCHES} more batches", BATCHES_TIMEOUT_S)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.cluster.kubelet.log(self.driver)[-5000:]}") from None
        known = self.batches()
        assert sorted({line["batch"] for line in known}) == list(range(known[-1]["batch"] + 1))
        for line in known:
            each = query.ROWS * (line["batch"] + 1) // query.KEYS
            assert (line["keys"], line["least"], line["most"]) == (query.KEYS, each, each), line

    @property
    def driver(self) -> str:
        """The name of the pod."""
        (found,) = self.cluster.objects.list("pods", f"spark-role=driver,spark-app-name={self.name}")
        return str(found["metadata"]["name"])

    def end(self) -> None:
        (self.folder / "stop").touch()
        driver = self.driver

        def ended() -> bool:
            pod = self.cluster.objects.get("pods", driver)
            return pod is not None and pod["status"]["phase"] == "Succeeded"

        wait(ended, f"the end of {driver}", 120)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubernetesCluster]:
    assert not missing_tools(), f"install {' '.join(missing_tools())}"
    folder = tmp_path_factory.mktemp("kubernetes")
    for parent in (folder, *folder.parents):  # pods of another user reach their volumes below it
        if Path("/tmp") in parent.parents:
            parent.chmod(0o755)
    with KubernetesCluster(folder) as made:
        yield made
        assert made.kubelet.failures == []


@pytest.fixture(scope="module")
def counts(cluster: KubernetesCluster) -> Query:
    return Query(cluster, "counts", ELASTIC)


def test_the_image(cluster: KubernetesCluster) -> None:
    """All byte code is there: a container with a read-only root keeps none. The wheel is not."""
    modules = "rhino.cli.main, rhino.daemons.manager_process, worker_runtime.sidecar"
    uncompiled = (
        f"import os, sys, {modules}; "
        "print([name for name, one in sys.modules.items() "
        "if getattr(one, '__cached__', None) and not os.path.exists(one.__cached__)])"
    )
    run = ["run", "--rm", "--read-only", "--read-only-tmpfs=false", "--cap-drop=ALL"]
    assert cluster.podman(*run, "--entrypoint", "/opt/rhino/bin/python", IMAGE, "-c", uncompiled).strip() == "[]"
    assert cluster.podman(*run, "--entrypoint", "find", IMAGE, "/tmp", "/opt", "-name", "*.whl") == ""
    about = cluster.podman.inspect(IMAGE)
    assert (about["User"], about["Architecture"]) == ("185:185", "amd64" if platform.machine() == "x86_64" else "arm64")
    assert about["Labels"]["org.opencontainers.image.title"] == "Rhino"  # type: ignore[index]


def test_a_query_in_cluster_mode(counts: Query) -> None:
    counts.go_on()
    owners = [owner["name"] for pod in counts.cluster.executors() for owner in pod["metadata"]["ownerReferences"]]
    assert set(owners) == {counts.driver}
    status = counts.cluster.status()
    assert {worker["worker_id"] for worker in status["workers"]} == set(counts.cluster.kubelet.nodes)
    assert len(status["groups"]) == 4


def test_an_executor_is_killed(counts: Query) -> None:
    """The sidecar of its node removes its local folders."""
    cluster = counts.cluster
    nodes = [pod["spec"]["nodeName"] for pod in cluster.executors()]
    killed = next(pod for pod in cluster.executors() if nodes.count(pod["spec"]["nodeName"]) == 1)
    node = cluster.kubelet.node_folder(killed["spec"]["nodeName"]) / "mnt/rhino"
    left = [path for path in node.iterdir() if path.name.startswith(("blockmgr-", "spark-")) and path.is_dir()]
    assert left
    cluster.podman("kill", killed["metadata"]["name"])
    counts.go_on()
    wait(lambda: not any(path.exists() for path in left), f"{left} are removed", 60)


def test_the_pod_of_a_sidecar_is_replaced(counts: Query) -> None:
    """Its worker returns within its lease: no copy moves."""
    counts.cluster.wait_until_whole()
    counts.cluster.replace_sidecar("node-3")
    counts.go_on()
    assert counts.cluster.lost_workers() == []


def test_a_rolling_update(counts: Query) -> None:
    counts.cluster.wait_until_whole()
    counts.cluster.roll_out()
    counts.go_on()
    counts.cluster.wait_until_whole()
    assert counts.cluster.lost_workers() == []


def test_the_manager_moves_to_another_node(counts: Query) -> None:
    counts.cluster.delete_pod("rhino-manager-0")
    counts.cluster.start_manager(node="node-2")
    counts.go_on()
    counts.cluster.wait_until_whole()


def test_a_node_leaves_with_a_notice(counts: Query) -> None:
    """Its executor is decommissioned, and its sidecar drains first: the node is safe to remove within the notice."""
    cluster, started = counts.cluster, time.monotonic()
    cluster.kubelet.nodes["node-1"].cordoned = True
    assert "safe to remove" in cluster.rhino("drain", "node-1", "--wait", "--manager", MANAGER)
    for pod in cluster.executors():
        if pod["spec"]["nodeName"] == "node-1":
            cluster.objects.delete("pods", pod["metadata"]["name"], max(NOTICE_S - (time.monotonic() - started), 1))
    counts.go_on()
    cluster.delete_pod("rhino-sidecar-node-1")
    counts.go_on()


def test_the_node_returns(counts: Query) -> None:
    cluster = counts.cluster
    cluster.start_sidecar("node-1")
    wait(lambda: ready(cluster.sidecar("node-1")), "the sidecar of node-1 is ready", 120)
    cluster.rhino("drain", "node-1", "--cancel", "--manager", MANAGER)
    cluster.kubelet.nodes["node-1"].cordoned = False
    counts.go_on()
    counts.cluster.wait_until_whole()


def test_a_sidecar_drains_in_its_hook(counts: Query) -> None:
    """With `drainOnStopS`, the end of the pod is a drain: its worker has nothing left."""
    cluster = counts.cluster
    cluster.delete_pod("rhino-sidecar-node-2")
    cluster.start_sidecar("node-2", "--set=sidecar.drainOnStopS=100")
    wait(lambda: ready(cluster.sidecar("node-2")), "the sidecar of node-2 is ready", 120)
    cluster.kubelet.nodes["node-2"].cordoned = True
    cluster.delete_pod("rhino-sidecar-node-2")
    (worker,) = (one for one in cluster.status()["workers"] if one["worker_id"] == "node-2")
    assert worker["draining"]
    counts.go_on()
    cluster.start_sidecar("node-2")
    wait(lambda: ready(cluster.sidecar("node-2")), "the sidecar of node-2 is ready", 120)
    cluster.rhino("drain", "node-2", "--cancel", "--manager", MANAGER)
    cluster.kubelet.nodes["node-2"].cordoned = False
    counts.go_on()
    cluster.wait_until_whole()


def test_a_node_is_gone_without_a_word(counts: Query) -> None:
    counts.cluster.kubelet.lose_node("node-3")
    counts.go_on()
    wait(lambda: "node-3" in counts.cluster.lost_workers(), "the manager knows", 180)


def test_the_end_of_the_query_takes_its_pods_away(counts: Query) -> None:
    counts.end()
    assert counts.cluster.executors() == []


def test_a_driver_of_another_user(cluster: KubernetesCluster) -> None:
    """Driver and executors share the group of the checkpoint's folder, and what they make there is the group's."""
    template = cluster.folder / "driver.json"
    template.write_text(json.dumps({"spec": {"securityContext": {"runAsUser": 186, "runAsGroup": 185}}}))
    settings = {
        "spark.kubernetes.driver.podTemplateFile": str(template),
        "spark.hadoop.fs.permissions.umask-mode": "002",
    }
    other = Query(cluster, "other-user", settings)
    other.go_on()
    owners = {path.stat().st_uid for path in (other.folder / "checkpoint").rglob("*")}
    assert owners == {185, 186}
    other.end()
