"""The commands around handovers: plan, handover, rebalance, drain, explain."""

from __future__ import annotations

from typing import Annotated

import typer

from rhino.cli.options import (
    DEFAULT_MANAGER,
    BatchSizeOption,
    DeadlineOption,
    DryRunOption,
    GapOption,
    JobOption,
    JsonOption,
    ManagerOption,
    StartAtOption,
    StartInOption,
    StrategyOption,
    TransfersOption,
    WaitOption,
)

NodesOption = Annotated[str, typer.Option(help="For example 0/1,0/4 or 0/0-5: task group / partitions.")]
ToOption = Annotated[str, typer.Option(metavar="WORKER", help="Worker id of the target of --virtual-nodes.")]
DrainOption = Annotated[str, typer.Option("--drain", metavar="WORKER", help="Everything off it; see also rhino drain.")]
RebalanceOption = Annotated[bool, typer.Option("--rebalance", help="Evenly over all workers, with few moves.")]
ScaleOutOption = Annotated[str, typer.Option(metavar="WORKERS", help="A fair share onto these, separated by commas.")]
ScaleInOption = Annotated[str, typer.Option(metavar="WORKERS", help="Everything off these.")]
ByOption = Annotated[
    str,
    typer.Option(
        help="What evenly means: bytes or rows of state, time of tasks in recent batches, or count of virtual nodes."
    ),
]


def plan(
    job: JobOption = "",
    virtual_nodes: NodesOption = "",
    to: ToOption = "",
    drain: DrainOption = "",
    rebalance: RebalanceOption = False,
    scale_out: ScaleOutOption = "",
    scale_in: ScaleInOption = "",
    by: ByOption = "bytes",
    strategy: StrategyOption = "all_at_once",
    batch_size: BatchSizeOption = 1,
    gap: GapOption = "",
    start_at: StartAtOption = "",
    start_in: StartInOption = 0.0,
    max_transfers: TransfersOption = 0,
    manager: ManagerOption = DEFAULT_MANAGER,
    as_json: JsonOption = False,
) -> None:
    """Say what a handover would do: steps, bytes, targets and why, predicted pause and time. Changes nothing."""
    from rhino.cli.handover import run_plan
    from rhino.cli.intents import Wish, strategy_of

    wish = Wish(job, virtual_nodes, to, drain, rebalance, scale_out, scale_in, by)
    chosen = strategy_of(strategy, batch_size, gap, start_at, start_in, max_transfers)
    raise typer.Exit(run_plan(manager, wish, chosen, as_json=as_json))


def handover(
    job: JobOption = "",
    virtual_nodes: NodesOption = "",
    to: ToOption = "",
    drain: DrainOption = "",
    rebalance: RebalanceOption = False,
    scale_out: ScaleOutOption = "",
    scale_in: ScaleInOption = "",
    by: ByOption = "bytes",
    strategy: StrategyOption = "all_at_once",
    batch_size: BatchSizeOption = 1,
    gap: GapOption = "",
    start_at: StartAtOption = "",
    start_in: StartInOption = 0.0,
    max_transfers: TransfersOption = 0,
    manager: ManagerOption = DEFAULT_MANAGER,
    dry_run: DryRunOption = False,
    wait: WaitOption = False,
    deadline_s: DeadlineOption = 300.0,
    cancel: Annotated[
        str, typer.Option("--cancel", metavar="HANDOVER", help="Mark no further step of it; confirmed ones stand.")
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """Move virtual nodes of running queries to other workers, without stopping the queries."""
    from rhino.cli.handover import run_cancel, run_handover, run_plan
    from rhino.cli.intents import Wish, strategy_of

    if cancel:
        raise typer.Exit(run_cancel(manager, cancel, as_json=as_json))
    wish = Wish(job, virtual_nodes, to, drain, rebalance, scale_out, scale_in, by)
    chosen = strategy_of(strategy, batch_size, gap, start_at, start_in, max_transfers)
    if dry_run:
        raise typer.Exit(run_plan(manager, wish, chosen, as_json=as_json))
    raise typer.Exit(run_handover(manager, wish, chosen, deadline_s=deadline_s, wait=wait, as_json=as_json))


def rebalance(
    job: JobOption,
    by: ByOption = "bytes",
    strategy: StrategyOption = "matched",
    batch_size: BatchSizeOption = 1,
    gap: GapOption = "",
    start_at: StartAtOption = "",
    start_in: StartInOption = 0.0,
    max_transfers: TransfersOption = 0,
    manager: ManagerOption = DEFAULT_MANAGER,
    dry_run: DryRunOption = False,
    wait: WaitOption = False,
    deadline_s: DeadlineOption = 300.0,
    as_json: JsonOption = False,
) -> None:
    """Spread a job's virtual nodes evenly over the workers, with few moves, to holders of replicas first."""
    from rhino.cli.handover import run_handover, run_plan
    from rhino.cli.intents import Wish, strategy_of

    wish = Wish(job, rebalance=True, by=by)
    chosen = strategy_of(strategy, batch_size, gap, start_at, start_in, max_transfers)
    if dry_run:
        raise typer.Exit(run_plan(manager, wish, chosen, as_json=as_json))
    raise typer.Exit(run_handover(manager, wish, chosen, deadline_s=deadline_s, wait=wait, as_json=as_json))


def drain(
    worker: Annotated[str, typer.Argument(help="Worker id.")],
    strategy: StrategyOption = "all_at_once",
    batch_size: BatchSizeOption = 1,
    gap: GapOption = "",
    start_at: StartAtOption = "",
    start_in: StartInOption = 0.0,
    max_transfers: TransfersOption = 0,
    manager: ManagerOption = DEFAULT_MANAGER,
    cancel: Annotated[bool, typer.Option("--cancel", help="It may take virtual nodes and copies again.")] = False,
    dry_run: DryRunOption = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it is safe to remove; exit 1 if not.")] = False,
    timeout_s: Annotated[float, typer.Option(help="With --wait: give up after this long; the mark stays.")] = 3600.0,
    deadline_s: DeadlineOption = 300.0,
    as_json: JsonOption = False,
) -> None:
    """Empty a worker: no new copies go there, everything moves off it. Says when it is safe to remove.

    Safe to remove means: every virtual node runs elsewhere, and every replica group has all its copies on other
    workers, so that no state is read remotely when the worker goes. Repeat the command after a handover that failed.
    """
    from rhino.cli.drain import run_cancel, run_drain, run_drain_plan
    from rhino.cli.intents import strategy_of

    chosen = strategy_of(strategy, batch_size, gap, start_at, start_in, max_transfers)
    if cancel:
        raise typer.Exit(run_cancel(manager, worker, as_json=as_json))
    if dry_run:
        raise typer.Exit(run_drain_plan(manager, worker, chosen, as_json=as_json))
    code = run_drain(manager, worker, chosen, deadline_s=deadline_s, wait=wait, timeout_s=timeout_s, as_json=as_json)
    raise typer.Exit(code)


def explain(
    job: JobOption,
    virtual_node: Annotated[str, typer.Option(help="Task group / partition, for example 0/5.")],
    manager: ManagerOption = DEFAULT_MANAGER,
    as_json: JsonOption = False,
) -> None:
    """Say why a virtual node and its replica groups are where they are."""
    from rhino.cli.explain import run_explain

    raise typer.Exit(run_explain(manager, job, virtual_node, as_json=as_json))


def register(app: typer.Typer) -> None:
    """Adds the commands of this module."""
    for command in (plan, handover, rebalance, drain, explain):
        app.command()(command)
