"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

DEFAULT_MANAGER = "127.0.0.1:7461"

ManagerOption = Annotated[
    str, typer.Option("--manager", envvar="RHINO_MANAGER", metavar="HOST:PORT", help="Address of the manager.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
JobOption = Annotated[str, typer.Option(help="Query id or its unique query name.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Check, plan and predict only.")]
WaitOption = Annotated[bool, typer.Option("--wait", help="Wait for the end; exit 1 unless confirmed.")]
DeadlineOption = Annotated[float, typer.Option(help="A step not confirmed by then is rolled back, and ends the rest.")]

StrategyOption = Annotated[
    str,
    typer.Option(
        help="all_at_once: one step; batched: --batch-size virtual nodes a step; fluid: one a step; matched: no worker "
        "sends or receives twice in a step."
    ),
]
BatchSizeOption = Annotated[int, typer.Option(help="Virtual nodes a step, for --strategy batched.")]
GapOption = Annotated[
    str, typer.Option(help="Least time from a step's confirmation to the next marker: 10s, or 2b for logged batches.")
]
StartAtOption = Annotated[str, typer.Option(help="Begin then: ISO 8601, local time unless it says otherwise.")]
StartInOption = Annotated[float, typer.Option(help="Begin in so many seconds.")]
TransfersOption = Annotated[int, typer.Option(help="Virtual nodes that are copied at the same time; 0: no limit.")]
