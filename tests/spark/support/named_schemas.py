"""Parts of the tests of named schemas that other tests use as well."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from tests.spark.queries import consumed, events_of


def unnamed(checkpoint: Path, former: Path) -> set[str]:
    """The schema files that the checkpoint names. No file of it names anything in the former one."""
    schemas = set[str]()
    for path in (path for path in checkpoint.rglob("*") if path.is_file()):
        data = path.read_bytes()
        for text in (f"{former}/", f'{former}"', json.dumps(f"{former}/")[1:-1]):
            assert text.encode() not in data, f"{path} names {former}"
        if path.parent.match("_metadata/v2") and path.name.isdigit():
            fields = json.loads(data.decode().partition("\n")[2])
            schemas |= {named for store in fields["stateStoreInfo"] for named in store["stateSchemaFilePaths"]}
    assert all(Path(re.sub("^(rhino://file|file:)", "", named)).is_file() for named in schemas), schemas
    return schemas


def totals(rows: DataFrame) -> DataFrame:
    """Per key: rows and the greatest value so far."""

    class Totals(StatefulProcessor):  # type: ignore[misc]
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.rows = handle.getValueState("rows", "n bigint")
            self.greatest = handle.getMapState("greatest", "r bigint", "m bigint")

        def handleInputRows(self, key: Any, frames: Iterator[pd.DataFrame], timers: Any) -> Iterator[pd.DataFrame]:
            values = [int(value) for frame in frames for value in frame["value"]]
            known = self.rows.get()[0] if self.rows.exists() else 0
            last = self.greatest.getValue((0,))[0] if self.greatest.containsKey((0,)) else 0
            self.rows.update((known + len(values),))
            self.greatest.updateValue((0,), (max([last, *values]),))
            yield pd.DataFrame({"k": [key[0]], "n": [known + len(values)], "m": [max([last, *values])]})

        def close(self) -> None:
            pass

    grouped = events_of(rows).select("k", "value").groupBy("k")
    return grouped.transformWithStateInPandas(Totals(), "k int, n bigint, m bigint", "update", "None")


def totals_of(spark: SparkSession, batches: int) -> DataFrame:
    return events_of(consumed(spark, batches)).groupBy("k").agg(F.count("*").alias("n"), F.max("value").alias("m"))
