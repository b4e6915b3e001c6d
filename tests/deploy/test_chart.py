"""The Helm chart: its objects are valid with each value, wrong values are refused, and the manifests come from it."""

from __future__ import annotations

from typing import Any

import kubernetes_validate
import pytest
import yaml

from rhino_core.setting import declared
from rhino_core.settings import ManagerSettings, SidecarSettings
from tools.manifests import HEADER, RENDERED, rendered

VERSION = "1.34"
VALUES = {
    "defaults": (),
    "certificates": (
        "--set=clusterKeySecret=,certificates.manager.secret.secretName=rhino-manager-tls",
        "--set=certificates.sidecar.csi.driver=csi.example.com",
    ),
    "a private registry": ("--set=image.repository=registry.example.com/rhino,image.pullSecrets={registry}",),
    "a digest": (f"--set=image.digest=sha256:{'0' * 64}",),
    "settings": ("--set=manager.settings.scatter_width=8,sidecar.settings.memory_limit_mb=256",),
    "nodes": ('--set-json=manager.nodeSelector={"a":"b"}', '--set-json=manager.tolerations=[{"operator":"Exists"}]'),
    "a disk": ("--set=nodeFolder=/mnt/disks/ssd0,manager.storage.className=fast",),
    "an archive": (
        "--set=archive.url=s3://bucket/rhino,archive.credentialsSecret=rhino-bucket",
        "--set=serviceAccountName=rhino",
    ),
    "a drain": ("--set=sidecar.drainOnStopS=100",),
    "monitoring": ("--set=serviceMonitor.enabled=true,serviceMonitor.labels.release=prometheus",),
    "little": ("--set=networkPolicy=false,sidecar.priorityClass.name=",),
}


def _objects(*options: str) -> dict[str, dict[str, Any]]:
    found = [one for one in yaml.safe_load_all(rendered(*options)) if one]
    return {f"{one['kind']} {one['metadata']['name']}": one for one in found}


def _sidecar(*options: str) -> dict[str, Any]:
    return dict(_objects(*options)["DaemonSet rhino-sidecar"]["spec"]["template"]["spec"])


def test_the_manifests_are_the_rendered_chart() -> None:
    assert RENDERED.read_text() == HEADER + rendered()


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_objects_are_valid(values: tuple[str, ...]) -> None:
    for one in _objects(*values).values():
        if one["kind"] != "ServiceMonitor":  # of the operator of Prometheus
            kubernetes_validate.validate(one, VERSION, strict=True)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ("image.digest=latest", "digest"),
        ("nodefolder=/mnt", "nodefolder"),
        ("nodeFolder=mnt/x", "nodeFolder"),
        ("sidecar.drainOnStopS=-1", "drainOnStopS"),
        ("archive.url=bucket/rhino", "archive"),
        ("clusterKeySecret=", "clusterKeySecret, or certificates.manager and certificates.sidecar"),
    ],
)
def test_wrong_values_are_refused_by_name(values: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rendered(f"--set={values}")


def test_more_settings_are_variables_that_the_daemons_know() -> None:
    found = _objects(*VALUES["settings"])
    for kind, settings, chosen in (
        ("StatefulSet rhino-manager", ManagerSettings, ("RHINO_MANAGER_SCATTER_WIDTH", "8")),
        ("DaemonSet rhino-sidecar", SidecarSettings, ("RHINO_SIDECAR_MEMORY_LIMIT_MB", "256")),
    ):
        (container,) = found[kind]["spec"]["template"]["spec"]["containers"]
        assert chosen in [(one["name"], one.get("value")) for one in container["env"]]
        assert chosen[0] in {one.variable for one in declared(settings)}


def test_the_archive_is_named_to_the_manager_and_both_daemons_get_its_credentials() -> None:
    found = _objects(*VALUES["an archive"])
    pods = [
        found[name]["spec"]["template"]["spec"] for name in ("StatefulSet rhino-manager", "DaemonSet rhino-sidecar")
    ]
    for pod in pods:
        assert pod["containers"][0]["envFrom"] == [{"secretRef": {"name": "rhino-bucket"}}]
        assert pod["serviceAccountName"] == "rhino"
    named = [{one["name"]: one.get("value") for one in pod["containers"][0]["env"]} for pod in pods]
    assert named[0]["RHINO_MANAGER_ARCHIVE"] == "s3://bucket/rhino"
    assert "RHINO_MANAGER_ARCHIVE" in {one.variable for one in declared(ManagerSettings)}
    assert not any("ARCHIVE" in name for name in named[1])


def test_a_drain_has_its_time_before_the_end() -> None:
    pod = _sidecar("--set=sidecar.drainOnStopS=100")
    (_, _, command) = pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    assert "--notice-s 100 --wait" in command
    assert pod["terminationGracePeriodSeconds"] > 100
    assert _objects("--set=sidecar.drainOnStopS=100")["DaemonSet rhino-sidecar"]["spec"]["updateStrategy"] == {
        "type": "OnDelete"
    }
    assert "lifecycle" not in _sidecar()["containers"][0]


def test_executors_and_the_sidecar_see_the_disk_at_the_same_place() -> None:
    pod = _sidecar("--set=nodeFolder=/mnt/disks/ssd0")
    assert {"hostPath": {"path": "/mnt/disks/ssd0", "type": "DirectoryOrCreate"}, "name": "node"} in pod["volumes"]
    assert {"name": "node", "mountPath": "/mnt/rhino"} in pod["containers"][0]["volumeMounts"]


def test_prometheus_finds_both_daemons() -> None:
    found = _objects(*VALUES["monitoring"])
    monitor = found["ServiceMonitor rhino"]
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    services = [
        one for one in found.values() if one["kind"] == "Service" and one["metadata"]["labels"].items() >= wanted
    ]
    assert {one["spec"]["selector"]["app.kubernetes.io/component"] for one in services} == {"manager", "sidecar"}
    (endpoint,) = monitor["spec"]["endpoints"]
    assert all(endpoint["port"] in {port["name"] for port in one["spec"]["ports"]} for one in services)
