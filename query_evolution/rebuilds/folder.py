"""The checkpoint of a query that begins before the former rows, with the batch numbers of the former query.

Files of state have the number of their batch in their names. So the new code must make the state of batch N as its own
batch N: its first batch has the number of a batch still in the former query's logs. If this is not batch 0, the
checkpoint has a batch without rows before it, and names empty stores.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from query_evolution.branches.folder import HiddenFolder
from query_evolution.shadows.following import copy_sources
from query_evolution.structure.folder import describe, empty_stores
from query_evolution.structure.operators import read_operators
from query_evolution.structure.rebuilt import Origin
from rhino_core.errors import PreconditionError
from rhino_core.foreign import reading
from rhino_core.ids import StoreVersion
from spark_connector.query_checkpoint import QueryCheckpoint
from spark_connector.query_logs import ids_of

NOTHING = b"-"  # SERIALIZED_VOID_OFFSET of Spark's OffsetSeqLog: of this source, nothing was read


def first_batch(live: QueryCheckpoint, asked: int | None) -> int:
    """Returns the first batch of the new code: the oldest one in both logs, or `asked`.

    Raises PreconditionError if they do not have it.
    """
    found = sorted({*live.batches("offsets")} & {*live.batches("commits")})
    if not found:
        raise PreconditionError(f"{live.folder}: no batch is committed, so there are no former rows")
    if asked is not None and asked not in found:
        raise PreconditionError(
            f"{live.folder}: batch {asked} is not in its logs, which have {found[0]} to {found[-1]}; choose one of them"
        )
    return found[0] if asked is None else asked


def without_watermark(entry: bytes) -> bytes:
    """Returns an entry of the offset log with the watermark of a new query.

    With the one of the former query, the rows of all batches before it would be late. Raises IntegrityError for an
    unreadable entry, and PreconditionError for another version of the log.
    """
    fields = _fields(entry) | {"batchWatermarkMs": 0}
    version, _, *rows = entry.rstrip().split(b"\n")
    if version.strip() != b"v1":
        raise PreconditionError(
            f"the offset log has version {version.decode(errors='replace')}, in which Rhino cannot say that nothing "
            "was read; rebuild from batch 0, or begin empty with sketch()"
        )
    return b"\n".join([version, json.dumps(fields, separators=(",", ":")).encode(), *rows])


def _fields(entry: bytes) -> dict[str, Any]:
    with reading("an offset log entry"):
        fields: dict[str, Any] = json.loads(entry.split(b"\n")[1])
        return {"batchWatermarkMs": 0, **fields}


def fill(
    made: HiddenFolder, live: QueryCheckpoint, first: int, sketch: Path | None, entry: bytes
) -> list[StoreVersion]:
    """Prepares the hidden folder for a query whose first batch is `first`. Returns its empty stores.

    `entry`: of this batch, in the offset log of the former query. `sketch`: the checkpoint of a query begun by the new
    code; None if `first` is 0: then Spark itself describes the operators. Raises PreconditionError.
    """
    made.make()
    for name in ("offsets", "commits"):
        (made.work / name).mkdir()
    copy_sources(live, QueryCheckpoint(made.work))
    closed = first > 0 and _fields(entry)["batchWatermarkMs"] > 0
    Origin(live.job, first, first + closed).write(made.work)
    if sketch is None:
        return []
    operators, before = read_operators(sketch), first - 1
    version, head, *rows = without_watermark(entry).split(b"\n")
    (made.work / "offsets" / str(before)).write_bytes(b"\n".join([version, head, *([NOTHING] * len(rows))]))
    for operator in operators:
        folder = f"state/{operator.number}"
        describe(made.work / folder, operator, sketch / folder, None, before)
    empty = empty_stores(operators, made.job, before)
    fields = {"nextBatchWatermarkMs": 0, "stateUniqueIds": {str(key): ids for key, ids in ids_of(empty).items()}}
    commit = f"v2\n{json.dumps(fields, separators=(',', ':'))}"
    (made.work / "commits" / str(before)).write_text(commit)
    return empty
