"""`adopt`: imports the state of a query that ran with Spark's own provider, by ordinary commits to one sidecar."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from rhino_core.errors import AlreadyThereError, PreconditionError
from rhino_core.ids import FileEntry, StoreVersion
from rhino_core.setting import require
from spark_connector.conf import PROVIDER_CLASSES
from spark_connector.query_checkpoint import QueryCheckpoint
from spark_connector.rpc.sidecar import SidecarSession
from spark_connector.takeover.closure import closure_in
from spark_connector.takeover.progress import Outcome, Progress, silent

AT_A_TIME = 4  # concurrent stores; a commit mostly waits for other workers, not for this node


def adopt(
    folder: Path, session: SidecarSession, *, integration: str, dry_run: bool, idle_s: float, report: Progress = silent
) -> Outcome:
    """Imports the newest committed state. In the integration mode "provider", also makes the checkpoint name Rhino's.

    The checkpoint's own state files are kept. The provider is rewritten last: until then the checkpoint is unchanged.
    Raises AlreadyThereError, PreconditionError, IntegrityError, and the errors of a sidecar.
    """
    require(integration in PROVIDER_CLASSES, "integration", integration, " or ".join(map(repr, PROVIDER_CLASSES)))
    checkpoint = QueryCheckpoint(folder)
    provider = checkpoint.provider()
    if provider == PROVIDER_CLASSES["provider"]:
        raise AlreadyThereError(f"{folder}: the checkpoint names Rhino's provider already; there is nothing to adopt")
    if provider != PROVIDER_CLASSES["checkpoint"]:
        raise PreconditionError(
            f"{folder}: the checkpoint was made with the state store provider {provider or 'of no name'}; only files "
            f"of {PROVIDER_CLASSES['checkpoint']} can be adopted. Start the query from a new checkpoint"
        )
    logged = checkpoint.logged()
    checkpoint.check_idle(idle_s)
    closures = [(wanted, closure_in(checkpoint.store_folder(wanted.store), wanted)) for wanted in logged.versions]
    if not dry_run:
        _store_all(checkpoint, session, closures, report)
    if checkpoint.logged() != logged or checkpoint.provider() != provider:
        raise PreconditionError(
            f"{folder}: the checkpoint changed meanwhile: a driver runs this query. Stop it and adopt again"
        )
    backup = ""
    if integration == "provider" and not dry_run:
        backup = str(checkpoint.rewrite_provider(provider, PROVIDER_CLASSES[integration]))
    entries = [entry for _, closure in closures for entry in closure]
    return Outcome(
        checkpoint.job,
        logged.batch_id,
        len(closures),
        len(entries),
        sum(entry.size_bytes for entry in entries),
        PROVIDER_CLASSES[integration],
        session.worker_id,
        backup,
    )


def _store_all(
    checkpoint: QueryCheckpoint,
    session: SidecarSession,
    closures: Sequence[tuple[StoreVersion, list[FileEntry]]],
    report: Progress,
) -> None:
    def one(wanted: StoreVersion, closure: list[FileEntry]) -> int:
        for entry in closure:
            session.store(entry, checkpoint.store_folder(wanted.store) / entry.name)
        return sum(entry.size_bytes for entry in closure)

    copied = 0
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        running = [pool.submit(one, *item) for item in closures]
        try:
            for done, future in enumerate(as_completed(running), start=1):
                copied += future.result()
                report(done, len(closures), copied)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
