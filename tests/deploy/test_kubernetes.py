"""The manifests for Kubernetes: valid, consistent with each other, and accepted by the daemons that they start."""

from __future__ import annotations

import contextlib
import json
import os
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from rhino import rhino_conf
from rhino.client.overview import fetch_overview
from rhino.daemons.loading import load
from rhino_core.security.sources import new_cluster_key
from rhino_core.setting import declared
from rhino_core.settings import ManagerSettings, SidecarSettings
from tests import forked
from tests.first_hour.network import prefix

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy/kubernetes"
KINDS: dict[str, Any] = {"manager": ManagerSettings, "sidecar": SidecarSettings}
VERSION = "1.34"
CHOSEN = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
PODS = {"metadata.labels['topology.kubernetes.io/zone']": "", "status.podIP": "10.1.2.3", "spec.nodeName": "node-1"}


def _objects() -> list[dict[str, Any]]:
    return [one for name in CHOSEN["resources"] for one in yaml.safe_load_all((FOLDER / name).read_text())]


def _pod(daemon: str) -> dict[str, Any]:
    kind = {"manager": "StatefulSet", "sidecar": "DaemonSet"}[daemon]
    (found,) = (one for one in _objects() if one["kind"] == kind)
    pod: dict[str, Any] = found["spec"]["template"]["spec"]
    return pod


def _container(daemon: str) -> dict[str, Any]:
    (found,) = _pod(daemon)["containers"]
    assert found["args"] == [daemon]
    return dict(found)


def _environment(daemon: str) -> dict[str, str]:
    """The variables of the container, as they are on a node."""
    given = _container(daemon)["env"]
    return {one["name"]: one.get("value") or PODS[one["valueFrom"]["fieldRef"]["fieldPath"]] for one in given}


@pytest.mark.parametrize("one", _objects(), ids=lambda one: f"{one['kind']} {one['metadata']['name']}")
def test_objects_are_valid(one: dict[str, Any]) -> None:
    kubernetes_validate.validate(one, VERSION, strict=True)


def test_an_object_that_is_not_valid_is_found() -> None:
    (broken,) = (one for one in _objects() if one["kind"] == "DaemonSet")
    broken["spec"]["template"]["spec"]["containers"][0]["arguments"] = []
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, VERSION, strict=True)


def test_all_manifests_are_named() -> None:
    manifests = {path.name for path in FOLDER.glob("*.yaml")} - {"kustomization.yaml"}
    assert manifests == set(CHOSEN["resources"])
    assert {one["name"] for one in CHOSEN["images"]} == {
        _container(daemon)["image"].partition(":")[0] for daemon in KINDS
    }


@pytest.mark.parametrize("daemon", KINDS)
def test_variables_are_settings(daemon: str) -> None:
    environment = _environment(daemon)
    known = {name for one in declared(KINDS[daemon]) for name in (one.variable, one.about.also) if name}
    assert set(environment) <= known
    load(KINDS[daemon], {}, environment, host_name="in-the-pod")


@pytest.mark.parametrize("daemon", KINDS)
def test_ports_agree(daemon: str) -> None:
    environment, container = _environment(daemon), _container(daemon)
    opened = {
        int(value.rpartition(":")[2]) for name, value in environment.items() if "LISTEN" in name or "PORT" in name
    }
    named = {one["name"]: one["containerPort"] for one in container["ports"]}
    assert set(named.values()) == opened
    for probe in ("livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["port"] in named
    (policy,) = (o for o in _objects() if o["kind"] == "NetworkPolicy" and o["metadata"]["name"] == f"rhino-{daemon}")
    closed = {named["health"]}  # a kubelet reaches the pods of its node whatever the policy says
    assert {port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]} == opened - closed


def test_a_new_pod_has_time() -> None:
    """A start that reads a large store ends no pod, and no copy moves until a new pod of a sidecar is there."""
    environment = _environment("manager")
    assert 60 <= float(environment["RHINO_MANAGER_RETURN_LEASE_S"]) <= 120
    for daemon in KINDS:
        probe = _container(daemon)["startupProbe"]
        assert probe["failureThreshold"] * probe["periodSeconds"] >= 1800


def test_a_sidecar_is_on_each_labelled_node_and_stays_there() -> None:
    pod = _pod("sidecar")
    (priority,) = (one for one in _objects() if one["kind"] == "PriorityClass")
    assert pod["priorityClassName"] == priority["metadata"]["name"]
    assert priority["value"] > 0  # pods of Spark have 0
    assert pod["tolerations"] == [{"operator": "Exists"}]
    assert pod["hostUsers"]


@pytest.mark.parametrize("daemon", KINDS)
def test_what_is_written_is_on_a_volume(daemon: str) -> None:
    container = _container(daemon)
    mounts = {one["mountPath"]: one.get("readOnly", False) for one in container["volumeMounts"]}
    assert container["securityContext"]["readOnlyRootFilesystem"]
    for name, value in _environment(daemon).items():
        if value.startswith("/"):
            (read_only,) = (flag for mount, flag in mounts.items() if f"{value}/".startswith(f"{mount}/"))
            assert read_only == (name == "RHINO_CLUSTER_KEY"), name


def test_executors_have_the_same_mount_as_the_sidecar_and_its_socket() -> None:
    lines = (FOLDER / "spark-defaults.conf").read_text().splitlines()
    conf = dict(line.split(None, 1) for line in lines if line and not line.startswith("#"))
    (node,) = (volume["hostPath"]["path"] for volume in _pod("sidecar")["volumes"] if "hostPath" in volume)
    volume = "spark.kubernetes.executor.volumes.hostPath.spark-local-dir-rhino"
    assert conf[f"{volume}.options.path"] == conf[f"{volume}.mount.path"] == node
    assert conf["spark.rhino.socket"] == _environment("sidecar")["RHINO_SIDECAR_SOCKET"]
    (label, value) = next(iter(_pod("sidecar")["nodeSelector"].items()))
    assert conf[f"spark.kubernetes.executor.node.selector.{label}"] == value
    user = _pod("sidecar")["securityContext"]["runAsUser"]
    assert re.search(rf"^USER {user}:{user}$", (ROOT / "deploy/container/Dockerfile").read_text(), re.MULTILINE)


def _spark_conf() -> dict[str, str]:
    """The settings of an application by the page on Kubernetes: `rhino conf`, and spark-defaults.conf behind it."""
    jar = "local:///opt/spark/jars/rhino-spark.jar"
    lines = (FOLDER / "spark-defaults.conf").read_text().splitlines()
    defaults = dict(line.split(None, 1) for line in lines if line and not line.startswith("#"))
    return {**rhino_conf("rhino-manager.rhino:7461", jar=jar), **{key: one.strip() for key, one in defaults.items()}}


@pytest.mark.parametrize("name", ["apache", "kubeflow"])
def test_examples_for_operators_have_all_settings(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RHINO_CLUSTER_KEY", raising=False)
    spec = yaml.safe_load((FOLDER / f"examples/{name}.yaml").read_text())["spec"]
    conf = _spark_conf()
    if name == "kubeflow":  # its own fields say the same
        (volume,), (mount,) = spec["volumes"], spec["executor"]["volumeMounts"]
        (secret,) = spec["driver"]["secrets"]
        prefix = f"spark.kubernetes.executor.volumes.hostPath.{volume['name']}"
        written = {
            f"{prefix}.mount.path": mount["mountPath"],
            f"{prefix}.mount.readOnly": "false",
            f"{prefix}.options.path": volume["hostPath"]["path"],
            f"spark.kubernetes.driver.secrets.{secret['name']}": secret["path"],
            "spark.kubernetes.executor.node.selector.rhino-worker": spec["executor"]["nodeSelector"]["rhino-worker"],
        }
        assert mount["name"] == volume["name"]
    else:
        written = {}
    assert conf.items() <= (spec["sparkConf"] | written).items()


def test_the_overlay_changes_the_folder_of_the_node_only() -> None:
    overlay = yaml.safe_load((FOLDER / "own-disk/kustomization.yaml").read_text())
    (change,) = overlay["patches"]
    (daemon_set,) = (one for one in _objects() if one["kind"] == "DaemonSet")
    assert change["target"] == {"kind": "DaemonSet", "name": daemon_set["metadata"]["name"]}
    (step,) = yaml.safe_load(change["patch"])
    at: Any = daemon_set
    for part in step["path"].strip("/").split("/"):
        at = at[int(part)] if isinstance(at, list) else at[part]
    assert at == "/mnt/rhino"
    assert step["op"] == "replace"


@contextlib.contextmanager
def _started(daemon: str, environment: dict[str, str], log: Path) -> Iterator[None]:
    """The container's command on this machine. It has printed its readiness line."""
    path = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{ROOT}:{ROOT / 'proto'}"}
    with log.open("wb") as err:
        process = forked.Popen(forked.RHINO, *_container(daemon)["args"], env=path | environment, stderr=err.fileno())
    try:
        assert json.loads(process.stdout.readline())["service"] == daemon, log.read_text()
        yield
    finally:
        process.terminate()
        assert process.wait(30) == 0, log.read_text()


def _answers(daemon: str, environment: dict[str, str], host: str) -> None:
    for probe in ("livenessProbe", "readinessProbe"):
        path = _container(daemon)[probe]["httpGet"]["path"]
        port = environment[f"RHINO_{daemon.upper()}_METRICS_PORT"]
        with urllib.request.urlopen(f"http://{host}:{port}{path}", timeout=30) as reply:
            assert reply.status == 200


@pytest.mark.timeout(120)
def test_the_daemons_start_and_meet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the variables of the manifests: only folders and addresses are those of this machine."""
    network = prefix()
    key = tmp_path / "cluster.key"
    new_cluster_key(key)
    monkeypatch.setenv("RHINO_CLUSTER_KEY", str(key))
    (tmp_path / "node/run").mkdir(parents=True, mode=0o755)
    (tmp_path / "data").mkdir()
    places = {
        "/etc/rhino": str(tmp_path),
        "/mnt/rhino": f"{tmp_path}/node",
        "/data/": f"{tmp_path}/data/",
        "rhino-manager:": f"{network}1:",
    }

    def here(daemon: str, host: str) -> dict[str, str]:
        moved = _environment(daemon)
        for place, instead in (*places.items(), ("0.0.0.0", host), (PODS["status.podIP"], host)):
            moved = {name: value.replace(place, instead) for name, value in moved.items()}
        return moved

    manager, sidecar = here("manager", f"{network}1"), here("sidecar", f"{network}2")
    with (
        _started("manager", manager | {"RHINO_MANAGER_BOOTSTRAP": "true"}, tmp_path / "manager.log"),
        _started("sidecar", sidecar, tmp_path / "sidecar.log"),
    ):
        (worker,) = fetch_overview(f"{network}1:7461").workers
        assert (worker.worker_id, worker.state) == ("node-1", "live")
        _answers("manager", manager, f"{network}1")
        _answers("sidecar", sidecar, f"{network}2")
