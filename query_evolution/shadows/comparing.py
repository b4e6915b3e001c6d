"""Compares two outputs of one batch: EXCEPT ALL both ways, or with a tolerance for floating-point columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from query_evolution.shadows.report import EXAMPLES_MAX
from rhino_core.errors import InvalidRequestError, PreconditionError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

TEXT_MAX = 1000  # characters of a row
LIVE, SHADOW = "__rhino_live", "__rhino_shadow"  # how often a row is in the outputs
INCOMPARABLE = ("map", "variant", "interval")  # Spark neither sorts nor groups all of them


@dataclass(frozen=True, slots=True)
class CompareRules:
    """How rows are compared.

    `columns`: only these; empty: all. `key`: columns that name a row, so examples show both rows of a key. `tolerance`:
    the share of the greater value by which columns of type float and double may differ; 0: not at all.
    """

    columns: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    tolerance: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.tolerance < 1:
            raise InvalidRequestError(f"tolerance {self.tolerance}: must be a share from 0 to 1, such as 1e-9")
        for name, given in (("columns", self.columns), ("key", self.key)):
            if isinstance(given, str):
                raise InvalidRequestError(f"{name} {given!r}: must be a tuple of names, such as ({given!r},)")
        if self.columns and (unknown := sorted(set(self.key) - set(self.columns))):
            raise InvalidRequestError(f"key {unknown[0]}: is not among the columns that are compared")


@dataclass(frozen=True, slots=True)
class Found:
    """Counts of rows, and examples: pairs of rows as JSON, None where one output has none."""

    live_rows: int
    shadow_rows: int
    missing: int
    surplus: int
    examples: tuple[tuple[str | None, str | None], ...]


def compare(live: DataFrame | None, shadow: DataFrame, rules: CompareRules) -> Found:
    """Compares two outputs. `live`: None has no rows.

    A row counts as often as it is there. Null equals null, NaN equals NaN, and 0.0 equals -0.0. Raises
    PreconditionError for outputs with other columns or types, and for types without a comparison in Spark.
    """
    live = shadow.limit(0) if live is None else live
    names = check_columns(live, shadow, rules)
    approximate = [name for name in names if shadow.schema[name].dataType.typeName() in ("float", "double")]
    if rules.tolerance and approximate:
        return _compare_about(live, shadow, names, approximate, rules)
    return _compare_exactly(live, shadow, names, rules)


def check_columns(live: DataFrame, shadow: DataFrame, rules: CompareRules) -> list[str]:
    """Returns the names of the columns to compare. Raises PreconditionError."""
    names = [*(rules.columns or shadow.columns)]
    for side, rows in (("live", live), ("shadow", shadow)):
        if lacking := [name for name in (*names, *rules.key) if rows.columns.count(name) != 1]:
            raise PreconditionError(
                f"the {side} output has {rows.columns.count(lacking[0])} columns {lacking[0]}, among "
                f"{', '.join(rows.columns)}; say which columns are compared: CompareRules(columns=(...))"
            )
    if not rules.columns and (more := [name for name in live.columns if name not in names]):
        raise PreconditionError(
            f"only the live output has the column {more[0]}; say which columns are compared: "
            "CompareRules(columns=(...))"
        )
    for name in names:
        types = [rows.schema[name].dataType.simpleString() for rows in (live, shadow)]
        if types[0] != types[1]:
            raise PreconditionError(f"column {name} is {types[0]} in the live output and {types[1]} in the shadow's")
        if _incomparable(shadow.schema[name].dataType):
            raise PreconditionError(
                f"column {name}: Spark does not compare {types[0]}; leave it out with CompareRules(columns=(...)), or "
                "give both outputs another form of it, such as map_entries"
            )
    return names


def _incomparable(kind: DataType) -> bool:
    """Whether values of the type, or within it, cannot be compared."""
    from pyspark.sql.types import ArrayType, StructType

    if isinstance(kind, ArrayType):
        return _incomparable(kind.elementType)
    if isinstance(kind, StructType):
        return any(_incomparable(field.dataType) for field in kind.fields)
    return kind.typeName() in INCOMPARABLE


def _column(name: str) -> Column:
    from pyspark.sql import functions as F

    return F.col("`" + name.replace("`", "``") + "`")


def _compare_exactly(live: DataFrame, shadow: DataFrame, names: Sequence[str], rules: CompareRules) -> Found:
    """Counts equal rows of both outputs together: one shuffle gives the result of EXCEPT ALL both ways."""
    from pyspark.sql import functions as F

    columns = [_column(name) for name in names]
    one, none = F.lit(1), F.lit(0)
    marked = live.select(*columns, one.alias(LIVE), none.alias(SHADOW)).union(
        shadow.select(*columns, none.alias(LIVE), one.alias(SHADOW))
    )
    counted = marked.groupBy(*columns).agg(F.sum(LIVE).alias(LIVE), F.sum(SHADOW).alias(SHADOW))
    more = F.col(LIVE) - F.col(SHADOW)
    sums = (F.col(LIVE), F.col(SHADOW), F.greatest(more, none), F.greatest(-more, none))
    live_rows, shadow_rows, lacking, surplus = (int(n or 0) for n in counted.agg(*map(F.sum, sums)).collect()[0])
    examples: tuple[tuple[str | None, str | None], ...] = ()
    if lacking or surplus:
        examples = _examples(counted.where(more > 0), counted.where(more < 0), names, rules)
    return Found(live_rows, shadow_rows, lacking, surplus, examples)


def _compare_about(
    live: DataFrame, shadow: DataFrame, names: Sequence[str], approximate: Sequence[str], rules: CompareRules
) -> Found:
    """Pairs rows with equal other columns in the order of their approximate ones, and compares each pair."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    exact = [name for name in names if name not in approximate]
    window = Window.partitionBy(*map(_column, exact)).orderBy(*map(_column, approximate))
    place = {name: number for number, name in enumerate(names)}

    def numbered(rows: DataFrame, side: str) -> DataFrame:
        renamed = [_column(name).alias(f"{side}{place[name]}") for name in names]
        return rows.select(*renamed, F.row_number().over(window).alias(side))

    same = F.col(LIVE) == F.col(SHADOW)
    for name in exact:
        same &= F.col(f"{LIVE}{place[name]}").eqNullSafe(F.col(f"{SHADOW}{place[name]}"))
    close = F.col(LIVE).isNotNull() & F.col(SHADOW).isNotNull()
    for name in approximate:
        close &= _close(F.col(f"{LIVE}{place[name]}"), F.col(f"{SHADOW}{place[name]}"), rules.tolerance)
    paired = numbered(live, LIVE).join(numbered(shadow, SHADOW), same, "full").withColumn("close", close)
    far = ~F.col("close")
    counts = (
        F.count(LIVE),
        F.count(SHADOW),
        F.count(F.when(far, F.col(LIVE))),
        F.count(F.when(far, F.col(SHADOW))),
    )
    live_rows, shadow_rows, lacking, surplus = (int(n) for n in paired.agg(*counts).collect()[0])
    examples: tuple[tuple[str | None, str | None], ...] = ()
    if lacking or surplus:
        missing, surplus_rows = (
            paired.where(far & F.col(side).isNotNull()).select(
                *[F.col(f"{side}{place[name]}").alias(name) for name in names]
            )
            for side in (LIVE, SHADOW)
        )
        examples = _examples(missing, surplus_rows, names, rules)
    return Found(live_rows, shadow_rows, lacking, surplus, examples)


def _close(live: Column, shadow: Column, tolerance: float) -> Column:
    from pyspark.sql import functions as F

    near = F.abs(live - shadow) <= F.greatest(F.abs(live), F.abs(shadow)) * F.lit(tolerance)
    finite = ~F.isnan(live) & ~F.isnan(shadow) & (F.abs(live) != float("inf")) & (F.abs(shadow) != float("inf"))
    return live.eqNullSafe(shadow) | (F.coalesce(near, F.lit(False)) & finite)


def _examples(
    missing: DataFrame, surplus: DataFrame, names: Sequence[str], rules: CompareRules
) -> tuple[tuple[str | None, str | None], ...]:
    """Returns some rows of one output only; with a key, beside the row of the same key in the other one."""
    from pyspark.sql import functions as F

    text = F.to_json(F.struct(*map(_column, names)), {"ignoreNullFields": "false"}).substr(1, TEXT_MAX)
    nothing = F.lit(None).cast("string")
    if rules.key:
        sides = [
            rows.select(
                text.alias(side), *[_column(key).alias(f"{side}{place}") for place, key in enumerate(rules.key)]
            )
            for side, rows in ((LIVE, missing), (SHADOW, surplus))
        ]
        same = F.lit(True)
        for place, _ in enumerate(rules.key):
            same &= F.col(f"{LIVE}{place}").eqNullSafe(F.col(f"{SHADOW}{place}"))
        found = sides[0].join(sides[1], same, "full").select(LIVE, SHADOW)
    else:
        found = missing.select(text.alias(LIVE), nothing.alias(SHADOW)).union(
            surplus.select(nothing.alias(LIVE), text.alias(SHADOW))
        )
    ordered = found.orderBy(F.coalesce(LIVE, SHADOW), F.col(LIVE).isNull()).limit(EXAMPLES_MAX)
    return tuple((row[0], row[1]) for row in ordered.collect())
