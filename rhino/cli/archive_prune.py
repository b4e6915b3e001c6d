"""`rhino archive prune`: deletes old batches now, by the rules of the manager's own keeper."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer
from rich.filesize import decimal

from rhino.cli.archives import archive_of
from rhino.cli.columns import Row, show_columns
from rhino.cli.options import CallOptions, YesOption
from rhino.cli.output import confirm, console, say, say_json
from rhino_archive.bucket import Bucket
from rhino_archive.claims import claimed_by
from rhino_archive.keeping import Keeper, Unneeded
from rhino_archive.retention import retention_of
from rhino_core.errors import ConflictError, InvalidRequestError, UnknownError
from rhino_core.text import count


def prune(
    call: CallOptions,
    job: Annotated[str, typer.Option(help="Only this query: its id, as `rhino archive list` shows it.")] = "",
    keep: Annotated[
        str,
        typer.Option(metavar="NUMBERS", help="Batches that stay, such as newest=3,daily=7. Default: the manager's."),
    ] = "",
    archive: Annotated[
        str, typer.Option(metavar="URL", help="An archive without its manager. Then --keep is needed, too.")
    ] = "",
    yes: YesOption = False,
) -> None:
    """Delete archived batches that need not stay, and bytes that no batch has needed for a day.

    It shows first what it deletes. The newest batch of a query always stays. The manager does the same by itself.
    """
    cluster = ""
    if not archive:
        found = archive_of(call.manager)
        archive, keep, cluster = found.url, keep or found.keep, found.cluster
    if not keep:
        raise InvalidRequestError("--archive needs --keep, such as --keep newest=3,daily=7")
    bucket, retention = Bucket(archive), retention_of(keep)
    unneeded = asyncio.run(_find(bucket, Keeper(bucket, retention), job, cluster))
    if not call.as_json:
        _show(unneeded)
    batches = sum(len(one.batches) for one in unneeded.values())
    packs = sum(len(one.packs) for one in unneeded.values())
    if batches or packs:
        what = f"{count(batches, 'batch', 'batches')} and {count(packs, 'pack')} of {bucket.url} are deleted"
        confirm(f"{what}. Batches that stay: {keep}", yes=yes)
        unneeded = asyncio.run(_delete(Keeper(bucket, retention), unneeded))
    if call.as_json:
        say_json({"url": bucket.url, "keep": keep, "queries": {one: _plain(u) for one, u in unneeded.items()}})
    else:
        say("deleted" if batches or packs else "nothing is deleted")


async def _find(bucket: Bucket, keeper: Keeper, job: str, cluster: str) -> dict[str, Unneeded]:
    """By query. `cluster`: only queries whose archive it writes; empty: of any."""
    found: dict[str, Unneeded] = {}
    for one in [job] if job else await bucket.folders():
        writer = await claimed_by(bucket, one)
        if cluster and writer != cluster:
            if writer is not None and job:
                raise ConflictError(f"query {job} is archived by another cluster, {writer}: prune it there")
            continue
        unneeded = await keeper.find(one)
        if unneeded is not None:
            found[one] = unneeded
    if job and not found:
        raise UnknownError(f"archive {bucket.url}: has no batch of query {job!r}")
    return found


async def _delete(keeper: Keeper, shown: dict[str, Unneeded]) -> dict[str, Unneeded]:
    """Looks again: the answer to the question may have taken long."""
    found = {job: await keeper.keep(job) for job in shown}
    return {job: one for job, one in found.items() if one is not None}


def _show(unneeded: dict[str, Unneeded]) -> None:
    rows: list[Row] = [
        (
            job,
            str(len(one.kept)),
            ", ".join(str(int(name.rpartition("/")[2].partition("-")[0])) for name in one.batches) or "-",
            f"{len(one.packs)} ({decimal(one.pack_bytes)})",
            str(len(one.unnamed)),
        )
        for job, one in unneeded.items()
    ]
    if rows:
        show_columns(console(), ("id", "batches stay", "batches go", "packs go", "packs go a day later"), rows)


def _plain(one: Unneeded) -> dict[str, object]:
    return {"batches": one.batches, "packs": one.packs, "pack_bytes": one.pack_bytes, "kept": sorted(one.kept)}
