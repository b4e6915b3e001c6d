"""`adopt`: the state of a query that ran with Spark's own provider into Rhino, by ordinary commits of one sidecar."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from rhino.errors import AlreadyThereError, PreconditionError
from rhino.ids import FileEntry, StoreVersion
from rhino.settings import require
from spark_connector.conf import WAYS
from spark_connector.rpc.sidecar import SidecarSession
from spark_connector.takeover.checkpoint import QueryCheckpoint
from spark_connector.takeover.closure import closure_in
from spark_connector.takeover.progress import Outcome, Progress, silent

AT_A_TIME = 4  # stores; a commit waits for other workers, not for this node


def adopt(
    folder: Path, session: SidecarSession, *, through: str, dry_run: bool, quiet_s: float, say: Progress = silent
) -> Outcome:
    """Takes the newest committed state over and, `through` "provider", makes the checkpoint name Rhino's provider.

    The checkpoint's own state files stay. The provider is rewritten last: until then the checkpoint is as it was.
    Raises AlreadyThereError, PreconditionError, IntegrityError and what a sidecar answers.
    """
    require(through in WAYS, "through", through, " or ".join(map(repr, WAYS)))
    checkpoint = QueryCheckpoint(folder)
    provider = checkpoint.provider()
    if provider == WAYS["provider"]:
        raise AlreadyThereError(f"{folder}: names Rhino's provider already")
    if provider != WAYS["checkpoint"]:
        raise PreconditionError(
            f"{folder}: was made with the state store provider {provider or 'of no name'}; only the files of "
            f"{WAYS['checkpoint']} can be taken over. The way out: start the query from a new checkpoint"
        )
    logged = checkpoint.logged()
    checkpoint.check_quiet(quiet_s)
    closures = [(wanted, closure_in(checkpoint.store_folder(wanted.store), wanted)) for wanted in logged.versions]
    if not dry_run:
        _hand_over_all(checkpoint, session, closures, say)
    if checkpoint.logged() != logged or checkpoint.provider() != provider:
        raise PreconditionError(f"{folder}: changed meanwhile: a driver runs this query. Stop it and adopt again")
    backup = ""
    if through == "provider" and not dry_run:
        backup = str(checkpoint.rewrite_provider(provider, WAYS[through]))
    entries = [entry for _, closure in closures for entry in closure]
    return Outcome(
        checkpoint.job,
        logged.batch_id,
        len(closures),
        len(entries),
        sum(entry.size_bytes for entry in entries),
        WAYS[through],
        session.worker_id,
        backup,
    )


def _hand_over_all(
    checkpoint: QueryCheckpoint,
    session: SidecarSession,
    closures: Sequence[tuple[StoreVersion, list[FileEntry]]],
    say: Progress,
) -> None:
    def one(wanted: StoreVersion, closure: list[FileEntry]) -> int:
        for entry in closure:
            session.hand_over(entry, checkpoint.store_folder(wanted.store) / entry.name)
        return sum(entry.size_bytes for entry in closure)

    copied = 0
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        running = [pool.submit(one, *item) for item in closures]
        try:
            for done, future in enumerate(as_completed(running), start=1):
                copied += future.result()
                say(done, len(closures), copied)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
