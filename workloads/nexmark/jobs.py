"""Makes a job from a NEXMark query and batch sizes."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb

from workloads.nexmark import reference
from workloads.nexmark.query import Query, live
from workloads.nexmark.settings import Generator
from workloads.trial.job import CLOSING_BATCHES, Job

TABLES = ("person", "auction", "bid")


def job(query: Query, generator: Generator, sizes: Sequence[int]) -> Job:
    """Returns the job with `sizes[i]` events in batch i."""
    events = sum(sizes)

    def answer(db: duckdb.DuckDBPyConnection) -> str:
        load(db, reference.make(events, generator))
        return query.answer

    return Job(
        name=query.name,
        columns=query.columns,
        stream=lambda spark: query.stream(live(spark, generator, sizes, closed=query.windowed)),
        goal=len(sizes) + (CLOSING_BATCHES if query.windowed else 0),
        events=events,
        answer=answer,
        stateful=query.stateful,
    )


def load(db: duckdb.DuckDBPyConnection, events: reference.Events) -> None:
    """Creates the tables person, auction and bid."""
    for name in TABLES:
        db.register(f"raw_{name}", events.table(name))
        db.execute(f"create table {name} as select * from raw_{name}")
