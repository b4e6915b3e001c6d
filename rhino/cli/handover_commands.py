"""The commands about handovers and the balance of queries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import typer

from rhino.cli.arguments import one_of, seconds
from rhino.cli.option_groups import composed, expanded
from rhino.cli.options import (
    CallOptions,
    DeadlineOption,
    DryRunOption,
    JobOption,
    MatchedStrategyOptions,
    StrategyOptions,
    WaitOption,
)
from rhino.client.virtual_nodes import parse_virtual_nodes
from rhino_model.intents import Drain, Rebalance, Request, ScaleIn, ScaleOut, Weight

plan_app = typer.Typer(
    no_args_is_help=True,
    help="Show what a handover would do: its steps, the bytes to copy, each target with the reason, and the predicted "
    "pause and duration. Changes nothing.",
)
handover_app = typer.Typer(
    no_args_is_help=True,
    help="Move virtual nodes of running queries to other workers. The queries keep running.",
)

NodesArgument = Annotated[
    list[str],
    typer.Argument(metavar="VIRTUAL_NODE", help="Task group / partition, or a range of partitions: 0/2 0/4-6."),
]
ToOption = Annotated[str, typer.Option(metavar="WORKER", help="Worker id of the target.")]
WorkerArgument = Annotated[str, typer.Argument(metavar="WORKER", help="Worker id.")]
WorkersArgument = Annotated[list[str], typer.Argument(metavar="WORKER", help="Worker ids.")]
HandoverArgument = Annotated[str, typer.Argument(metavar="HANDOVER", help="Handover id, from `rhino handover list`.")]
AllJobsOption = Annotated[str, typer.Option(help="Only this query: its id, or its name if unique. Default: all.")]
ByOption = Annotated[
    str,
    typer.Option(
        help="What is spread evenly: bytes or rows of state, time of tasks in recent batches, count of virtual nodes.",
        callback=one_of("--by", (weight.value for weight in Weight)),
    ),
]


def move(virtual_nodes: NodesArgument, to: ToOption, job: JobOption, spread: StrategyOptions) -> Request:
    """Move the given virtual nodes to one worker."""
    nodes = parse_virtual_nodes(virtual_nodes)
    return Request(job, nodes, to, strategy=spread.chosen())


def drain_intent(worker: WorkerArgument, spread: StrategyOptions, job: AllJobsOption = "") -> Request:
    """Plan the moves of all virtual nodes off a worker. `rhino drain` carries them out and moves copies, too."""
    return Request(job, intent=Drain(worker), strategy=spread.chosen())


def rebalance(job: JobOption, spread: MatchedStrategyOptions, by: ByOption = "bytes") -> Request:
    """Spread the virtual nodes of a query evenly over all workers, with few moves. Prefers workers with a replica."""
    return Request(job, intent=Rebalance(Weight(by)), strategy=spread.chosen())


def scale_out(workers: WorkersArgument, job: JobOption, spread: StrategyOptions, by: ByOption = "bytes") -> Request:
    """Move a fair share of the virtual nodes of a query to the given workers."""
    return Request(job, intent=ScaleOut(tuple(workers), Weight(by)), strategy=spread.chosen())


def scale_in(workers: WorkersArgument, job: JobOption, spread: StrategyOptions) -> Request:
    """Move all virtual nodes of a query off the given workers."""
    return Request(job, intent=ScaleIn(tuple(workers)), strategy=spread.chosen())


INTENTS: dict[str, Callable[..., Request]] = {
    "move": move,
    "drain": drain_intent,
    "rebalance": rebalance,
    "scale-out": scale_out,
    "scale-in": scale_in,
}


def show_plan(request: Request, call: CallOptions) -> None:
    from rhino.cli.handover import run_plan

    raise typer.Exit(run_plan(request, call))


def start(request: Request, call: CallOptions, wait: WaitOption = False, deadline_s: DeadlineOption = 300.0) -> None:
    from rhino.cli.handover import run_handover

    raise typer.Exit(run_handover(request, call, deadline_s=deadline_s, wait=wait))


def cancel(handover: HandoverArgument, call: CallOptions) -> None:
    """Cancel the steps of a handover that have not switched yet. Confirmed steps stay."""
    from rhino.cli.handover import run_cancel

    raise typer.Exit(run_cancel(handover, call))


def list_handovers(
    call: CallOptions,
    job: AllJobsOption = "",
    running: Annotated[bool, typer.Option("--running", help="Only those that have not ended.")] = False,
) -> None:
    """List the handovers that the manager remembers, the oldest first: running ones, and the history."""
    from rhino.cli.handover import run_list

    raise typer.Exit(run_list(job, call, running=running))


def show_handover(handover: HandoverArgument, call: CallOptions) -> None:
    """Show the steps and moves of one handover, also of an ended one."""
    from rhino.cli.handover import run_show

    raise typer.Exit(run_show(handover, call))


def watch(
    handover: HandoverArgument,
    call: CallOptions,
    timeout_s: Annotated[
        float, typer.Option(help="Give up after this many seconds.", callback=seconds("--timeout-s", positive=True))
    ] = 3600.0,
) -> None:
    """Follow a handover until its end. Exit code 1 unless it is confirmed."""
    from rhino.cli.handover import run_watch

    raise typer.Exit(run_watch(handover, call, timeout_s=timeout_s))


@dataclass(frozen=True, slots=True)
class DrainOptions:
    """How long a drain may last, and whether the command waits for it."""

    wait: Annotated[bool, typer.Option("--wait", help="Wait until it is safe to remove; exit code 1 if not.")] = False
    timeout_s: Annotated[
        float,
        typer.Option(
            help="With --wait: give up after this many seconds. The drain goes on.", callback=seconds("--timeout-s")
        ),
    ] = 3600.0
    notice_s: Annotated[
        float,
        typer.Option(
            help="The worker leaves in so many seconds, whatever happens. A lack of workers for its copies is then no "
            "refusal, and --wait ends with the notice. 0: the worker waits.",
            callback=seconds("--notice-s"),
        ),
    ] = 0.0


def drain(
    worker: WorkerArgument,
    spread: StrategyOptions,
    call: CallOptions,
    patience: DrainOptions,
    cancel: Annotated[bool, typer.Option("--cancel", help="End the drain: the worker gets state again.")] = False,
    dry_run: DryRunOption = False,
    deadline_s: DeadlineOption = 300.0,
) -> None:
    """Empty a worker: it gets no new copies, and everything moves off it. Says when it is safe to remove.

    Safe to remove means that every virtual node runs elsewhere and every replica group has all its copies on other
    workers. So no state is read remotely when the worker is removed. Virtual nodes with a replica move first, with the
    next batch and without a copy. Repeat the command after a failed handover.
    """
    from rhino.cli.drain import run_cancel, run_drain, run_drain_plan

    strategy = spread.chosen()
    if cancel:
        raise typer.Exit(run_cancel(worker, call))
    if dry_run:
        raise typer.Exit(run_drain_plan(worker, strategy, call))
    raise typer.Exit(
        run_drain(
            worker,
            strategy,
            call,
            deadline_s=deadline_s,
            wait=patience.wait,
            timeout_s=patience.timeout_s,
            notice_s=patience.notice_s,
        )
    )


def explain(
    job: JobOption,
    virtual_node: Annotated[str, typer.Argument(metavar="VIRTUAL_NODE", help="Task group / partition: 0/5.")],
    call: CallOptions,
) -> None:
    """Explain why a virtual node and its replica groups are where they are."""
    from rhino.cli.explain import run_explain

    raise typer.Exit(run_explain(job, virtual_node, call))


def why(
    call: CallOptions,
    job: AllJobsOption = "",
    last: Annotated[int, typer.Option(help="Show so many of the newest decisions.", min=1)] = 10,
) -> None:
    """Tell what adaptation has decided about uneven load: what moved, what would have, and what spoke against it."""
    from rhino.cli.why import run_why

    raise typer.Exit(run_why(job, call, last=last))


def scale(call: CallOptions, job: AllJobsOption = "") -> None:
    """Tell how many workers the queries need to keep their batches within the trigger interval. Changes nothing.

    The number rises at once. It falls when fewer would have sufficed for an hour.
    """
    from rhino.cli.balance import run_scale

    raise typer.Exit(run_scale(job, call))


COMMANDS: dict[str, Callable[..., None]] = {
    "cancel": cancel,
    "list": list_handovers,
    "show": show_handover,
    "watch": watch,
}


def register(app: typer.Typer, panel: str) -> None:
    """Adds the commands of this module to `app`, below one heading of its help."""
    for name, intent in INTENTS.items():
        plan_app.command(name)(composed(intent, show_plan))
        if name != "drain":  # `rhino drain` does it
            handover_app.command(name)(composed(intent, start))
    for name, command in COMMANDS.items():
        handover_app.command(name)(expanded(command))
    app.command("explain", rich_help_panel=panel)(expanded(explain))
    app.command("why", rich_help_panel=panel)(expanded(why))
    app.command("scale", rich_help_panel=panel)(expanded(scale))
    app.add_typer(plan_app, name="plan", rich_help_panel=panel)
    app.add_typer(handover_app, name="handover", rich_help_panel=panel)
    app.command("drain", rich_help_panel=panel)(expanded(drain))
