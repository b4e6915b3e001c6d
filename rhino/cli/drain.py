"""`rhino drain`: empty a worker and say when it is safe to remove. Data on stdout, progress on stderr."""

from __future__ import annotations

import json
import sys
import time

from handover_manager.core.intents import Drain
from handover_manager.core.strategy import Strategy
from rhino.cli import exit_codes
from rhino.cli.handover import plain, show_plan
from rhino.errors import AlreadyThereError
from spark_connector.rpc.client import DRAIN_POLL_S, HandoverClient
from spark_connector.rpc.handovers import DrainView


def run_drain(
    manager: str,
    worker: str,
    strategy: Strategy,
    *,
    deadline_s: float,
    wait: bool,
    timeout_s: float,
    as_json: bool,
) -> int:
    """Marks the worker, moves everything off it and, with `wait`, stays until it is safe to remove; the exit code.

    RhinoErrors are left to the caller.
    """
    with HandoverClient(manager) as client:
        seen = client.drain(worker, strategy=strategy, deadline_s=deadline_s)
        if wait:
            seen = _follow(client, seen, time.monotonic() + timeout_s)
    _show(seen, as_json=as_json)
    return exit_codes.FAILED if wait and not seen.safe_to_remove else exit_codes.OK


def run_cancel(manager: str, worker: str, *, as_json: bool) -> int:
    """The worker may take virtual nodes and copies again."""
    with HandoverClient(manager) as client:
        seen = client.drain(worker, cancel=True)
    if as_json:
        print(json.dumps(plain(seen), indent=2))
    else:
        print(f"worker {worker} is not being drained any more")
    return exit_codes.OK


def run_drain_plan(manager: str, worker: str, strategy: Strategy, *, as_json: bool) -> int:
    """What a drain would move, and what stands against a removal now; changes nothing."""
    with HandoverClient(manager) as client:
        seen = client.drain_status(worker)
        try:
            plan = client.plan("", intent=Drain(worker), strategy=strategy)
        except AlreadyThereError:
            plan = None  # nothing runs there
    if as_json:
        print(json.dumps({"plan": plain(plan) if plan else None, "drain": plain(seen)}, indent=2))
        return exit_codes.OK
    if plan:
        show_plan(plan)
    _show(seen, as_json=False)
    return exit_codes.OK


def _follow(client: HandoverClient, seen: DrainView, deadline: float) -> DrainView:
    """Until it is safe, virtual nodes stay there that nothing moves any more, or the time is over."""
    told: tuple[str, ...] = ()
    while not seen.safe_to_remove and not seen.staying and time.monotonic() < deadline:
        if seen.blockers != told:
            print("; ".join(seen.blockers), file=sys.stderr, flush=True)
        told = seen.blockers
        time.sleep(DRAIN_POLL_S)
        seen = client.drain_status(seen.worker)
    if seen.staying:
        print("nothing moves what is left there: see `rhino status`, then repeat the command", file=sys.stderr)
    return seen


def _show(seen: DrainView, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(plain(seen), indent=2))
    elif seen.safe_to_remove:
        print(f"worker {seen.worker}: safe to remove")
    else:
        print(f"worker {seen.worker}: not safe to remove")
        for blocker in seen.blockers:
            print(f"  {blocker}")
