"""The cost of a checkpoint on an object store, by the requests that its files show. No I/O."""

from __future__ import annotations

import itertools
import statistics
from dataclasses import dataclass

from spark_connector.doctor.examine import Diagnosis

MONTH_S = 30 * 86400
PUT_DOLLARS, GB_MONTH_DOLLARS = 0.005 / 1000, 0.023
ASSUMED = (
    "list prices of S3 Standard in us-east-1: $0.005 for 1000 PUT, $0.023 for a GB and month; one PUT for each object. "
    "A checkpoint file manager that renames copies each object once more: twice the requests. GET, HEAD and LIST are "
    "not counted"
)


@dataclass(frozen=True, slots=True)
class Cost:
    """Of a month of 30 days without a pause. `interval_s`: between batches, the median in the offset log."""

    interval_s: float
    puts_a_batch: float
    puts: int
    request_dollars: float
    stored_bytes: int
    storage_dollars: float
    assumed: str = ASSUMED


def cost_of(diagnosis: Diagnosis) -> Cost | None:
    """Returns None if the logs show too few batches."""
    query = diagnosis.query
    planned = [query.offsets[batch].planned_ms for batch in sorted(query.offsets)]
    intervals_ms = [later - earlier for earlier, later in itertools.pairwise(planned) if later > earlier > 0]
    if not intervals_ms:
        return None
    interval_s = statistics.median(intervals_ms) / 1000
    stores = query.layout.stores.values()
    written = [name for store in stores for name in (*store.written(), *store.data)]
    objects = len(written) + sum(f"{name}.crc" in query.files for name in written)
    versions = {version.version for store in stores for version in (*store.changes, *store.snapshots)}
    puts_a_batch = 2 + objects / max(1, len(versions))  # an entry of each log
    puts = round(puts_a_batch * MONTH_S / interval_s)
    # Hadoop writes its hidden checksum files on some file systems only, and on no object store.
    stored = sum(file.size_bytes for name, file in query.files.listed.items() if "/." not in f"/{name}")
    return Cost(interval_s, puts_a_batch, puts, puts * PUT_DOLLARS, stored, stored / 1e9 * GB_MONTH_DOLLARS)
