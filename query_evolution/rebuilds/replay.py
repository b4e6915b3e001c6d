"""Runs batches of a former query with new code, without output, in the checkpoint of `folder.py`. PySpark is needed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from query_evolution.branches.folder import copy_modifications
from query_evolution.rebuilds.folder import without_watermark
from query_evolution.shadows.batches import run_without_output
from query_evolution.shadows.following import Follower, LiveBatch
from query_evolution.structure.rebuilt import Origin, check_former, origin_of
from rhino_core.errors import AlreadyThereError, InvalidRequestError, PreconditionError
from spark_connector.query_checkpoint import QueryCheckpoint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    Rows: TypeAlias = DataFrame  # for packages that import no PySpark

ERROR_MAX = 4000  # characters of an error of Spark


def anew(folder: Path) -> str:
    """Returns the way out if the former query's logs do not have a batch any more, or its rows are other ones."""
    return f"delete {folder} and rebuild anew"


class Replay:
    """The rebuilt checkpoint `folder` of the query of `live`.

    Raises PreconditionError if it was made for another query, or has had other rows.
    """

    def __init__(self, live: QueryCheckpoint, folder: Path) -> None:
        origin = origin_of(folder)
        if origin is None:
            raise AlreadyThereError(f"{folder}: is there already, and rebuild() has not made it; give another folder")
        check_former(origin, live, folder)
        self.origin: Origin = origin
        self._live = live
        self.checkpoint = QueryCheckpoint(folder)
        self._follower = Follower(live, self.checkpoint, since=origin.first, way_out=anew(folder))

    def next_batch(self) -> int:
        """Returns the first batch not run."""
        return max([*self.checkpoint.batches("commits"), self.origin.first - 1]) + 1

    def check_first(self, asked: int | None) -> None:
        """Raises InvalidRequestError if the checkpoint begins with another batch than the requested one."""
        if asked not in (None, self.origin.first):
            raise InvalidRequestError(
                f"{self.checkpoint.folder}: was begun with batch {self.origin.first}, and not with {asked}; leave it "
                "out, or give another folder"
            )

    def _modify(self, batch: int) -> None:
        """The new code goes on with the modifications in force then, so its state is of the same rows.

        Notes of a run about them are not kept: a failed batch is no reason to go on without one.
        """
        mine = self.checkpoint.folder / "modifications"
        if mine.exists():
            shutil.rmtree(mine)
        copy_modifications(self._live, mine, batch)

    def run(self, rows: Rows, output_mode: str, batch: LiveBatch) -> None:
        """Runs a batch with the rows, modifications, watermark and time of the former query's batch `next_batch`.

        The first one has the rows of all batches before it, too, and no watermark: otherwise they would be late.
        Raises PreconditionError if the new code fails.
        """
        from pyspark.errors import StreamingQueryException

        entry = batch.entry
        self._modify(batch.number)
        if batch.number == self.origin.first > 0:
            entry = without_watermark(entry)
        self._follower.plan(LiveBatch(batch.number, entry, batch.seconds))
        try:
            run_without_output(rows, self.checkpoint, output_mode, batch.number)
        except StreamingQueryException as error:
            raise PreconditionError(
                f"{self.checkpoint.folder}: the new code fails in batch {batch.number}: {str(error)[:ERROR_MAX]}"
            ) from error
