"""`rhino local`: the data directory of local sessions (notebooks)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.filesize import decimal

from rhino.cli.columns import Row, say_to, show_columns
from rhino.cli.options import DryRunOption, JsonOption, YesOption
from rhino.cli.output import confirm, console, local_time, say, say_json
from rhino.client import connection
from rhino.client.overview import fetch_overview, query_names
from rhino_core.errors import PreconditionError, UnavailableError
from rhino_core.security.choice import client_transport
from rhino_core.text import count
from spark_connector.local.content import Content, StoredQuery, delete, look

app = typer.Typer(no_args_is_help=True, help="Look at, and delete, the state that notebooks keep on this machine.")
DataDirOption = Annotated[
    Path | None,
    typer.Option(
        help="The data_dir of local_session(). Default: $XDG_DATA_HOME/rhino-state/local, in ~/.local/share if unset."
    ),
]


@app.command()
def show(data_dir: DataDirOption = None, as_json: JsonOption = False) -> None:
    """Show the queries whose state is kept, and the processes that use it."""
    content = look(data_dir)
    if as_json:
        say_json(content)
        return
    _describe(content, _names(content))
    users = ", ".join(map(str, content.users)) or "none"
    say(f"processes that use it: {users}; manager: {content.manager or 'not running'}")
    if content.manager:
        say(f"rhino status --manager {content.manager} --cluster-key {Path(content.data_dir) / 'cluster.key'}")


@app.command()
def clean(
    data_dir: DataDirOption = None,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Delete the state of all queries, after a list of them and a question. Their checkpoints cannot go on then."""
    content = look(data_dir)
    if content.users:
        pids = ", ".join(map(str, content.users))
        raise PreconditionError(f"{content.data_dir}: in use by process {pids}; end it first (a notebook: its kernel)")
    if not as_json:
        _describe(content, _names(content))
    if not dry_run:
        confirm(
            f"This deletes the state of {count(len(content.queries), 'query', 'queries')} in {content.data_dir}",
            yes=yes,
        )
        delete(data_dir)
    if as_json:
        say_json({"dry_run": dry_run, "deleted": content})
    else:
        say("nothing is deleted" if dry_run else "deleted; start these queries with a new checkpoint")


def _names(content: Content) -> dict[str, str]:
    """The names of the queries by id, from the manager. Empty while none runs."""
    if not content.manager:
        return {}
    connection.use(client_transport("", str(Path(content.data_dir) / "cluster.key")))
    try:
        return query_names(fetch_overview(content.manager).jobs)
    except UnavailableError:  # the manager ends with the last process that uses it
        return {}


def _describe(content: Content, names: dict[str, str]) -> None:
    out = console()
    say_to(out, content.data_dir)
    if content.queries:
        show_columns(
            out, ("query", "name", "files", "bytes", "last change"), [_row(one, names) for one in content.queries]
        )
    else:
        say_to(out, "no query has state here")
    say_to(out, f"journal, index, logs and temporary files: {decimal(content.other_bytes)}")


def _row(query: StoredQuery, names: dict[str, str]) -> Row:
    changed = local_time(query.changed_s * 1000)
    return query.job, names.get(query.job, ""), str(query.files), decimal(query.bytes), changed
