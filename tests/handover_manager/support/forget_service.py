"""Parts of the tests of forget service that other tests use as well."""

from __future__ import annotations

from rhino_pb import handover_pb2 as pb
from tests.handover_manager.cluster import TIMEOUT_S
from tests.handover_manager.support.service import Scene


async def jobs(scene: Scene) -> list[pb.JobStatus]:
    return list((await scene.stub.ListJobs(pb.ListJobsRequest(), timeout=TIMEOUT_S)).jobs)


async def stopped(scene: Scene) -> bool:
    return [job.connected for job in await jobs(scene)] == [False]
