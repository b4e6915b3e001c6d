"""Rebuilt state: the state of born operators as if the new code had run from the beginning."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from query_evolution.branches.folder import HiddenFolder
from query_evolution.client.links import ask_all, check_stored, empty_item, holders_of, take_back
from query_evolution.client.restructure import like_of
from query_evolution.rebuilds.folder import fill, first_batch
from query_evolution.rebuilds.replay import Replay, anew
from query_evolution.shadows.following import LiveBatch, LiveBatches
from query_evolution.structure.sketch import sketch
from rhino.client.running import refuse_running
from rhino_core.errors import InvalidRequestError, PreconditionError
from spark_connector.query_checkpoint import QueryCheckpoint
from spark_connector.running_session import check_rows

if TYPE_CHECKING:
    from query_evolution.rebuilds.replay import Rows

READ_S = 10.0  # for an entry of the former query's logs that is there


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """A checkpoint with rebuilt state. `job`: its query id. `source_job`: the id of the former query.

    `first`: the batch from which on the rows were replayed batch by batch. If it is not 0, it has the rows of all
    batches before it, as far as the sources still have them. `batch`: the last run one. `newest`: the newest one
    committed by the former query at the end.
    """

    job: str
    source_job: str
    checkpoint: str
    first: int
    batch: int
    newest: int
    duration_s: float

    @property
    def behind(self) -> int:
        """Returns how many batches of the former query were not run yet."""
        return self.newest - self.batch


def rebuild(
    manager: str,
    rows: Rows,
    source: Path,
    folder: Path,
    *,
    output_mode: str = "append",
    first: int | None = None,
    batches: int | None = None,
    idle_s: float = 0.0,
) -> Rebuilt:
    """Computes the state of new code from the rows of the query of `source`, in the checkpoint `folder`.

    `rows`: the streaming DataFrame of the new code, without its sink; there is no output. The query of `source` may be
    running, and is only read. Its batches are run with the same rows, watermark and time, and under their numbers, from
    the oldest one in its logs, or from `first`. This first one also has the rows of all batches before it. Ends after
    `batches` batches, or once all committed ones were run and none has come for `idle_s` seconds. A later call goes on
    at the end of this one. Then `restructure` takes the state of born operators from `folder`.

    Raises AlreadyThereError if `folder` is something else. Raises PreconditionError if the new code fails, if `folder`
    was made for another query, if the logs do not have a batch any more, and for a DataFrame of Spark Connect. Raises
    InvalidRequestError, UnavailableError, and ConflictError if another driver runs `folder`.
    """
    started = time.monotonic()
    check_rows(rows)
    if batches is not None and batches < 1:
        raise InvalidRequestError(f"batches {batches}: must be at least 1")
    live = QueryCheckpoint(source)
    begun: LiveBatch | None = None
    replay = Replay(live, folder) if folder.exists() else None
    if replay:
        replay.check_first(first)
        refuse_running(manager, replay.checkpoint)
    number = replay.next_batch() if replay else first_batch(live, first)
    with LiveBatches(live, number, anew(folder)).watched() as found:
        if replay is None:
            begun = found.take(number, READ_S)
            if begun is None:
                raise PreconditionError(f"{source}: batch {number} is not committed any more; try again")
            _begin(manager, rows, live, folder, begun, output_mode)
            replay = Replay(live, folder)
        done = 0
        while batches is None or done < batches:
            batch = begun or found.take(number + done, idle_s)
            if batch is None:
                break
            replay.run(rows, output_mode, batch)
            begun, done = None, done + 1
    ended = replay.next_batch() - 1, live.newest_commit()
    took_s = time.monotonic() - started
    return Rebuilt(replay.checkpoint.job, live.job, str(folder.absolute()), replay.origin.first, *ended, took_s)


def _begin(manager: str, rows: Rows, live: QueryCheckpoint, folder: Path, batch: LiveBatch, output_mode: str) -> None:
    """Makes the checkpoint. Nothing stays of it after an error."""
    holders = holders_of(manager, live.job)
    groups = {version.store.group for version in live.logged().versions}
    check_stored(live.folder, live.job, groups, holders)
    with HiddenFolder(live, folder) as made:
        planned = folder.absolute().with_name(f".{folder.name}.rhino-sketch-{made.job}")
        try:
            if batch.number > 0:
                sketch(rows, live.folder, planned, output_mode=output_mode)
            empty = fill(made, live, batch.number, planned if batch.number > 0 else None, batch.entry)
        finally:
            shutil.rmtree(planned, ignore_errors=True)  # executors may still write into it
        like = like_of(groups)
        try:
            ask_all([empty_item(version, like(version.store.partition)) for version in empty], holders)
            made.finish()
        except BaseException as error:
            take_back(manager, made.job, error)
            raise
