"""Streams with transformWithState: list, map and value state, TTL, and event-time timers.

Processors are classes inside functions: cloudpickle then ships them whole, executors do not see the tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from tests.spark.queries import MS_PER_BATCH, START_MS, events_of, source


def ttl_stream(spark: SparkSession) -> DataFrame:
    """Per key: rows, their residue classes (map), batches with it (list), values that outlived their TTL of 1 ms."""

    class Counts(StatefulProcessor):  # type: ignore[misc]
        def init(self, handle: StatefulProcessorHandle) -> None:
            hour_ms = 3_600_000
            self.classes = handle.getMapState("classes", "r bigint", "n bigint", hour_ms)
            self.batches = handle.getListState("batches", "n bigint", hour_ms)
            self.brief = handle.getValueState("brief", "n bigint", 1)

        def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
            stale = 1 if self.brief.exists() else 0
            values = [int(value) for frame in rows for value in frame["value"]]
            for value in values:
                known = self.classes.getValue((value % 5,))
                self.classes.updateValue((value % 5,), ((known[0] if known else 0) + 1,))
            self.batches.appendValue((len(values),))
            self.brief.update((len(values),))
            counts = [int(found[0]) for found in self.classes.values()]
            lengths = [int(found[0]) for found in self.batches.get()]
            n = sum(counts) if sum(counts) == sum(lengths) else -1  # both states must agree
            one = {"k": [key[0]], "n": [n], "classes": [len(counts)], "batches": [len(lengths)], "stale": [stale]}
            yield pd.DataFrame(one)

        def close(self) -> None:
            pass

    schema = "k int, n bigint, classes bigint, batches bigint, stale bigint"
    grouped = events_of(source(spark)).groupBy("k")
    return grouped.transformWithStateInPandas(Counts(), schema, "update", "ProcessingTime")


def timers_stream(spark: SparkSession) -> DataFrame:
    """Rows per key and window of 20 s, written by the timer at the window's end."""
    width, origin = 2 * MS_PER_BATCH, START_MS

    class Windows(StatefulProcessor):  # type: ignore[misc]
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.handle = handle
            self.windows = handle.getMapState("windows", "start bigint", "n bigint")

        def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
            for frame in rows:
                for ms in frame["ms"]:
                    start = int(ms) - (int(ms) - origin) % width
                    known = self.windows.getValue((start,))
                    if known is None:
                        self.handle.registerTimer(start + width)
                    self.windows.updateValue((start,), ((known[0] if known else 0) + 1,))
            return iter([])

        def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
            start = int(expiredTimerInfo.getExpiryTimeInMs()) - width
            n = self.windows.getValue((start,))[0]
            self.windows.removeKey((start,))
            yield pd.DataFrame({"k": [key[0]], "start": [start], "n": [int(n)]})

        def close(self) -> None:
            pass

    rows = events_of(source(spark)).selectExpr("k", "ts", "unix_millis(ts) as ms").withWatermark("ts", "0 seconds")
    grouped = rows.groupBy("k")
    return grouped.transformWithStateInPandas(Windows(), "k int, start bigint, n bigint", "append", "EventTime")
