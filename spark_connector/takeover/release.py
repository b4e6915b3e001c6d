"""`release`: exports the newest committed state of a query from Rhino, as files for Spark's own provider."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

from rhino_core.errors import PreconditionError
from rhino_core.ids import FileEntry, StoreVersion
from spark_connector import operator_metadata
from spark_connector.checkpoint import user_location
from spark_connector.conf import PROVIDER_CLASSES
from spark_connector.query_checkpoint import QueryCheckpoint, replace_file
from spark_connector.rpc.sidecar import SidecarSession
from spark_connector.takeover import switch
from spark_connector.takeover.closure import closure_in
from spark_connector.takeover.progress import Outcome, Progress, silent


def check_released(folder: Path, *, stored: bool) -> None:
    """Raises PreconditionError when the state of this checkpoint is not Rhino's.

    `stored`: whether the manager knows replica groups of the query. They decide for Spark's own provider, because
    queries on rhino:// use it too.
    """
    provider = QueryCheckpoint(folder).provider()
    if provider == PROVIDER_CLASSES["provider"] or (provider == PROVIDER_CLASSES["checkpoint"] and stored):
        return
    reason = "so the query runs without Rhino" if stored else "and no worker stores state of this query"
    raise PreconditionError(
        f"{folder}: there is nothing to release: the checkpoint names the state store provider "
        f"{provider or 'of no name'}, {reason}"
    )


def release(
    folder: Path,
    session: SidecarSession,
    *,
    dry_run: bool,
    idle_s: float,
    report: Progress = silent,
    refuse_running: Callable[[], None] = lambda: None,
) -> Outcome:
    """Copies the state into the checkpoint's state/ folder and makes the checkpoint name Spark's own provider.

    Rhino keeps its copies until `rhino forget`. Raises LostError when no worker has a version any more, and
    PreconditionError when a driver has run the query meanwhile: then the checkpoint keeps its provider. So it does if
    `refuse_running`, called just before the change, raises: a query without new data leaves no trace in its logs.
    """
    checkpoint = QueryCheckpoint(folder)
    before = checkpoint.fingerprint()
    logged = checkpoint.logged()
    checkpoint.check_idle(idle_s)
    files = copied = 0
    for done, wanted in enumerate(logged.versions, start=1):
        session.prepare(wanted)
        closure = closure_in(session.folder(wanted.store), wanted)
        if not dry_run:
            _copy_out(checkpoint, session, wanted, closure)
        files, copied = files + len(closure), copied + sum(entry.size_bytes for entry in closure)
        report("copied", done, len(logged.versions), copied)
    checkpoint.check_unchanged(before)
    if not dry_run:
        refuse_running()
    backup = ""
    if checkpoint.provider() == PROVIDER_CLASSES["provider"] and not dry_run:
        backup = str(checkpoint.back_up())
        checkpoint.rewrite_provider(PROVIDER_CLASSES["provider"], PROVIDER_CLASSES["checkpoint"])
    if not dry_run:
        _name_schema_files(checkpoint)
        switch.forget(checkpoint)
    return Outcome(
        checkpoint.job,
        logged.batch_id,
        len(logged.versions),
        files,
        copied,
        PROVIDER_CLASSES["checkpoint"],
        session.worker_id,
        backup,
    )


def _name_schema_files(checkpoint: QueryCheckpoint) -> None:
    """Schema files named on rhino:// get their names on the user's file system. Rhino reads both spellings."""
    for operator in operator_metadata.operators(checkpoint.folder):
        for path in operator_metadata.versions(operator).values():
            fields = operator_metadata.read(path)
            named = operator_metadata.described(fields, int(operator.name), user_location)
            if named != fields:
                replace_file(path, operator_metadata.text_of(named).encode())


def _copy_out(
    checkpoint: QueryCheckpoint, session: SidecarSession, wanted: StoreVersion, closure: list[FileEntry]
) -> None:
    for entry in closure:
        target = checkpoint.store_folder(wanted.store) / entry.name
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{uuid.uuid4()}.tmp")  # a name that nobody can foresee: it could be a link
        try:
            shutil.copyfile(session.folder(wanted.store) / entry.name, temporary)
            target.with_name(f".{target.name}.crc").unlink(missing_ok=True)
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
