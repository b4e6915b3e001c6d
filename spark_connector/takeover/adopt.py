"""`adopt`: imports the state of a query with one of Spark's providers, by ordinary commits to one sidecar."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from rhino_core.setting import require
from spark_connector.conf import PROVIDER_CLASSES
from spark_connector.query_checkpoint import QueryCheckpoint
from spark_connector.query_logs import ids_of
from spark_connector.rpc.sidecar import SidecarSession
from spark_connector.takeover import hdfs_state, switch
from spark_connector.takeover.files import StateFile, StoreFiles, read_changelog
from spark_connector.takeover.found import Found, converted, examine
from spark_connector.takeover.progress import Outcome, Progress, silent
from worker_runtime.verify import changelog

AT_A_TIME = 4  # concurrent stores; a commit mostly waits for other workers, not for this node


@dataclass(frozen=True, slots=True)
class AdoptOptions:
    """`to_format`: 2 converts state of former formats; None refuses it. `idle_s`: see `QueryCheckpoint.check_idle`."""

    integration: str = "provider"
    to_format: int | None = None
    dry_run: bool = False
    idle_s: float = 30.0


def adopt(
    folder: Path,
    session: SidecarSession,
    options: AdoptOptions,
    *,
    report: Progress = silent,
    refuse_running: Callable[[], None] = lambda: None,
) -> Outcome:
    """Imports the newest committed state, and makes the checkpoint name it.

    All checks come first. The checkpoint's own state files are kept. Its logs are changed last, after a backup: until
    then the checkpoint is unchanged. `refuse_running` is called just before, and may raise. A call after an interrupted
    change completes it. Raises AlreadyThereError, PreconditionError, NoSpaceError, IntegrityError, and the errors of a
    sidecar.
    """
    require(options.to_format in (None, 2), "to_format", options.to_format, "2")
    provider = _provider(options)
    checkpoint = QueryCheckpoint(folder)
    if (interrupted := switch.unfinished(checkpoint)) is not None:
        return _complete(checkpoint, session, interrupted, dry_run=options.dry_run)
    before = checkpoint.fingerprint()
    report("checking", 0, 0, 0)
    found = examine(checkpoint, options.to_format)
    checkpoint.check_idle(options.idle_s)
    backup = ""
    if not options.dry_run:
        with tempfile.TemporaryDirectory(prefix="rhino-adopt-") as work:
            found = _store(checkpoint, session, found, Path(work), report)
            checkpoint.check_unchanged(before)
            refuse_running()
            backup = _change_logs(checkpoint, found, provider)
    return Outcome(
        checkpoint.job,
        found.batch,
        len(found.stores) or len(found.unconverted),
        sum(len(store.files) for store in found.stores),
        found.size_bytes,
        provider,
        session.worker_id,
        backup,
        found.kind,
    )


def _provider(options: AdoptOptions) -> str:
    modes = " or ".join(map(repr, PROVIDER_CLASSES))
    require(options.integration in PROVIDER_CLASSES, "integration", options.integration, modes)
    return PROVIDER_CLASSES[options.integration]


def _complete(
    checkpoint: QueryCheckpoint, session: SidecarSession, interrupted: switch.Switch, *, dry_run: bool
) -> Outcome:
    """The interrupted call has stored everything before it began to change the logs."""
    if not dry_run:
        switch.finish(checkpoint, interrupted)
    kind, provider, backup = "an interrupted adoption", interrupted.provider, interrupted.backup
    return Outcome(checkpoint.job, interrupted.batch, 0, 0, 0, provider, session.worker_id, backup, kind)


def _change_logs(checkpoint: QueryCheckpoint, found: Found, provider: str) -> str:
    """Returns the folder with the former logs, or an empty text if there is nothing to change."""
    if not found.needs_ids and found.provider == provider:
        return ""
    ids = ids_of(store.version for store in found.stores)
    commit = checkpoint.commit_with_ids(found.batch, ids) if found.needs_ids else ""
    begun = switch.begin(checkpoint, found.batch, commit, provider)
    switch.finish(checkpoint, begun)
    return begun.backup


def _store(checkpoint: QueryCheckpoint, session: SidecarSession, found: Found, work: Path, report: Progress) -> Found:
    """Stores all files in the sidecar, and returns the findings with the files."""
    if found.unconverted:
        hdfs_state.check_space(work, found.size_bytes)
    total = len(found.unconverted)
    found = converted(checkpoint, found, work, lambda done: report("converted", done, total, 0))
    _store_all(session, found.stores, work, report)
    return found


def _store_all(session: SidecarSession, stores: Sequence[StoreFiles], work: Path, report: Progress) -> None:
    def one(store: StoreFiles) -> int:
        for file in store.files:
            _store_one(session, file, work)
        return store.size_bytes

    copied = 0
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        running = [pool.submit(one, store) for store in stores]
        try:
            for done, future in enumerate(as_completed(running), start=1):
                copied += future.result()
                report("stored", done, len(stores), copied)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _store_one(session: SidecarSession, file: StateFile, work: Path) -> None:
    if not file.gets_lineage:
        session.store(file.entry, file.path)
        return
    with tempfile.NamedTemporaryFile(dir=work) as named:
        named.write(changelog.with_lineage(read_changelog(file.path), file.entry.lineage))
        named.flush()
        session.store(file.entry, Path(named.name))
