"""Options and option groups of several commands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from rhino.cli.arguments import manager_address, one_of, seconds
from rhino.cli.requests import parse_gap, parse_start
from rhino_core.settings import DEFAULT_MANAGER, MANAGER_PORT
from rhino_model.strategy import Kind, Strategy

INT32_MAX = 2**31 - 1  # of protobuf

ManagerOption = Annotated[
    str,
    typer.Option(
        "--manager",
        envvar="RHINO_MANAGER",
        metavar="HOST[:PORT],...",
        help=f"Address of the manager, or of all managers, with commas. Without a port: {MANAGER_PORT}.",
        callback=manager_address,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]
JobOption = Annotated[str, typer.Option(help="Query id, or the query name if it is unique.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show what would be done; change nothing.")]
YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask. Required without a terminal.")]
WaitOption = Annotated[bool, typer.Option("--wait", help="Wait for the end; exit code 1 unless it is confirmed.")]
DeadlineOption = Annotated[
    float,
    typer.Option(
        help="A step that is not confirmed after this many seconds is rolled back, and the later steps are cancelled.",
        callback=seconds("--deadline-s", positive=True),
    ),
]

StrategyOption = Annotated[
    str,
    typer.Option(
        help="all_at_once: all moves in one step; batched: --batch-size moves in each step; fluid: one move in each"
        " step; matched: in each step a worker sends one virtual node and receives one, at most.",
        callback=one_of("--strategy", (kind.value for kind in Kind)),
    ),
]


@dataclass(frozen=True, slots=True)
class CallOptions:
    """The address of the manager, and the form of the answer."""

    manager: ManagerOption = DEFAULT_MANAGER
    as_json: JsonOption = False


@dataclass(frozen=True, slots=True)
class StrategyOptions:
    """How the moves of a handover are spread over steps and time."""

    strategy: StrategyOption = "all_at_once"
    batch_size: Annotated[int, typer.Option(max=INT32_MAX, help="Moves in a step, for --strategy batched.")] = 1
    gap: Annotated[
        str,
        typer.Option(
            help="Minimum distance between the end of a step and the switch of the next: 10s, or 2b (batches)."
        ),
    ] = ""
    start_at: Annotated[str, typer.Option(help="Start at this time (ISO 8601; local time unless it has a zone).")] = ""
    start_in_s: Annotated[
        float, typer.Option(help="Start after this many seconds.", callback=seconds("--start-in-s"))
    ] = 0.0
    max_transfers: Annotated[
        int, typer.Option(max=INT32_MAX, help="Virtual nodes that are copied at the same time; 0: no limit.")
    ] = 0

    def chosen(self) -> Strategy:
        """Raises InvalidRequestError with the option and its value."""
        gap_s, gap_batches = parse_gap(self.gap)
        start_ms = parse_start(self.start_at, self.start_in_s)
        return Strategy(Kind(self.strategy), self.batch_size, gap_s, gap_batches, start_ms, self.max_transfers)


@dataclass(frozen=True, slots=True)
class MatchedStrategyOptions(StrategyOptions):
    strategy: StrategyOption = "matched"
