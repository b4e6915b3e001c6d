"""`rhino status`: asks the manager once or again and again. Exit codes tell scripts how the cluster is."""

from __future__ import annotations

import time
from dataclasses import dataclass
from time import sleep
from typing import Annotated, NoReturn

import typer

from rhino.cli import exit_codes
from rhino.cli.arguments import one_of, seconds
from rhino.cli.options import CallOptions
from rhino.cli.output import console, say, say_json, say_json_line
from rhino.cli.status import SECTIONS, render
from rhino.client.overview import Overview, fetch_overview
from rhino.client.selection import select
from rhino.client.verdict import Level, judge
from rhino_core.errors import InvalidRequestError, UnavailableError
from rhino_model.codec import plain

CODES = {Level.OK: exit_codes.OK, Level.DEGRADED: exit_codes.DEGRADED, Level.CRITICAL: exit_codes.CRITICAL}


def _sections(names: list[str] | None) -> list[str]:
    """Checks the names of sections. Raises InvalidSettingError."""
    return [one_of("--section", SECTIONS)(name) for name in names or ()]


@dataclass(frozen=True, slots=True)
class StatusOptions:
    """The options of `rhino status` that choose what it shows, and how often."""

    job: Annotated[str, typer.Option(help="Only this query: its id, or its name if it is unique.")] = ""
    worker: Annotated[str, typer.Option(help="Only this worker, and what is on it.")] = ""
    section: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SECTION",
            help=f"Only this section: {', '.join(SECTIONS)}. Repeat the option for more sections.",
            callback=_sections,
        ),
    ] = None
    check: Annotated[
        bool, typer.Option("--check", help="Exit code 6 if the verdict is DEGRADED, 7 if it is CRITICAL.")
    ] = False
    watch: Annotated[bool, typer.Option("--watch", help="Show it again and again, until Ctrl-C.")] = False
    interval_s: Annotated[
        float, typer.Option(help="With --watch: seconds between.", callback=seconds("--interval-s", positive=True))
    ] = 2.0
    timeout_s: Annotated[
        float, typer.Option(help="Give up after this many seconds.", callback=seconds("--timeout-s", positive=True))
    ] = 5.0


def run_status(call: CallOptions, asked: StatusOptions) -> int:
    if asked.watch and asked.check:
        raise InvalidRequestError("--watch and --check: give only one of them")
    if asked.watch:
        _watch(call, asked)
    overview = _fetch(call, asked)
    if call.as_json:
        say_json(_plain(overview))
    else:
        render(overview, console(), asked.section or ())
    return CODES[judge(overview).level] if asked.check else exit_codes.OK


def _fetch(call: CallOptions, asked: StatusOptions) -> Overview:
    overview = fetch_overview(call.manager, timeout_s=asked.timeout_s)
    return select(overview, job=asked.job, worker=asked.worker)


def _watch(call: CallOptions, asked: StatusOptions) -> NoReturn:
    """Shows the status until Ctrl-C. A silent manager is reported, and asked again."""
    out = console()
    while True:
        try:
            overview = _fetch(call, asked)
        except UnavailableError as error:
            say(f"{_now()} error: {error}", error=True)
        else:
            if call.as_json:
                say_json_line(_plain(overview))
            else:
                out.clear()
                say(_now())
                render(overview, out, asked.section or ())
                say("")
        sleep(asked.interval_s)


def _now() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S")


def _plain(overview: Overview) -> dict[str, object]:
    return {"verdict": plain(judge(overview)), **plain(overview)}
