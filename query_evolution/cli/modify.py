"""Actions and output of `rhino modify` and `rhino modifications`. Data on stdout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer

from query_evolution.modify.comparison import Comparison, Version
from query_evolution.modify.join import FORMATS, How, StaticTable
from query_evolution.modify.ledger import State, View
from query_evolution.modify.modifications import Modifications
from query_evolution.modify.record import Canary, Kind
from rhino.cli import exit_codes
from rhino.cli.arguments import seconds
from rhino.cli.columns import Row, show_columns
from rhino.cli.options import JsonOption
from rhino.cli.output import console, local_time, say, say_json
from rhino_core.errors import InvalidRequestError

FAILURES = (State.REFUSED, State.RETURNED, State.WITHDRAWN)
FunctionOption = Annotated[
    list[str] | None,
    typer.Option(
        "--function",
        metavar="NAME=FILE.py:NAME",
        help="A Python function that the SQL calls by the first name, made with @udf, @pandas_udf or @arrow_udf. "
        "Repeat for more.",
    ),
]
SHORT = 12  # characters of a digest
HEADS = ("number", "state", "batches", "canary", "kind", "target", "what", "by", "at", "reason")


@dataclass(frozen=True, slots=True)
class WaitOptions:
    """How long the command waits, and the form of its answer."""

    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Let the driver check the change only; it never comes in force.")
    ] = False
    wait_s: Annotated[
        float,
        typer.Option(
            help="Wait this many seconds until the change is in force or refused; 0: do not wait.",
            callback=seconds("--wait-s"),
        ),
    ] = 60.0
    as_json: JsonOption = False


def _limit_s(value: float | None) -> float | None:
    return None if value is None else seconds("--max-batch-s", positive=True)(value)


@dataclass(frozen=True, slots=True)
class CanaryOptions:
    """For how long a change is on trial, and its limits."""

    canary: Annotated[
        int,
        typer.Option(help="Judge this many batches. One that fails or breaks a limit ends the change. 0: no canary."),
    ] = 0
    max_batch_s: Annotated[
        float | None, typer.Option(help="Limit of a canary: seconds of a batch.", callback=_limit_s)
    ] = None
    min_rows: Annotated[int | None, typer.Option(help="Limit of a canary: rows of a batch at the point.")] = None
    max_rows: Annotated[int | None, typer.Option(help="Limit of a canary: rows of a batch at the point.")] = None
    rows_at: Annotated[
        str, typer.Option(metavar="POINT", help="Where rows are counted, if not at the point that changes.")
    ] = ""

    def chosen(self) -> Canary | None:
        """Raises InvalidRequestError for limits without a canary."""
        limits = (self.max_batch_s, self.min_rows, self.max_rows)
        if self.canary == 0:
            if self.rows_at or any(limit is not None for limit in limits):
                raise InvalidRequestError("limits are those of a canary: give the number of its batches, --canary")
            return None
        most_ms = None if self.max_batch_s is None else max(round(self.max_batch_s * 1000), 1)
        return Canary(self.canary, most_ms, self.min_rows, self.max_rows, self.rows_at)


@dataclass(frozen=True, slots=True)
class TableOptions:
    """A static table, and how it is joined."""

    table: Annotated[
        str,
        typer.Option(
            metavar="PATH", help="Folder or file of the table, as the driver's Spark reads it: a path or URI."
        ),
    ]
    on: Annotated[
        list[str],
        typer.Option(
            metavar="COLUMN=COLUMN", help="Columns of the point and of the table to be equal. Repeat for more."
        ),
    ]
    how: Annotated[How, typer.Option(help="Which rows come out.")] = How.LEFT
    format_: Annotated[str, typer.Option("--format", help=f"{', '.join(FORMATS)}.")] = "parquet"
    schema: Annotated[
        str, typer.Option(metavar="DDL", help="Columns of the table, such as 'id bigint, factor int'.")
    ] = ""
    reader: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="NAME=VALUE", help="Option of Spark's reader, such as header=true."),
    ] = None

    def chosen(self) -> tuple[StaticTable, dict[str, str]]:
        """Returns the table, and its columns by those of the point. Raises InvalidRequestError."""
        options = _parse_pairs(self.reader or [], "--option", "NAME=VALUE")
        on = _parse_pairs(self.on, "--on", "COLUMN=COLUMN, of the point and of the table")
        return StaticTable(self.table, self.format_, self.schema, options), on


def load_functions(pairs: Sequence[str] | None) -> dict[str, Any]:
    """Executes the files of `--function`, and returns their functions by name. Raises InvalidRequestError."""
    sources = _parse_pairs(pairs or [], "--function", "NAME=FILE.py:NAME")
    if not sources:
        return {}
    from query_evolution.modify.code import load

    return {name: load(source) for name, source in sources.items()}


def carry_out(checkpoint: str, change: Callable[[Modifications], View], options: WaitOptions) -> int:
    """Makes a change, waits for its fate, prints it, and returns the exit code. The caller handles RhinoErrors."""
    query = Modifications(checkpoint)
    view = change(query)
    if options.wait_s > 0:
        view = query.wait(view.record.number, timeout_s=options.wait_s)
    comparison = query.take_comparison(view.record.number) if view.state is State.CHECKED else None
    show(view, as_json=options.as_json, comparison=comparison)
    return exit_codes.REFUSED if view.state in FAILURES else exit_codes.OK


def show_list(views: Sequence[View]) -> None:
    """Prints a table of modifications."""
    if views:
        show_columns(console(), HEADS, map(_row, views))
    else:
        say("the query has no modifications")


def show(view: View, *, as_json: bool, comparison: Comparison | None = None) -> None:
    """Prints a modification as a sentence, or as JSON. `comparison`: the findings of its dry run."""
    if as_json:
        say_json(plain(view) | ({} if comparison is None else {"comparison": asdict(comparison)}))
        return
    batches = f" from batch {view.first_batch} on" if view.state is State.IN_FORCE else ""
    reason = f": {view.reason}" if view.reason else ""
    change = view.record.change
    said = f"modification {view.record.number} of {change.kind} {change.target} is {_words(view.state)}"
    say(f"{said}{batches}{reason}")
    if comparison is not None:
        _show_comparison(comparison)
    elif view.state is State.CHECKED and change.jar is not None:
        say("the executors have loaded its class, and called nothing")


def _show_comparison(found: Comparison) -> None:
    if found.skipped:
        say(f"old and new were not compared: {found.skipped}")
        return
    say(f"{found.different} of {found.rows} rows of batch {found.batch} differ")
    say(f"old: {_version(found.old)}; new: {_version(found.new)}")
    if found.examples:
        show_columns(console(), ("arguments", "old", "new"), [(one.given, one.old, one.new) for one in found.examples])


def _version(of: Version) -> str:
    time_said = "not timed" if of.row_us is None else f"{of.row_us:g} us a row"
    return f"{time_said}, fails for {of.failed} rows, first with {of.error}" if of.failed else time_said


def parse_columns(pairs: Sequence[str]) -> dict[str, str]:
    """Raises InvalidRequestError for a text without "=", and for a column named twice."""
    return _parse_pairs(pairs, "--set", "COLUMN=EXPRESSION")


def _parse_pairs(pairs: Sequence[str], option: str, form: str) -> dict[str, str]:
    chosen: dict[str, str] = {}
    for pair in pairs:
        name, separator, text = pair.partition("=")
        if not separator or not name.strip():
            raise InvalidRequestError(f"{option} {pair!r}: must be {form}")
        if name.strip() in chosen:
            raise InvalidRequestError(f"{option} {pair!r}: {name.strip()} is given twice")
        chosen[name.strip()] = text.strip()
    return chosen


def _words(state: State) -> str:
    return state.value.replace("_", " ")


def _row(view: View) -> Row:
    record, change = view.record, view.record.change
    batches = "" if view.first_batch is None else f"{view.first_batch}-"
    if view.first_batch is not None and view.last_batch is not None:
        batches = f"{batches}{view.last_batch}" if view.last_batch >= view.first_batch else "none"
    return (
        str(record.number),
        _words(view.state),
        batches,
        _canary(view),
        str(change.kind),
        change.target,
        _what(view),
        record.author,
        local_time(record.created_ms),
        view.reason,
    )


def _canary(view: View) -> str:
    """The judged batches, and the figures of the worst of them."""
    canary = view.record.canary
    if canary is None:
        return ""
    said = f"{len(view.figures)} of {canary.batches}"
    if view.figures:
        said += f", up to {max(its.batch_ms for its in view.figures.values())} ms"
    counts = [its.rows[canary.point] for its in view.figures.values() if canary.point in its.rows]
    return f"{said}, {min(counts)} to {max(counts)} rows" if counts else said


def _what(view: View) -> str:
    change = view.record.change
    if change.removes:
        return "remove"
    if change.jar is not None:
        return f"{change.jar.class_name}, jar {change.jar.sha256[:SHORT]} of {change.jar.size} bytes"
    if change.kind is Kind.FUNCTION:
        return f"{len(change.code.pickled)} bytes"
    columns = ", ".join(f"{name}={text}" for name, text in change.columns.items())
    said = change.condition or ", ".join(filter(None, (str(change.join or ""), columns)))
    functions = ", ".join(f"{name} ({len(code.pickled)} bytes)" for name, code in change.functions.items())
    return f"{said} with {functions}" if functions else said


def plain(view: View) -> dict[str, Any]:
    """Returns a modification for JSON, without its code."""
    record, change = view.record, view.record.change
    return {
        "number": record.number,
        "state": view.state,
        "first_batch": view.first_batch,
        "last_batch": view.last_batch,
        "kind": change.kind,
        "target": change.target,
        "removes": change.removes,
        "condition": change.condition,
        "columns": change.columns,
        "join": change.join and change.join.to_fields(),
        "code_bytes": len(change.code.pickled),
        "functions": {name: {"code_bytes": len(code.pickled)} for name, code in change.functions.items()},
        "jar": change.jar and change.jar.to_fields(),
        "dry_run": record.dry_run,
        "author": record.author,
        "created_ms": record.created_ms,
        "reason": view.reason,
        "canary": record.canary and asdict(record.canary),
        "figures": [{"batch": batch, **asdict(its)} for batch, its in view.figures.items()],
    }
