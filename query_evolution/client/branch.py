"""Branches of queries: a new query with the state of another one, as links to the same files."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from query_evolution.branches.folder import BranchFolder
from query_evolution.client.links import Made, ask_all, check_stored, holders_of, link_item, take_back
from spark_connector.query_checkpoint import QueryCheckpoint


@dataclass(frozen=True, slots=True)
class Branch:
    """A new branch. `linked_bytes`: of the files on their owners. None of them was copied."""

    job: str
    source_job: str
    checkpoint: str
    batch: int
    stores: int
    files: int
    linked_bytes: int
    workers: tuple[str, ...]
    duration_s: float


def branch(manager: str, source: Path, target: Path, *, batch: int | None = None, dry_run: bool = False) -> Branch:
    """Makes a query checkpoint `target` with the state of the query of `source` after a batch.

    The query of `source` may be running, and is not changed. `batch`: None is its newest committed one. The new query
    has an id of its own. Its state is links to the files of the other query, on their workers. Raises AlreadyThereError
    if `target` exists, PreconditionError, UnknownError if a version is not stored any more, UnavailableError. Nothing
    stays of a failed branch.
    """
    started = time.monotonic()
    checkpoint = QueryCheckpoint(source)
    logged = checkpoint.logged(batch)
    holders = holders_of(manager, checkpoint.job)
    check_stored(checkpoint.folder, checkpoint.job, {v.store.group for v in logged.versions}, holders)
    linked = Made()
    with BranchFolder(checkpoint, target, logged.batch_id) as folder:
        if not dry_run:
            folder.fill()
            items = [link_item(version, version.store._replace(job=folder.job)) for version in logged.versions]
            try:
                linked = ask_all(items, holders)
                folder.finish()
            except BaseException as error:
                take_back(manager, folder.job, error)
                raise
        return Branch(
            "" if dry_run else folder.job,
            checkpoint.job,
            str(target.absolute()),
            logged.batch_id,
            len(logged.versions),
            linked.files,
            linked.bytes,
            tuple(sorted(linked.workers)),
            time.monotonic() - started,
        )
