"""`rhino archive`: how far the archive is, and what lies in it. Data on stdout, progress on stderr."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.filesize import decimal

from rhino.cli import exit_codes
from rhino.cli.archive_prune import prune
from rhino.cli.archives import archive_of
from rhino.cli.arguments import seconds
from rhino.cli.columns import Cell, Row, show_columns
from rhino.cli.option_groups import expanded
from rhino.cli.options import CallOptions, YesOption
from rhino.cli.output import confirm, console, local_time, say, say_json
from rhino.cli.status import archive_line, archive_usage_line
from rhino.client.handover_client import HandoverClient
from rhino_archive.bucket import Bucket
from rhino_archive.claims import claim, claimed_by
from rhino_archive.manifest import ArchivedVersion, Manifest
from rhino_archive.reading import manifest_names, read_manifest
from rhino_archive.verifying import Verified, Verifier
from rhino_core.errors import IntegrityError, PreconditionError, UnknownError
from rhino_core.text import count, duration
from rhino_model.archives import Archive, ArchivedQuery
from worker_runtime.protocol.versions.closure import StoreCatalogue

if TYPE_CHECKING:
    from rhino.cli.archive_restore import Restored

app = typer.Typer(no_args_is_help=True, help="An independent copy of the state of queries on an object store.")
POLL_S = 0.3
UrlOption = Annotated[
    str,
    typer.Option(metavar="URL", help="The archive. Default: the manager's (`rhino manager --archive`)."),
]
JobOption = Annotated[str, typer.Option(help="Only this query: its id, as `rhino archive list` shows it.")]


def _url(archive: str, call: CallOptions) -> str:
    return archive or archive_of(call.manager).url


def status(call: CallOptions) -> None:
    """Show the archive of a cluster, and how old the newest archived batch of each query is."""
    with HandoverClient(call.manager) as client:
        _show(client.archive(), call)


def now(
    call: CallOptions,
    job: Annotated[str, typer.Option(help="Query id, or the query name if it is unique. Default: all.")] = "",
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the newest batches are in the archive.")] = False,
    timeout_s: Annotated[
        float, typer.Option(help="With --wait: give up after so many seconds.", callback=seconds("--timeout-s"))
    ] = 600.0,
) -> None:
    """Archive the newest batch of a query, or of all, at once. After the queries have stopped, it loses nothing."""
    with HandoverClient(call.manager) as client:
        found = client.archive_now(job)
        wanted = {one.job: one.logged_batch_id for one in found.queries if job in ("", one.job, one.name)}
        deadline = time.monotonic() + timeout_s
        while wait and (left := _left(found, wanted)) and time.monotonic() < deadline:
            say(f"waiting for {count(len(left), 'query', 'queries')}", error=True)
            time.sleep(POLL_S)
            found = client.archive()
    _show(found, call)
    raise typer.Exit(exit_codes.FAILED if wait and _left(found, wanted) else exit_codes.OK)


def _left(found: Archive, wanted: dict[str, int]) -> list[ArchivedQuery]:
    """The queries whose wanted batch is not archived yet, or whose archive the manager is just looking through."""
    late = (one for one in found.queries if not one.whole and one.job in wanted)
    return [one for one in late if one.batch_id < wanted[one.job] or one.batch_id == one.logged_batch_id]


def _show(found: Archive, call: CallOptions) -> None:
    if call.as_json:
        say_json(found)
        return
    say(f"{archive_line(found)}; cluster {found.cluster}" if found.url else "this cluster has no archive")
    if found.error:
        say(f"the archive has stopped: {found.error}; start the manager again")
    for failure in found.drills.failures:
        say(f"restore drill failed: {failure}")
    if found.usage.writes:
        say(archive_usage_line(found.usage))
    rows: list[Row] = []
    for one in found.queries:
        state = Cell("failing", "red") if one.error else Cell("archiving" if one.running else "idle")
        age = Cell("up to date", "green") if one.whole else Cell(f"{duration(one.age_s)} behind")
        batch = "none" if one.batch_id < 0 else str(one.batch_id)
        every = duration(one.every_s) + f" ({one.why})" * bool(one.why)
        rows.append((one.name or one.job, batch, str(one.logged_batch_id), age, every, state))
    if rows:
        show_columns(console(), ("query", "archived", "logged", "age", "every", "state"), rows)
    for one in found.queries:
        if one.error:
            say(f"{one.name or one.job}: {one.error}")


def list_batches(call: CallOptions, archive: UrlOption = "", job: JobOption = "") -> None:
    """List the archived batches of all queries, newest first."""
    bucket = Bucket(_url(archive, call))
    manifests, problems = asyncio.run(_manifests(bucket, job))
    if call.as_json:
        say_json({"url": bucket.url, "batches": [_plain(one) for one in manifests], "problems": problems})
    else:
        rows: list[Row] = [
            (
                one.query or "-",
                one.job,
                str(one.batch_id),
                local_time(one.logged_ms),
                local_time(one.written_ms),
                one.cluster,
            )
            for one in manifests
        ]
        show_columns(console(), ("query", "id", "batch", "logged", "archived", "cluster"), rows)
        for problem in problems:
            say(problem)
    raise typer.Exit(exit_codes.FAILED if problems else exit_codes.OK)


async def _manifests(bucket: Bucket, job: str) -> tuple[list[Manifest], list[str]]:
    manifests, problems = list[Manifest](), list[str]()
    for one in [job] if job else await bucket.folders():
        for name in await _names(bucket, one, wanted=bool(job)):
            try:
                manifests.append(await read_manifest(bucket, name))
            except (IntegrityError, PreconditionError, UnknownError) as error:
                problems.append(str(error))
    return sorted(manifests, key=lambda one: (one.job, -one.written_ms)), problems


async def _names(bucket: Bucket, job: str, *, wanted: bool) -> list[str]:
    """Raises UnknownError if there is none, and the query was asked for. Another one may just have begun."""
    names = await manifest_names(bucket, job)
    if wanted and not names:
        raise UnknownError(f"archive {bucket.url}: has no batch of query {job!r}")
    return names


def _plain(one: Manifest) -> dict[str, object]:
    fields = ("job", "query", "batch_id", "logged_ms", "written_ms", "cluster", "location")
    return {**{name: getattr(one, name) for name in fields}, "packs": len(one.packs)}


def verify(
    call: CallOptions,
    archive: UrlOption = "",
    job: JobOption = "",
    newest: Annotated[bool, typer.Option("--newest", help="Only the newest batch of each query.")] = False,
) -> None:
    """Read all archived batches completely, and compare every byte with its checksum. It costs requests and traffic."""
    bucket = Bucket(_url(archive, call))
    found = asyncio.run(_verify(bucket, job, newest=newest))
    if call.as_json:
        say_json({"url": bucket.url, "queries": found})
    else:
        rows: list[Row] = [
            (one, str(v.batches), str(v.files), str(v.packs), decimal(v.size_bytes), str(len(v.problems)))
            for one, v in found.items()
        ]
        show_columns(console(), ("id", "batches", "files", "packs", "bytes", "problems"), rows)
        for problem in _problems(found.values()):
            say(problem)
    raise typer.Exit(exit_codes.FAILED if _problems(found.values()) else exit_codes.OK)


def opens(archived: ArchivedVersion) -> bool:
    """Whether the files of a version are a closure of it."""
    return StoreCatalogue(file.entry for file in archived.files).holds(archived.version.version)


def _problems(found: Iterable[Verified]) -> list[str]:
    return [problem for one in found for problem in one.problems]


async def _verify(bucket: Bucket, job: str, *, newest: bool) -> dict[str, Verified]:
    found: dict[str, Verified] = {}
    with console(error=True).status("reading") as shown:
        for one in [job] if job else await bucket.folders():
            verifier = Verifier(
                bucket,
                one,
                lambda v: shown.update(f"{v.packs} packs, {decimal(v.size_bytes)}, {len(v.problems)} bad"),
                opens,
            )
            found[one] = verifier.found
            names = await _names(bucket, one, wanted=bool(job))
            for name in names[:1] if newest else names:
                await verifier.verify(name)
            await verifier.verify_others()
    return found


def claim_query(
    call: CallOptions,
    job: Annotated[str, typer.Option(help="Query id, as `rhino archive list` shows it.")],
    yes: YesOption = False,
) -> None:
    """Let this cluster write the archive of a query that another cluster has written. The other one must not run it."""
    found = archive_of(call.manager)
    former = _claim(Bucket(found.url), found, job, yes=yes)
    say(f"query {job}: this cluster writes its archive", error=call.as_json)
    if call.as_json:
        say_json({"job": job, "cluster": found.cluster, "former": former})


def _claim(bucket: Bucket, found: Archive, job: str, *, yes: bool) -> str:
    """Takes the archive of a query over, after a question. Returns the cluster that has written it."""
    try:
        former = asyncio.run(claimed_by(bucket, job))
    except IntegrityError as error:  # taking it over is the way out
        former = f"(unknown: {error})"
    if former is None:
        raise UnknownError(f"archive {bucket.url}: has no query {job!r}")
    if former != found.cluster:
        confirm(f"Cluster {former} writes the archive of query {job}. This cluster, {found.cluster}, takes it", yes=yes)
        asyncio.run(claim(bucket, job, found.cluster, force=True))
    return former


ToOption = Annotated[Path, typer.Option(metavar="FOLDER", help="New folder of the query checkpoint.")]
BatchOption = Annotated[int | None, typer.Option(help="An archived batch. Default: the one archived last.")]
RestoredJobOption = Annotated[str, typer.Option(help="Query id, as `rhino archive list` shows it.")]


def restore(
    call: CallOptions,
    job: RestoredJobOption,
    to: ToOption,
    batch: BatchOption = None,
    archive: UrlOption = "",
    yes: YesOption = False,
) -> None:
    """Make the checkpoint of a query anew, and let this cluster go on with the query's archive.

    For a new cluster, when the checkpoint is lost, too. Start the query with the new folder as its checkpointLocation:
    its state comes from the archive by itself. Batches after the archived one are computed again.
    """
    from rhino.cli.archive_restore import check, chosen
    from rhino.cli.archive_restore import restore as restored

    found = None if archive else archive_of(call.manager)
    bucket = Bucket(archive if found is None else found.url)
    manifest = asyncio.run(chosen(bucket, job, batch))
    check(manifest, to)
    if found is not None:
        _claim(bucket, found, job, yes=yes)
    _show_restored(restored(manifest, to), call)


def export(
    call: CallOptions,
    job: RestoredJobOption,
    to: ToOption,
    batch: BatchOption = None,
    archive: UrlOption = "",
    as_new_query: Annotated[
        bool, typer.Option("--as-new-query", help="With an id of its own, for a query beside the archived one.")
    ] = False,
) -> None:
    """Make a plain Spark checkpoint of an archived batch, with its state.

    Spark goes on with it without Rhino, and its state reader shows the state of the batch. `rhino adopt` takes it over.
    """
    from rhino.cli.archive_restore import chosen
    from rhino.cli.archive_restore import export as exported

    bucket = Bucket(_url(archive, call))
    _show_restored(exported(bucket, asyncio.run(chosen(bucket, job, batch)), to, as_new_query=as_new_query), call)


def _show_restored(done: Restored, call: CallOptions) -> None:
    if call.as_json:
        say_json(done)
        return
    say(f"query {done.query or done.job}: batch {done.batch_id}, logged at {local_time(done.logged_ms)}")
    if done.job != done.source_job:
        say(f"new query {done.job}: start it with checkpointLocation {done.checkpoint} and a sink of its own")
        return
    say(f"start it with checkpointLocation {done.checkpoint} (it was {done.former_location or 'not known'})")
    say(f"batch {done.batch_id + 1} and those after it are computed again: their output must be idempotent")


for name, command in (
    ("status", status),
    ("now", now),
    ("list", list_batches),
    ("verify", verify),
    ("prune", prune),
    ("claim", claim_query),
    ("restore", restore),
    ("export", export),
):
    app.command(name)(expanded(command))
