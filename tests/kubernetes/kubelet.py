"""Kubelets and a scheduler: pods of the API server become containers on nodes, with volumes, probes and hooks.

A node is a folder for its host paths. The images of Spark are replaced by the root of this machine with PySpark in it.
"""

from __future__ import annotations

import base64
import http.client
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyspark

from tests.kubernetes.api import Object, Objects, now
from tests.kubernetes.containers import IMAGE, Podman

WAIT_S = 0.2
HOSTS_USER = 185
SPARK_HOME, PYTHON, PACKAGES = "/opt/spark", "/opt/python", "/opt/packages"


@dataclass
class Node:
    name: str
    labels: dict[str, str]
    cordoned: bool = False
    gone: bool = False


@dataclass
class Kubelet:
    """`folder`: nodes, volumes, and logs of ended pods. `shared`: a folder that executors and drivers mount at its
    own path, in place of a distributed file system.
    """

    objects: Objects
    podman: Podman
    folder: Path
    network: str
    nodes: dict[str, Node]
    shared: Path
    stable: dict[str, str] = field(default_factory=dict)  # addresses of pods that keep theirs, as a service does
    failures: list[str] = field(default_factory=list)
    _next_address: int = 50
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.objects.pod_added = lambda pod: self._in_background(self._run, pod)
        self.objects.pod_deleting = lambda pod, grace_s: self._in_background(self._end, pod, grace_s)
        for name in self.nodes:
            self.node_folder(name).mkdir(parents=True)
        (self.folder / "logs").mkdir()
        self.write_hosts()

    def node_folder(self, node: str) -> Path:
        return self.folder / "nodes" / node

    def log(self, pod: str) -> str:
        """The output of a pod that runs, or else of the last one of this name."""
        done = self.podman.run("logs", pod)
        if done.returncode == 0:
            return done.stdout + done.stderr
        kept = self.folder / "logs" / f"{pod}.log"
        return kept.read_text() if kept.exists() else ""

    def lose_node(self, node: str) -> None:
        """The node is gone without a word: its pods are killed, and nobody deletes them before this call."""
        self.nodes[node].gone = self.nodes[node].cordoned = True
        for pod in self.objects.list("pods"):
            if pod["spec"].get("nodeName") == node:
                self.podman.run("kill", pod["metadata"]["name"])
        for pod in self.objects.list("pods"):
            if pod["spec"].get("nodeName") == node:
                self.objects.delete("pods", pod["metadata"]["name"], 0)

    # ---- names

    def write_hosts(self) -> None:
        """Names of services for all pods. A file that is written in place is the same file in each of them."""
        lines = ["127.0.0.1 localhost"]
        for service in self.objects.list("services"):
            selector = ",".join(f"{key}={value}" for key, value in service["spec"].get("selector", {}).items())
            for pod in self.objects.list("pods", selector):
                if address := pod.get("status", {}).get("podIP"):
                    name, namespace = service["metadata"]["name"], service["metadata"].get("namespace", "default")
                    lines.append(f"{address} {name} {name}.{namespace} {name}.{namespace}.svc")
        with (self.folder / "hosts").open("w") as file:
            file.write("\n".join(lines) + "\n")

    # ---- the life of a pod

    def _in_background(self, act: Callable[..., None], pod: Object, *more: Any) -> None:
        def run() -> None:
            try:
                act(pod, *more)
            except Exception as error:
                self.failures.append(f"{pod['metadata']['name']}: {error}")
                self._phase(pod, "Failed")

        threading.Thread(target=run, daemon=True).start()

    def _run(self, pod: Object) -> None:
        name, spec = pod["metadata"]["name"], pod["spec"]
        node = self._scheduled(pod)
        address = self._address(name)
        volumes = {one["name"]: self._volume(one, pod, node) for one in spec.get("volumes", ())}
        for number, container in enumerate(spec.get("initContainers", ())):
            options = self._options(container, pod, volumes, address, node)
            image = IMAGE if container["image"].startswith("rhino") else container["image"]
            entry, *rest = container["command"]
            self.podman(
                *("run", "--rm", "--name", f"{name}-init-{number}", "--network", "none", "--entrypoint", entry),
                *(*options, image, *rest),
            )
        container = spec["containers"][0]
        options = self._options(container, pod, volumes, address, node)
        self.podman.container(name, address, options, self._what(container, pod, address, node))
        started = now()
        running = {"name": container["name"], "ready": False, "restartCount": 0, "image": "", "imageID": ""}
        self._phase(
            pod,
            "Running",
            podIP=address,
            startTime=started,
            containerStatuses=[{**running, "state": {"running": {"startedAt": started}}}],
        )
        self.write_hosts()
        self._probe_until_ready(pod, address)
        code = int(self.podman.run("wait", name, timeout_s=3600).stdout.strip() or "137")
        (self.folder / "logs" / f"{name}.log").write_text(self.log(name))
        self.podman.run("rm", "--force", name)
        ended = {"exitCode": code, "reason": "Completed" if code == 0 else "Error", "finishedAt": now()}
        self._phase(
            pod,
            "Succeeded" if code == 0 else "Failed",
            containerStatuses=[{**running, "state": {"terminated": {**ended, "startedAt": started}}}],
            conditions=[{"type": "Ready", "status": "False"}],
        )

    def _end(self, pod: Object, grace_s: float) -> None:
        """The hook before the end, SIGTERM, and after the grace SIGKILL. Then the pod goes."""
        name = pod["metadata"]["name"]
        until = time.monotonic() + grace_s
        hook = pod["spec"]["containers"][0].get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command")
        if hook == ["/opt/decom.sh"]:  # of Spark's images: a signal to the JVM, and a wait for its end
            self.podman.run("kill", "--signal", str(int(signal.SIGPWR)), name)
            while time.monotonic() < until and self.podman.run("container", "exists", name).returncode == 0:
                time.sleep(WAIT_S)
        elif hook:
            self.podman.run("exec", name, *hook, timeout_s=max(grace_s, 1))
        self.podman.run("stop", "--time", str(max(int(until - time.monotonic()), 0)), name)
        while (found := self.objects.get("pods", name)) and found["status"]["phase"] == "Running":
            time.sleep(WAIT_S)
        self.objects.gone("pods", pod)
        self.write_hosts()

    def _scheduled(self, pod: Object) -> str:
        """The node of the pod. Waits for one that fits, and for what the pod mounts."""
        name, spec = pod["metadata"]["name"], pod["spec"]
        needed = [("configmaps", one["configMap"]["name"]) for one in spec.get("volumes", ()) if "configMap" in one]
        needed += [("secrets", one["secret"]["secretName"]) for one in spec.get("volumes", ()) if "secret" in one]
        while True:
            if self.objects.get("pods", name) is None:
                raise RuntimeError("deleted before it ran")
            with self._lock:  # two pods at once see each other
                if all(self.objects.get(*one) for one in needed) and (node := self._node(spec)):
                    self.objects.update("pods", name, lambda one: one["spec"].update(nodeName=node))
                    return node
            time.sleep(WAIT_S)

    def _node(self, spec: Object) -> str | None:
        if "nodeName" in spec:
            return str(spec["nodeName"])
        there = [
            pod for pod in self.objects.list("pods", "spark-role") if pod["status"]["phase"] in ("Pending", "Running")
        ]
        used = [pod["spec"].get("nodeName") for pod in there]
        fit = [
            node.name
            for node in self.nodes.values()
            if not node.cordoned and node.labels.items() >= (spec.get("nodeSelector") or {}).items()
        ]
        return min(fit, key=used.count, default=None)

    def _address(self, name: str) -> str:
        with self._lock:
            if name not in self.stable:
                self._next_address += 1
            return self.stable.get(name, f"{self.network}.{self._next_address}")

    def _phase(self, pod: Object, phase: str, **status: Any) -> None:
        def change(one: Object) -> None:
            one["status"].update(phase=phase, **status)

        self.objects.update("pods", pod["metadata"]["name"], change)

    def _probe_until_ready(self, pod: Object, address: str) -> None:
        """Marks the pod as ready once its readiness probe succeeds. A pod without one is ready."""
        name, container = pod["metadata"]["name"], pod["spec"]["containers"][0]
        ports = {one["name"]: one["containerPort"] for one in container.get("ports", ()) if "name" in one}
        probe = container.get("readinessProbe", {}).get("httpGet")
        while probe and self.podman.inspect(name)["State"]["Running"]:  # type: ignore[index]
            connection = http.client.HTTPConnection(address, ports[probe["port"]], timeout=5)
            try:
                connection.request("GET", probe["path"])
                if connection.getresponse().status == 200:
                    break
            except OSError:
                pass
            finally:
                connection.close()
            time.sleep(WAIT_S)
        conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": now()}]

        def change(one: Object) -> None:
            one["status"]["conditions"] = conditions
            one["status"]["containerStatuses"][0]["ready"] = True

        self.objects.update("pods", name, change)

    # ---- volumes

    def _volume(self, volume: Object, pod: Object, node: str) -> Path:
        """The folder behind a volume."""
        group = pod["spec"].get("securityContext", {}).get("fsGroup")
        if "hostPath" in volume:
            return self.node_folder(node) / str(volume["hostPath"]["path"]).strip("/")
        if "persistentVolumeClaim" in volume:
            path = self.folder / "claims" / str(volume["persistentVolumeClaim"]["claimName"])
            path.mkdir(parents=True, exist_ok=True)
            if group is not None:
                os.chown(path, 0, group)
                path.chmod(0o2775)
            return path
        path = self.folder / "volumes" / str(pod["metadata"]["uid"]) / str(volume["name"])
        path.mkdir(parents=True)
        if "configMap" in volume:
            found = self.objects.get("configmaps", volume["configMap"]["name"])
            assert found is not None
            for name, text in found.get("data", {}).items():
                (path / name).write_text(text)
        elif "secret" in volume:
            found = self.objects.get("secrets", volume["secret"]["secretName"])
            assert found is not None
            mode = volume["secret"].get("defaultMode", 0o644)
            for name, text in found["data"].items():
                (path / name).write_bytes(base64.b64decode(text))
                if group is not None:  # a kubelet gives the files to the group, which may then read them
                    os.chown(path / name, 0, group)
                (path / name).chmod(mode | (0o440 if group is not None else 0))
        else:
            path.chmod(0o777)
        return path

    # ---- containers

    def _options(self, container: Object, pod: Object, volumes: dict[str, Path], address: str, node: str) -> list[str]:
        security = {**pod["spec"].get("securityContext", {}), **(container.get("securityContext") or {})}
        user = security.get("runAsUser", HOSTS_USER)
        options = ["--user", f"{user}:{security.get('runAsGroup', user)}"]
        if "fsGroup" in security:
            options += ["--group-add", str(security["fsGroup"])]
        if security.get("readOnlyRootFilesystem"):
            options += ["--read-only", "--read-only-tmpfs=false"]
        capabilities = security.get("capabilities", {"drop": ["ALL"]})
        options += [f"--cap-drop={one}" for one in capabilities.get("drop", ())]
        options += [f"--cap-add={one}" for one in capabilities.get("add", ())]
        for mount in container.get("volumeMounts", ()):
            source = volumes[mount["name"]]
            source.mkdir(parents=True, exist_ok=True)
            options += ["--volume", f"{source}:{mount['mountPath']}{':ro' if mount.get('readOnly') else ''}"]
        options += ["--volume", f"{self.folder / 'hosts'}:/etc/hosts:ro"]
        for name, value in self._environment(container, pod, address, node).items():
            options += ["--env", f"{name}={value}"]
        if container["image"].startswith("spark"):
            home = Path(pyspark.__file__).parent
            mounts = {f"{SPARK_HOME}/{name}": home / name for name in ("bin", "jars")}
            mounts |= {PYTHON: Path(sys.base_prefix), PACKAGES: home.parent}
            options += [word for target, source in mounts.items() for word in ("--volume", f"{source}:{target}:ro")]
            options += ["--volume", f"{self.shared}:{self.shared}"]
        return options

    def _environment(self, container: Object, pod: Object, address: str, node: str) -> dict[str, str]:
        fields = {"status.podIP": address, "spec.nodeName": node, "metadata.name": pod["metadata"]["name"]}
        fields |= {f"metadata.labels['{key}']": value for key, value in self.nodes[node].labels.items()}
        found = {}
        for one in container.get("env", ()):
            path = one.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
            found[one["name"]] = fields.get(path, "") if path else one.get("value") or ""
        return found

    def _what(self, container: Object, pod: Object, address: str, node: str) -> list[str]:
        if container["image"].startswith("rhino"):
            return [IMAGE, *container["args"]]
        environment = self._environment(container, pod, address, node)
        java = shutil.which("java")
        assert java is not None
        if container["args"][0] == "driver":
            command = self._driver(container, address)
        else:
            command = [os.path.realpath(java), *_executor(environment)]
        return ["--rootfs", "/:O", *command]

    def _driver(self, container: Object, address: str) -> list[str]:
        """The entry point of Spark's images, for a driver."""
        submit = f"{SPARK_HOME}/bin/spark-submit --deploy-mode client --conf spark.driver.bindAddress={address}"
        variables = {
            "SPARK_HOME": SPARK_HOME,
            "PYSPARK_PYTHON": f"{PYTHON}/bin/python{sys.version_info.major}.{sys.version_info.minor}",
            "PYTHONPATH": PACKAGES,
            "HOME": "/tmp",
        }
        return [
            "env",
            *(f"{name}={value}" for name, value in variables.items()),
            *submit.split(),
            *container["args"][1:],
        ]


def _executor(environment: dict[str, str]) -> list[str]:
    """The entry point of Spark's images, for an executor."""
    prefix = "SPARK_JAVA_OPT_"
    numbered = sorted(
        (int(key.removeprefix(prefix)), value) for key, value in environment.items() if key.startswith(prefix)
    )
    memory = environment["SPARK_EXECUTOR_MEMORY"]
    return [
        *(value for _, value in numbered),
        *(f"-Xms{memory}", f"-Xmx{memory}", "-cp", f"{SPARK_HOME}/jars/*"),
        "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
        *("--driver-url", environment["SPARK_DRIVER_URL"], "--executor-id", environment["SPARK_EXECUTOR_ID"]),
        *("--cores", environment["SPARK_EXECUTOR_CORES"], "--app-id", environment["SPARK_APPLICATION_ID"]),
        *("--hostname", environment["SPARK_EXECUTOR_POD_IP"], "--podName", environment["SPARK_EXECUTOR_POD_NAME"]),
        *("--resourceProfileId", environment["SPARK_RESOURCE_PROFILE_ID"]),
    ]
