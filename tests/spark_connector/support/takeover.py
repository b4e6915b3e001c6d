"""Parts of the tests of takeover that other tests use as well."""

from __future__ import annotations

from rhino_core.ids import JobSettings
from spark_connector.rpc.sidecar import SidecarSession
from tests.worker_runtime.cluster import Process

SST = "SSTs/000001-x.sst"


def session(process: Process) -> SidecarSession:
    return SidecarSession(process.settings.socket, JobSettings(), client="test", timeout_s=20)
