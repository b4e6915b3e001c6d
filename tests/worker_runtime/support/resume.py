"""Parts of the tests of resume that other tests use as well."""

from __future__ import annotations

from rhino_pb import sidecar_pb2
from tests.worker_runtime.cluster import Cluster, Process
from tests.worker_runtime.scenario import STORE


async def stored(cluster: Cluster, name: str, files: int) -> None:
    reports, key = cluster.manager.reports, (name, STORE.group)
    await cluster.manager.until(lambda: key in reports and reports[key].stored_files == files, timeout_s=30)


async def statistics(process: Process) -> sidecar_pb2.DescribeReply:
    async with process.attach() as client:
        return await client.describe()
