"""`Modifications`: replaces code and stateless operators of a running query."""

from __future__ import annotations

import getpass
import re
import socket
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from query_evolution.modify.comparison import Comparison
from query_evolution.modify.folder import ModificationFolder
from query_evolution.modify.functions import Code
from query_evolution.modify.jars import JarFunction
from query_evolution.modify.join import How, Join, StaticTable
from query_evolution.modify.ledger import State, View
from query_evolution.modify.record import Canary, Change, Kind, Sample
from query_evolution.replace.folder import RestartFolder
from rhino_core.errors import ConflictError, InvalidRequestError, PreconditionError, UnavailableError, UnknownError
from spark_connector.conf import PROVIDER_CLASSES, SPARK_PROVIDER
from spark_connector.query_checkpoint import QueryCheckpoint

POLL_S = 0.05
IDLE_S = 30.0
SAMPLE_ROWS = 1000
_RHINO = re.compile(r"rhino://(?P<scheme>[^@/]+)(@[^/]*)?(?P<path>/.*)", re.DOTALL)
_URI = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):(//)?(?P<path>/.*)", re.DOTALL)


class Modifications:
    """The modifications of one query, given by its checkpointLocation. No manager and no Spark session is needed.

    A method writes a record. The driver of the running query checks it, and its next batch brings it in force. The
    query is never harmed: an impossible change is refused, with the reason. Raises UnknownError for any folder but a
    query checkpoint, InvalidRequestError for a location not visible as files on this machine, and PreconditionError for
    a query without Rhino.
    """

    def __init__(self, checkpoint: str | Path) -> None:
        self._checkpoint = QueryCheckpoint(folder_of(str(checkpoint)))
        if not str(checkpoint).startswith("rhino:") and self._checkpoint.batches("offsets"):
            _check_rhinos(self._checkpoint)
        self._folder = ModificationFolder(self._checkpoint.folder)
        self._author = f"{getpass.getuser()}@{socket.gethostname()}"

    def replace_function(
        self,
        name: str,
        function: Any,
        *,
        canary: Canary | None = None,
        dry_run: bool = False,
        sample: int = SAMPLE_ROWS,
    ) -> View:
        """Replaces the function `name` of the query by one of the same kind and return type.

        `function`: made with `udf`, `pandas_udf` or `arrow_udf`; with `state_function` for the function of
        `applyInPandasWithState` (its state stays); with `jar_function` for a function of Scala or Java. `sample`: a dry
        run of a UDF calls it and the present one with this many rows at most of the newest batch, see
        `take_comparison`; 0: it calls neither. Raises InvalidRequestError as `code_of`, and ConflictError while another
        change of it is on its way.
        """
        if isinstance(function, JarFunction):
            change = Change(Kind.FUNCTION, name, jar=function.code)
            rows = Sample(sample, b"") if dry_run and sample else None
            return self._add(change, dry_run, canary, rows, jar=function)
        from query_evolution.modify.code import code_of, comparer_of

        code = code_of(function)
        comparer = comparer_of(code) if dry_run and sample else None
        wanted = None if comparer is None else Sample(sample, comparer)
        return self._add(Change(Kind.FUNCTION, name, code=code), dry_run, canary, wanted)

    def set_filter(
        self,
        point: str,
        condition: str,
        *,
        functions: Mapping[str, Any] | None = None,
        canary: Canary | None = None,
        dry_run: bool = False,
    ) -> View:
        """Lets only rows that meet a SQL condition pass the point, named in the query by `.observe(point, ...)`.

        `functions`: as for `set_columns`. Replaces a former filter there. Raises ConflictError while another one is on
        its way.
        """
        change = Change(Kind.FILTER, point, condition=_text("a condition", condition), functions=_codes(functions))
        return self._add(change, dry_run, canary)

    def set_columns(
        self,
        point: str,
        columns: Mapping[str, str],
        *,
        functions: Mapping[str, Any] | None = None,
        canary: Canary | None = None,
        dry_run: bool = False,
    ) -> View:
        """Gives columns new values at a point, as SQL expressions by their names. Their types stay.

        `functions`: Python functions called in the expressions, by their names there. Each is made with `udf`,
        `pandas_udf` or `arrow_udf`, and need not be in the query. Replaces all former columns there. Raises
        InvalidRequestError as `codes_of`, and ConflictError while another change of them is on its way.
        """
        if not columns:
            raise InvalidRequestError("no columns are given: `remove` takes them back")
        checked = {name: _text(f"column {name}", text) for name, text in columns.items()}
        change = Change(Kind.COLUMNS, point, columns=checked, functions=_codes(functions))
        return self._add(change, dry_run, canary)

    def set_join(
        self,
        point: str,
        table: StaticTable | str,
        on: Mapping[str, str],
        *,
        how: How | str = How.LEFT,
        columns: Mapping[str, str] | None = None,
        functions: Mapping[str, Any] | None = None,
        canary: Canary | None = None,
        dry_run: bool = False,
    ) -> View:
        """Joins the rows of a point with a table of 64 MiB at most. The driver reads it once and keeps it.

        `table`: a `StaticTable`, or the path of one in Parquet. `on`: columns of the table by those of the point.
        `columns`, `functions`: as for `set_columns`, for an inner or left join; `table.NAME` is a column of the table.
        A filter at the point comes before the join, and `set_columns` after it. Replaces a former join there. Raises
        InvalidRequestError, and ConflictError while another one is on its way.
        """
        checked = {name: _text(f"column {name}", text) for name, text in (columns or {}).items()}
        its = StaticTable(table) if isinstance(table, str) else table
        join = Join.made(its, on, how, checked)
        change = Change(Kind.JOIN, point, columns=checked, join=join, functions=_codes(functions))
        return self._add(change, dry_run, canary)

    def remove(self, kind: Kind | str, target: str, *, dry_run: bool = False) -> View:
        """Takes a change out again: the query goes on as its application has it. Raises ConflictError as the others."""
        if kind not in tuple(Kind):
            raise InvalidRequestError(f"kind {kind!r}: must be one of {', '.join(Kind)}")
        return self._add(Change(Kind(kind), target, removes=True), dry_run)

    def withdraw(self, number: int) -> View:
        """Takes back a modification not yet checked by a driver, or, of a stopped query, one in force.

        The latter is for a query with a failure since: `remove` needs a batch. All modifications in force since the
        same batch are withdrawn. Raises UnknownError, ConflictError, and PreconditionError while a driver may be
        running the query.
        """
        view = self.get(number)
        if view.state in (State.IN_FORCE, State.CANARY) and view.first_batch is not None:
            self._checkpoint.check_idle(IDLE_S)  # a driver whose file system has no locks
            with RestartFolder(self._checkpoint.folder).right():
                start = max(view.first_batch, max(self._checkpoint.batches("commits"), default=-1) + 1)
                self._folder.give_up(view.first_batch, self._author, start=start)
        else:
            self._folder.withdraw(number, self._author)
        return self.get(number)

    def list(self) -> tuple[View, ...]:
        """Returns all modifications of the query, oldest first."""
        return self._folder.read().views()

    def get(self, number: int) -> View:
        """Raises UnknownError."""
        ledger = self._folder.read()
        if number not in ledger.records:
            raise UnknownError(f"{self._checkpoint.folder}: there is no modification {number}")
        return ledger.view(number)

    def take_comparison(self, number: int) -> Comparison | None:
        """Returns the comparison of both versions from the dry run of a function. Only once: it is removed.

        None: there is none, or somebody has taken it. It may have values of rows.
        """
        return self._folder.take_comparison(number)

    def wait(self, number: int, *, timeout_s: float = 60.0) -> View:
        """Blocks until the modification is in force, its canary included, or will never be.

        Raises UnavailableError after `timeout_s`.
        """
        deadline = time.monotonic() + timeout_s
        while not (view := self.get(number)).state.ended:
            if time.monotonic() >= deadline:
                raise UnavailableError(
                    f"modification {number} is still {view.state} after {timeout_s:g} s: {_waits_for(view)}"
                )
            time.sleep(POLL_S)
        return view

    def _add(
        self,
        change: Change,
        dry_run: bool,
        canary: Canary | None = None,
        sample: Sample | None = None,
        jar: JarFunction | None = None,
    ) -> View:
        if not change.target:
            raise InvalidRequestError("the name of the function or point is empty")
        other = self._folder.read().waiting(change)
        if other is not None and not dry_run:
            raise ConflictError(
                f"modification {other} of {change.kind} {change.target} is on its way: wait for it, or withdraw it "
                "(remove it, if its canary runs)"
            )
        placed = _placed(canary, change)
        if jar is not None:
            self._folder.keep_jar(jar)
        added = self._folder.add(change, self._author, dry_run=dry_run, canary=placed, sample=sample)
        return self.get(added.number)


def _check_rhinos(checkpoint: QueryCheckpoint) -> None:
    """Raises PreconditionError for a query without Rhino.

    A query with its checkpoint on rhino:// has Spark's provider, too. But its new state is not in the folder.
    """
    provider, commits = checkpoint.provider(), checkpoint.batches("commits")
    in_folder = bool(commits) and checkpoint.has_state_of(commits[-1])
    if provider not in PROVIDER_CLASSES.values() or (provider == SPARK_PROVIDER and in_folder):
        raise PreconditionError(
            f"{checkpoint.folder}: its query runs with the state store provider {provider}, without Rhino; "
            "`rhino adopt` takes it over. If it is adopted and has not run since, give its location on rhino://"
        )


def _placed(canary: Canary | None, change: Change) -> Canary | None:
    """Rows are counted at the changed point, if no other is given. Raises InvalidRequestError."""
    if canary is None or canary.point or not canary.counts_rows:
        return canary
    if change.kind is Kind.FUNCTION:
        raise InvalidRequestError("a limit of rows for a function needs the point where they are counted")
    return replace(canary, point=change.target)


def _waits_for(view: View) -> str:
    if view.state is State.PENDING:
        asked = "Is the query running, and has it run a batch since its start?"
        if view.record.sample is not None:
            return f"a dry run that compares waits for the end of the batch that runs. {asked}"
        return f"no driver with Rhino's plugin has looked at it. {asked}"
    if view.state is State.CANARY and view.record.canary is not None:
        return f"{len(view.figures)} of the {view.record.canary.batches} batches of its canary are judged"
    return "the query has begun no batch since then. Does it get data?"


def _codes(functions: Mapping[str, Any] | None) -> dict[str, Code]:
    """SQL alone needs no PySpark."""
    if not functions:
        return {}
    from query_evolution.modify.code import codes_of

    return codes_of(functions)


def _text(what: str, text: str) -> str:
    if not text.strip():
        raise InvalidRequestError(f"{what} is empty")
    return text


def folder_of(location: str) -> Path:
    """Returns the folder of a checkpointLocation.

    Raises InvalidRequestError for a location not visible as files on this machine.
    """
    found = _RHINO.fullmatch(location) or _URI.fullmatch(location)
    if found is None:
        return Path(location)
    if found["scheme"].lower() != "file":
        raise InvalidRequestError(
            f"{location}: must be a folder on this machine, file: or rhino://file/...; mount the file system"
        )
    return Path(found["path"])
