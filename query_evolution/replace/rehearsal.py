"""Tries new code on an empty state, before it takes over: do its operators fit, and is everything of it warm?"""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from query_evolution.replace.driver import WAITING
from query_evolution.replace.folder import RestartFolder
from query_evolution.structure.alignment import both, misfit
from query_evolution.structure.operators import JOIN, Operator, read_operators
from query_evolution.structure.sketch import begun
from rhino_core.errors import PreconditionError
from spark_connector.conf import CLASSES, PROVIDER_CLASSES, SPARK_PROVIDER
from spark_connector.query_checkpoint import QueryCheckpoint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

POLL_S = 0.02
PLANNED_S = 60.0
CLOSED_S = 6.0  # twice the interval that Rhino sets for executors to look at their stores
REHEARSAL_PROVIDER = f"{CLASSES}.replace.RehearsalProvider"
OPEN = "open"  # as in RehearsalProvider.scala


class OtherOperatorsError(PreconditionError):
    """The new code cannot go on with the state of the checkpoint."""


def rehearse(
    rows: DataFrame, checkpoint: Path, *, output_mode: str, first_batch_s: float, new_driver: bool = False
) -> None:
    """Begins `rows` as a query without output and with an empty state, and compares its operators with the checkpoint.

    Waits up to `first_batch_s` seconds for its first batch, so Java code is compiled, and executors and Python workers
    run. Executors that have not loaded a store yet load one of the query, and throw it away. `new_driver`: this driver
    and its executors have not run the query. Then the rehearsal begins a second time, with the state of its first
    batch, as in a takeover.

    Of transformWithState only kind and partitions are compared: it may get more state variables, so Spark compares the
    rest in the first batch on trial. Raises OtherOperatorsError if operators differ, with both lists and the way out,
    and PreconditionError if the query fails or plans no batch within 60 s.
    """
    folder = RestartFolder(checkpoint).rehearsals / str(uuid.uuid4())
    provider = provider_of(checkpoint)
    (folder / OPEN).mkdir(parents=True)
    deadline = time.monotonic() + first_batch_s

    def run(batch: int) -> None:
        with begun(rows, checkpoint, folder, output_mode=output_mode, timeout_s=PLANNED_S, provider=provider) as query:
            _wait_for_batch(query, folder, batch, deadline)

    try:
        run(0)
        check_operators(checkpoint, folder)
        if new_driver:
            if (done := max(RestartFolder(folder).committed(), default=-1)) >= 0:
                run(done + 1)
            _wait_until_closed(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # executors may still write into it


def provider_of(checkpoint: Path) -> str:
    """Returns the provider of a rehearsal of the query in `checkpoint`. Rhino knows nothing of the state it keeps."""
    rhino = QueryCheckpoint(checkpoint).provider() == PROVIDER_CLASSES["provider"]
    return REHEARSAL_PROVIDER if rhino else SPARK_PROVIDER


def _wait_for_batch(query: StreamingQuery, folder: Path, batch: int, deadline: float) -> None:
    """Also returns if there are no rows for it."""
    while not (folder / "commits" / str(batch)).exists() and time.monotonic() < deadline:
        if (error := query.exception()) is not None:
            raise PreconditionError(f"the new code fails: {error}")
        if str(query.status["message"]).startswith(WAITING):
            return
        time.sleep(POLL_S)


def _wait_until_closed(folder: Path) -> None:
    """Executors close stores when they look next time. Tasks of the query would wait for it.

    After CLOSED_S seconds they may: a setting of the application can let executors look less often.
    """
    deadline = time.monotonic() + CLOSED_S
    while any(path.name[0] != "." for path in (folder / OPEN).iterdir()) and time.monotonic() < deadline:
        time.sleep(POLL_S)


def check_operators(checkpoint: Path, rehearsed: Path) -> None:
    """Compares the operators of a checkpoint with those of the rehearsal in the folder `rehearsed`.

    Raises OtherOperatorsError if they differ, with both lists; PreconditionError if operators are not described; and
    IntegrityError for unreadable files.
    """
    old, new = _operators(checkpoint), _operators(rehearsed)
    if reason := difference(old, new):
        raise OtherOperatorsError(
            f"the new code has other stateful operators than the checkpoint, and a restart keeps them: {reason}. "
            f"`rhino restructure` makes a checkpoint for the new ones\n{both(old, new)}"
        )


def difference(old: Sequence[Operator], new: Sequence[Operator]) -> str:
    """Returns why the operators of the checkpoint are not those of the new code. Empty: they are."""
    if len(old) != len(new):
        return f"it has {len(new)}, and the checkpoint {len(old)}"
    for before, after in zip(old, new, strict=True):
        if before.partitions != after.partitions:
            return f"operator {before.number} has {before.partitions} partitions, and the new one {after.partitions}"
        if before.name == after.name and _may_evolve(before):
            continue
        if reason := misfit(before, after):
            return f"operator {before.number}: {reason}"
        if _names(before) != _names(after):
            return f"operator {before.number} has other columns"
    return ""


def _may_evolve(operator: Operator) -> bool:
    """transformWithState: Spark lets it have more state variables than the state, and more columns in them."""
    return operator.versioned and operator.name != JOIN


def _names(operator: Operator) -> list[str]:
    """Spark finds state by position, so a column of another meaning would go on with the former one's values."""
    parts = (part for store in operator.stores for part in store.families or (store,))
    return [column.name for part in parts for column in (*part.key, *part.value)]


def _operators(checkpoint: Path) -> tuple[Operator, ...]:
    """None at all for a query without state."""
    state = checkpoint / "state"
    return read_operators(checkpoint) if state.is_dir() and any(state.iterdir()) else ()
