"""The right to write the archive of a query: it belongs to one cluster."""

from __future__ import annotations

import json
import time

from rhino_archive.bucket import Bucket
from rhino_core.errors import ConflictError, IntegrityError, UnavailableError, UnknownError


def _name(job: str) -> str:
    return f"{job}/writer"


async def claimed_by(bucket: Bucket, job: str) -> str | None:
    """The id of the cluster that may write, or None if nobody has begun. Raises IntegrityError for damage."""
    try:
        data = await bucket.get(_name(job))
    except UnknownError:
        return None
    try:
        return str(json.loads(data)["cluster"])
    except (ValueError, LookupError, TypeError) as error:
        raise IntegrityError(f"archive {bucket.url}: {_name(job)} is damaged: {error}") from error


async def require_claim(bucket: Bucket, job: str) -> None:
    """Raises UnavailableError unless some cluster may write. A folder without its mount looks like an empty archive."""
    if await claimed_by(bucket, job) is None:
        raise _gone(bucket, job)


def _gone(bucket: Bucket, job: str) -> UnavailableError:
    return UnavailableError(f"archive {bucket.url}: {_name(job)} is not there: is the archive mounted here?")


async def claim(bucket: Bucket, job: str, cluster: str, *, force: bool = False, again: bool = False) -> None:
    """Takes the right to write, or finds that this cluster has it. `force`: takes it from another cluster.

    `again`: this process had it before, so it is not taken anew: the archive must be the same one.
    Raises ConflictError if another cluster has it, and UnavailableError if `again` and nobody has it.
    """
    since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    text = json.dumps({"cluster": cluster, "since": since}).encode()
    if force:
        await bucket.put(_name(job), text)
        return
    found = await claimed_by(bucket, job)
    if found is None and again:
        raise _gone(bucket, job)
    if found is None and not await bucket.put(_name(job), text, create=True):
        found = await claimed_by(bucket, job)
    if found not in (None, cluster):
        raise ConflictError(
            f"archive {bucket.url}: query {job} is archived by another cluster, {found}: stop it there, and take the "
            f"archive over with `rhino archive claim --job {job}`"
        )
