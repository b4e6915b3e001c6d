"""The batches of a live query, as a shadow runs them: with the same offsets, watermark and time, after their commit.

Spark runs a batch again by its offset log, if the batch has no commit. So the entry of the live query becomes the next
entry of the branch. The checkpoint of the live query is only read.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from query_evolution.shadows.report import Results
from rhino_core.errors import ConflictError, PreconditionError, RhinoError
from spark_connector.query_checkpoint import QueryCheckpoint, replace_file
from spark_connector.query_logs import rows_of

LOOK_S = 0.05  # between two looks at the live query's logs; Spark deletes their old entries
NEW_BRANCH = "make a new branch with `rhino branch`"  # the way out of one with other rows


@dataclass(frozen=True, slots=True)
class LiveBatch:
    """A committed batch of the live query. `entry`: of its offset log. `seconds`: from the entry to the commit."""

    number: int
    entry: bytes
    seconds: float


class LiveBatches:
    """Committed batches of a live query from `first` on. They stay here until a shadow has run them.

    `way_out`: for logs that no longer have one of them.
    """

    def __init__(self, live: QueryCheckpoint, first: int, way_out: str = NEW_BRANCH) -> None:
        self._live = live
        self._way_out = way_out
        self._next = first  # to be read
        self._found: dict[int, LiveBatch] = {}
        self._failure: RhinoError | OSError | None = None

    @contextmanager
    def watched(self) -> Iterator[LiveBatches]:
        """Reads the commits of the live query until the end of the block, in a thread."""
        ended = threading.Event()
        thread = threading.Thread(target=self._watch, args=(ended,), name="rhino-shadow", daemon=True)
        self.look()
        thread.start()
        try:
            yield self
        finally:
            ended.set()
            thread.join()

    def look(self) -> None:
        """Reads new commits once. Raises PreconditionError if Spark has deleted an unread entry."""
        commits = {batch for batch in self._live.batches("commits") if batch >= self._next}
        if commits and self._next not in commits and max(commits) > self._next:
            raise _deleted(self._live, self._next, self._way_out)
        while self._next in commits:
            planned, committed = (self._live.folder / log / str(self._next) for log in ("offsets", "commits"))
            try:
                seconds = committed.stat().st_mtime - planned.stat().st_mtime
                self._found[self._next] = LiveBatch(self._next, planned.read_bytes(), max(seconds, 0.0))
            except FileNotFoundError:
                raise _deleted(self._live, self._next, self._way_out) from None
            self._next += 1

    def take(self, number: int, wait_s: float) -> LiveBatch | None:
        """Waits up to `wait_s` seconds until the live query has committed the batch. None: it has not."""
        deadline = time.monotonic() + wait_s
        while number not in self._found:
            if self._failure is not None:
                raise self._failure
            if time.monotonic() > deadline:
                return None
            time.sleep(LOOK_S)
        return self._found.pop(number)

    def _watch(self, ended: threading.Event) -> None:
        while not ended.wait(LOOK_S):
            try:
                self.look()
            except (RhinoError, OSError) as error:
                self._failure = error  # `take` raises it
                return


class Follower:
    """A branch for the batches of the live query, from batch `since` on. `way_out`: if it has had other rows.

    Raises ConflictError if it has taken the place of a query.
    """

    def __init__(
        self, live: QueryCheckpoint, branch: QueryCheckpoint, since: int = 0, way_out: str = NEW_BRANCH
    ) -> None:
        self.live = live
        self.branch = branch
        self._way_out = way_out
        if Results(branch).promoted() is not None:
            raise ConflictError(
                f"{branch.folder}: this branch has taken the place of a query by `rhino promote`; make a new branch"
            )
        check_followed(live, branch, since, way_out)

    def next_batch(self) -> int:
        """Returns the first uncommitted batch of the branch."""
        return self.branch.newest_commit() + 1

    def take_back(self, number: int) -> None:
        """Makes the newest committed batch a planned one. Spark runs it again with the same rows."""
        commits = self.branch.folder / "commits"
        for name in (f".{number}.crc", str(number)):
            (commits / name).unlink(missing_ok=True)

    def plan(self, batch: LiveBatch) -> None:
        """Gives the branch its next batch, as the live query has planned it.

        Raises PreconditionError if the branch has planned the batch with other rows.
        """
        path = self.branch.folder / "offsets" / str(batch.number)
        copy_sources(self.live, self.branch)
        if path.exists():
            if rows_of(path.read_bytes()) != rows_of(batch.entry):
                raise _other_rows(self.live, self.branch, batch.number, self._way_out)
            return
        replace_file(path, batch.entry)


def check_followed(live: QueryCheckpoint, branch: QueryCheckpoint, since: int = 0, way_out: str = NEW_BRANCH) -> None:
    """Raises PreconditionError if the branch has planned a batch with other rows than the live query has.

    Only batches in both logs can be looked at, and both know the rows of a planned batch.
    """
    if live.job == branch.job:
        raise PreconditionError(f"{branch.folder}: is no branch of {live.folder}: both have the id {live.job}")
    common = {*live.batches("offsets")} & {*branch.batches("offsets")}
    for number in sorted(number for number in common if number >= since):
        entries = [(one.folder / "offsets" / str(number)) for one in (live, branch)]
        try:
            first, second = (rows_of(path.read_bytes()) for path in entries)
        except FileNotFoundError:
            continue  # Spark has deleted an old entry meanwhile
        if first != second:
            raise _other_rows(live, branch, number, way_out)


def copy_sources(live: QueryCheckpoint, branch: QueryCheckpoint) -> None:
    """Copies the present entries of the sources' logs. They name the rows of a batch before it is planned."""
    source, target = (one.folder / "sources" for one in (live, branch))
    news = [path for path in source.rglob("*") if path.is_file() and not path.name.startswith(".")]
    for path in sorted(news, key=lambda one: (one.parent, len(one.name), one.name)):
        if (copy := target / path.relative_to(source)).exists():
            continue
        with contextlib.suppress(FileNotFoundError):  # Spark has put it into a later file of the log
            content = path.read_bytes()
            copy.parent.mkdir(parents=True, exist_ok=True)
            replace_file(copy, content)


def _other_rows(live: QueryCheckpoint, branch: QueryCheckpoint, number: int, way_out: str) -> PreconditionError:
    return PreconditionError(
        f"{branch.folder}: batch {number} has other rows than in {live.folder}: it has gone its own way, or belongs to "
        f"another query; {way_out}"
    )


def _deleted(live: QueryCheckpoint, number: int, way_out: str) -> PreconditionError:
    return PreconditionError(
        f"{live.folder}: batch {number} is not in its logs any more, which keep the newest batches "
        f"(spark.sql.streaming.minBatchesToRetain); {way_out}, and follow it sooner"
    )
