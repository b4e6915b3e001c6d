"""NBQ8 with sellers of its own: each equally often at first, and by Zipf's law from one auction on.

All persons come with batch 0, so each auction has one row in the output, in its own batch. This row is held for some
time. It waits and does not compute, because few cores cannot give every worker a processor.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import duckdb
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from workloads.nexmark import events, output, source
from workloads.nexmark.output import Verdict
from workloads.nexmark.queries.joins import nbq8
from workloads.nexmark.query import Streams
from workloads.nexmark.settings import FIRST_ID, Generator

PERSONS = 1024
OCTAVES = 8  # Zipf's sellers are the first 2^OCTAVES - 1: with fewer, one virtual node would exceed a worker's share
GENERATOR = Generator(rate=1000, padded=True)  # the windows of NBQ8 are hours long, so all is in the first one
QUERY = nbq8()


@dataclass(frozen=True, slots=True)
class Load:
    """`sizes`: auctions of batch 1 and those after it. `zipf_from`: the first batch with Zipf's sellers.

    `hold_ms`: how long a row of the output is held.
    """

    sizes: tuple[int, ...]
    hold_ms: int
    zipf_from: int

    @property
    def batches(self) -> int:
        """Batch 0 has the persons."""
        return len(self.sizes) + 1

    @property
    def auctions(self) -> int:
        return sum(self.sizes)

    @property
    def zipf_id(self) -> int:
        """The id of the first auction with a seller by Zipf's law."""
        return FIRST_ID + sum(self.sizes[: self.zipf_from - 1])


def seller(load: Load) -> str:
    """The seller of an auction by its `id`, in the SQL of Spark and of DuckDB. All numbers are integers.

    An octave is drawn, and then one of its numbers: number k has a share of about 1 / k.
    """
    octave = f"cast(pow(2, id * 48271 % 65521 % {OCTAVES}) as bigint)"
    drawn = "id * 69621 % 99991"
    zipf, even = f"{octave} + {drawn} % {octave}", f"{drawn} % {PERSONS}"
    return f"{FIRST_ID} + case when id >= {load.zipf_id} then {zipf} else {even} end"


def stream(spark: SparkSession, load: Load) -> DataFrame:
    """The output of the query, with held rows."""
    zeros = (0,) * len(load.sizes)

    def persons() -> DataFrame:
        return _persons(source.stream(spark, (PERSONS, *zeros)))

    def auctions() -> DataFrame:
        return _auctions(source.stream(spark, (0, *load.sizes)), load)

    def no_bids() -> DataFrame:
        raise AssertionError("NBQ8 reads no bids")

    held = F.expr(f"reflect('java.lang.Thread', 'sleep', bigint({load.hold_ms}))")
    return QUERY.stream(Streams(persons, auctions, no_bids, GENERATOR)).where(held.isNotNull())


def _persons(rows: DataFrame) -> DataFrame:
    """Row k is the k-th person of the generator."""
    return events.persons(rows.selectExpr("n * 50 as n"), GENERATOR)


def _auctions(rows: DataFrame, load: Load) -> DataFrame:
    """Row k is the k-th auction of the generator, with another seller."""
    made = events.auctions(rows.selectExpr("n div 3 * 50 + 1 + n % 3 as n"), GENERATOR)
    return made.withColumn("seller", F.expr(seller(load)))


def compare(spark: SparkSession, load: Load, written: Path, folder: Path) -> Verdict:
    """Compares the query's output with DuckDB's answer. DuckDB computes the sellers itself.

    `folder` receives the raw events.
    """
    _persons(source.batch(spark, PERSONS)).write.parquet(str(folder / "person"))
    raw = events.auctions(source.batch(spark, load.auctions).selectExpr("n div 3 * 50 + 1 + n % 3 as n"), GENERATOR)
    raw.drop("seller").write.parquet(str(folder / "auction"))
    with duckdb.connect() as db:
        for name, more in (("person", ""), ("auction", f", {seller(load)} as seller")):
            rows = f"read_parquet('{folder / name}/*.parquet')"
            db.execute(f"create view {name} as select *, epoch_ms(ts) as ts_ms{more} from {rows}")
        db.execute(f"create table expected as {QUERY.answer}")
        output.load(db, "got", written, QUERY.columns)
        return output.compare(db, "got", "expected")
