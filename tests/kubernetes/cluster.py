"""A cluster of Kubernetes with Rhino: the manifests of deploy/kubernetes, applied to the API server of this harness."""

from __future__ import annotations

import base64
import copy
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import pyspark
import yaml

from rhino_core.security.sources import new_cluster_key
from spark_connector.jar import ensure_jar
from tests.deploy.wheel import ROOT
from tests.kubernetes.api import ApiServer, Object, Objects
from tests.kubernetes.containers import IMAGE, Podman
from tests.kubernetes.kubelet import Kubelet, Node
from tools.manifests import rendered

MANIFESTS = ROOT / "deploy/kubernetes"
NETWORK = "10.89.126"
MANAGER = "rhino-manager.rhino:7461"
POLL_S = 0.2
NODES = ("node-1", "node-2", "node-3")


def manifests() -> list[Object]:
    chosen = yaml.safe_load((MANIFESTS / "kustomization.yaml").read_text())
    return [one for name in chosen["resources"] for one in yaml.safe_load_all((MANIFESTS / name).read_text())]


def manifest(kind: str) -> Object:
    (found,) = (one for one in manifests() if one["kind"] == kind)
    return found


def wait(condition: Callable[[], bool], what: str, timeout_s: float) -> None:
    """AssertionError: the condition did not come true within the time."""
    until = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < until, f"not within {timeout_s:g} s: {what}"
        time.sleep(POLL_S)


def ready(pod: Object | None) -> bool:
    conditions = (pod or {}).get("status", {}).get("conditions", ())
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


class KubernetesCluster:
    """Context manager. `workers`: nodes with the label of sidecars."""

    def __init__(self, folder: Path, workers: Sequence[str] = NODES) -> None:
        self.folder = folder
        folder.chmod(0o755)
        self.podman = Podman(folder / "podman", NETWORK)
        self.objects = Objects()
        self.shared = Path(tempfile.mkdtemp(prefix="rhino-shared-"))  # pods reach it at the same path
        self.shared.chmod(0o777)
        (folder / "kubelet").mkdir()
        nodes = {
            name: Node(name, {"rhino-worker": "true", "topology.kubernetes.io/zone": f"zone-{number}"})
            for number, name in enumerate(workers, 1)
        }
        self.kubelet = Kubelet(self.objects, self.podman, folder / "kubelet", NETWORK, nodes, self.shared)
        self.kubelet.stable["rhino-manager-0"] = f"{NETWORK}.10"
        self._sidecars = manifest("DaemonSet")
        self._api: ApiServer | None = None
        self._ending = threading.Event()

    def __enter__(self) -> Self:
        try:
            self.podman.build_image()
            self.podman.open()
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def close(self) -> None:
        self.podman.close()
        if self._api is not None:
            self._api.close()

    def _start(self) -> None:
        # The bridge, and the address of the API server on it, exist with the first container.
        key = self.folder / "cluster.key"
        new_cluster_key(key)
        self.secret("rhino-cluster-key", {"cluster.key": key.read_bytes()})
        for service in (one for one in manifests() if one["kind"] == "Service"):
            self.objects.create("services", service)
        self.start_manager(bootstrap=True)
        self._api = ApiServer(self.objects, self.podman.gateway)
        for node in self.kubelet.nodes:
            self.start_sidecar(node)
        wait(lambda: all(ready(self.sidecar(node)) for node in self.kubelet.nodes), "sidecars are ready", 180)

    @property
    def api_url(self) -> str:
        assert self._api is not None
        return self._api.url

    def secret(self, name: str, files: dict[str, bytes]) -> None:
        data = {file: base64.b64encode(content).decode() for file, content in files.items()}
        self.objects.create("secrets", {"metadata": {"name": name}, "data": data})

    # ---- controllers

    def start_manager(self, *, node: str = NODES[0], bootstrap: bool = False) -> None:
        template = copy.deepcopy(manifest("StatefulSet")["spec"])
        pod = self._pod("rhino-manager-0", template["template"])
        for claim in template["volumeClaimTemplates"]:
            name = claim["metadata"]["name"]
            pod["spec"]["volumes"].append(
                {"name": name, "persistentVolumeClaim": {"claimName": f"{name}-rhino-manager-0"}}
            )
        pod["spec"]["nodeName"] = node
        if bootstrap:
            pod["spec"]["containers"][0]["env"].append({"name": "RHINO_MANAGER_BOOTSTRAP", "value": "true"})
        self.objects.create("pods", pod)
        wait(lambda: ready(self.objects.get("pods", "rhino-manager-0")), "the manager is ready", 120)

    def start_sidecar(self, node: str, *values: str) -> None:
        """`values`: options of Helm, beside the defaults of the chart."""
        made = next(one for one in yaml.safe_load_all(rendered(*values)) if one and one["kind"] == "DaemonSet")
        pod = self._pod(f"rhino-sidecar-{node}", (made if values else self._sidecars)["spec"]["template"])
        pod["spec"]["nodeName"] = node
        self.objects.create("pods", pod)

    def sidecar(self, node: str) -> Object | None:
        return self.objects.get("pods", f"rhino-sidecar-{node}")

    def replace_sidecar(self, node: str) -> None:
        """Deletes the pod, and makes the next one. Returns once it is ready and was for `minReadySeconds`."""
        self.delete_pod(f"rhino-sidecar-{node}")
        self.start_sidecar(node)
        wait(lambda: ready(self.sidecar(node)), f"the sidecar of {node} is ready", 180)
        time.sleep(self._sidecars["spec"].get("minReadySeconds", 0))

    def roll_out(self) -> None:
        """A rolling update with `maxUnavailable: 1`."""
        assert self._sidecars["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"] == 1
        for node in self.kubelet.nodes:
            self.replace_sidecar(node)

    def delete_pod(self, name: str) -> None:
        """Returns once it has gone."""
        self.objects.delete("pods", name)
        wait(lambda: self.objects.get("pods", name) is None, f"{name} has ended", 120)

    @staticmethod
    def _pod(name: str, template: Object) -> Object:
        metadata = {"name": name, "namespace": "rhino", "labels": dict(template["metadata"]["labels"])}
        return {"metadata": metadata, "spec": copy.deepcopy(template["spec"])}

    # ---- clients

    def rhino(self, *arguments: str, timeout_s: float = 120.0) -> str:
        """Output of the command in a pod of the image, with the key. AssertionError: it failed."""
        return self.podman(*self._client(arguments), timeout_s=timeout_s)

    def rhino_succeeds(self, *arguments: str) -> bool:
        return self.podman.run(*self._client(arguments)).returncode == 0

    def wait_until_whole(self) -> None:
        """All groups have all of their copies."""
        wait(lambda: self.rhino_succeeds("status", "--check", "--manager", MANAGER), "whole copies", 180)

    def lost_workers(self) -> list[str]:
        """Workers that the present manager has declared lost, by its log."""
        log = self.kubelet.log("rhino-manager-0")
        states = [json.loads(line).get("states", {}) for line in log.splitlines() if '"message": "workers"' in line]
        return [worker for one in states for worker, state in one.items() if state == "lost"]

    def _client(self, arguments: Sequence[str]) -> list[str]:
        options = ["--user", "185:185", "--read-only", "--read-only-tmpfs=false", "--cap-drop=ALL"]
        options += ["--volume", f"{self.kubelet.folder / 'hosts'}:/etc/hosts:ro", "--no-hosts"]
        options += [
            "--volume",
            f"{self._key_folder()}:/etc/rhino:ro",
            "--env",
            "RHINO_CLUSTER_KEY=/etc/rhino/cluster.key",
        ]
        return ["run", "--rm", "--network", "pods", *options, IMAGE, *arguments]

    def status(self) -> dict[str, Any]:
        return dict(json.loads(self.rhino("status", "--json", "--manager", MANAGER)))

    def _key_folder(self) -> Path:
        pod = self.objects.get("pods", "rhino-manager-0")
        assert pod is not None
        return self.kubelet.folder / "volumes" / str(pod["metadata"]["uid"]) / "key"

    # ---- Spark

    def submit(self, name: str, application: Path, arguments: Sequence[str], settings: dict[str, str]) -> None:
        """`spark-submit --deploy-mode cluster`. Returns once the driver's pod exists."""
        self._certificate()
        conf = self.folder / "spark.conf"
        conf.write_text("\n".join(f"{name} {value}" for name, value in (self._conf() | settings).items()))
        command = [str(Path(pyspark.__file__).parent / "bin/spark-submit"), "--deploy-mode", "cluster"]
        command += ["--master", f"k8s://{self.api_url}", "--name", name, "--properties-file", str(conf)]
        command += [f"local://{application}", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
        assert done.returncode == 0, done.stderr[:5000]

    def _conf(self) -> dict[str, str]:
        """The file of the documents: `rhino conf`, and deploy/kubernetes/spark-defaults.conf behind it."""
        jar = self.shared / "rhino-spark.jar"
        jar.write_bytes(ensure_jar().read_bytes())
        rhino = [sys.executable, "-m", "rhino.cli.main", "conf", "--manager", MANAGER]
        rhino += ["--tls-dir", str(self.folder / "driver"), "--jar", f"local://{jar}"]
        done = subprocess.run(rhino, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        text = done.stdout + (MANIFESTS / "spark-defaults.conf").read_text()
        lines = [line for line in text.splitlines() if line and not line.startswith("#")]
        found = {name: value.strip() for name, value in (line.split(None, 1) for line in lines)}
        return found | {
            "spark.kubernetes.driver.master": self.api_url,
            "spark.kubernetes.submission.waitAppCompletion": "false",
            "spark.kubernetes.container.image": "spark",
            "spark.kubernetes.executor.apiPollingInterval": "2s",
            "spark.executor.instances": str(len(self.kubelet.nodes)),
            "spark.executor.cores": "1",
            "spark.executor.memory": "512m",
            "spark.driver.memory": "640m",
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "4",
        }

    def _certificate(self) -> None:
        folder = self.folder / "driver"
        if folder.exists():
            return
        make = [sys.executable, "-m", "rhino.cli.main", "cert", "driver", "etl", "--output", str(folder)]
        done = subprocess.run(
            [*make, "--cluster-key", str(self.folder / "cluster.key")],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        self.secret("rhino-driver", {path.name: path.read_bytes() for path in folder.iterdir()})

    def executors(self) -> list[Object]:
        found = self.objects.list("pods", "spark-role=executor")
        return [
            pod for pod in found if pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]
        ]
