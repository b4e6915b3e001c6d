"""Carries out a restore drill: reads the manifest, and asks a worker."""

from __future__ import annotations

from dataclasses import replace

from handover_manager.archive.events import Drill, DrillEnded, Outcome
from rhino_archive.bucket import Bucket
from rhino_archive.manifest import Part, part_to_pb
from rhino_archive.reading import read_manifest
from rhino_core.errors import IntegrityError, RhinoError, UnknownError
from rhino_core.rpc.channel import call, worker_channel
from rhino_core.rpc.convert import store_version_to_pb
from rhino_core.security.transport import Transport
from rhino_pb import archive_pb2, peer_pb2_grpc

DRILL_S_MAX = 6 * 3600.0  # every call needs a deadline; keepalive finds a dead worker


async def drill(wanted: Drill, bucket: Bucket, transport: Transport) -> DrillEnded:
    """Raises no RhinoError."""
    try:
        try:
            part = await _part(wanted, bucket)
        except UnknownError as error:
            return DrillEnded(wanted.number, Outcome.MISSING, str(error))
        reply = await _asked(wanted, part, bucket.url, transport)
    except IntegrityError as error:
        return DrillEnded(wanted.number, Outcome.FAILED, str(error))
    except RhinoError as error:
        return DrillEnded(wanted.number, Outcome.NOT_RUN, str(error))
    return DrillEnded(wanted.number, Outcome.UNPROVEN if reply.unproven else Outcome.PASSED, reply.unproven)


async def _part(wanted: Drill, bucket: Bucket) -> Part:
    """As the archive has it now. Its packs may be many, and are left out."""
    part = (await read_manifest(bucket, wanted.manifest)).part_of(wanted.group)
    if part is None:
        raise IntegrityError(f"archive {bucket.url}: {wanted.manifest}: has no part with {wanted.group}")
    return replace(part, groups=(wanted.group,), packs=())


async def _asked(wanted: Drill, part: Part, url: str, transport: Transport) -> archive_pb2.DrillReply:
    worker = wanted.worker
    request = archive_pb2.DrillRequest(
        archive=url, part=part_to_pb(part), versions=map(store_version_to_pb, wanted.versions)
    )
    async with worker_channel(worker, transport) as channel:
        stub = peer_pb2_grpc.PeerStub(channel)
        doing = f"restore drill by worker {worker.worker_id} at {worker.peer_address}"
        return await call(doing, lambda: stub.Drill(request, timeout=DRILL_S_MAX))
