"""A driver that vanishes without a word is noticed by the manager: its connections are probed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rhino.client.overview import fetch_overview
from rhino.testing.network import Namespaces
from rhino.testing.reaper import Reaper
from rhino.testing.rhino_daemons import start_manager, start_sidecar, wait_manager, wait_sidecar
from rhino.testing.security import ClusterSecurity
from rhino_core.settings import SidecarSettings
from tests.worker_runtime.cluster import ROOT

pytestmark = [
    pytest.mark.nightly,  # it has to wait for the probes
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("tc") is None,
        reason="network namespaces need root and iproute2",
    ),
]
NOTICED_S = 25.0  # a probe after 10 s, 5 s for its answer; the rest for a busy machine
DRIVER = """
import queue, sys
from rhino_core.rpc.channel import sync_channel
from rhino_core.security.choice import client_transport
from rhino_pb import common_pb2, handover_pb2 as pb, handover_pb2_grpc
events = queue.Queue()
settings = common_pb2.JobSettings(replication_factor=0, replication_factor_set=True)
events.put(pb.DriverEvent(hello=pb.DriverHello(application_id="app", spark_version="4.3.0", settings=settings)))
group = pb.TaskGroup(task_group=0, operators=[0], partitions=1)
events.put(pb.DriverEvent(query_started=pb.QueryStarted(job="job", run_id="run", name="q", task_groups=[group])))
stub = handover_pb2_grpc.HandoverManagerStub(sync_channel(sys.argv[1], client_transport(sys.argv[2], "")))
for command in stub.DriverSession(iter(events.get, None)):
    pass
"""


def connected(manager: str) -> bool:
    return any(job.connected for job in fetch_overview(manager).jobs)


def wait_until(manager: str, wanted: bool, timeout_s: float) -> float:
    started = time.monotonic()
    while connected(manager) is not wanted:
        assert time.monotonic() - started < timeout_s, f"connected = {wanted}: not within {timeout_s} s"
        time.sleep(0.1)
    return time.monotonic() - started


def test_a_manager_notices_a_driver_that_has_vanished(tmp_path: Path) -> None:
    security = ClusterSecurity(tmp_path)
    with Namespaces(1) as network, Reaper() as reaper:
        security.begin()
        listen = f"{network.center}:0"
        manager = start_manager(
            tmp_path / "m", log_dir=tmp_path, reaper=reaper, listen=listen, cluster_key=security.key
        )
        processes = [manager]
        try:
            address = wait_manager(manager)
            settings = SidecarSettings(
                worker_id="w",
                host=network.center,
                listen=listen,
                data_dir=tmp_path / "w",
                socket=tmp_path / "s",
                manager=address,
                cluster_key=security.key,
            )
            sidecar = start_sidecar("sidecar", settings, log_dir=tmp_path, reaper=reaper)
            processes.append(sidecar)
            wait_sidecar(sidecar)
            command = network.command(0, [sys.executable, "-c", DRIVER, address, str(tmp_path / "driver")])
            with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'proto'}"}) as driver:
                try:
                    wait_until(address, True, 30)
                    network.cut(0)
                    print(f"noticed after {wait_until(address, False, NOTICED_S):.1f} s")
                finally:
                    driver.kill()
        finally:
            for process in processes:
                process.kill()
            security.end()
