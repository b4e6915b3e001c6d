"""`rhino drain`: empties a worker and reports when it can be removed. Data on stdout, progress on stderr."""

from __future__ import annotations

import time

from rhino.cli import exit_codes
from rhino.cli.handover import show_plan
from rhino.cli.options import CallOptions
from rhino.cli.output import say, say_json
from rhino.client.handover_client import DRAIN_POLL_S, HandoverClient
from rhino.client.overview import query_names
from rhino_core.errors import AlreadyThereError
from rhino_model.handovers import DrainView
from rhino_model.intents import Drain
from rhino_model.strategy import Strategy


def run_drain(
    worker: str,
    strategy: Strategy,
    call: CallOptions,
    *,
    deadline_s: float,
    wait: bool,
    timeout_s: float,
    notice_s: float = 0.0,
) -> int:
    """Marks the worker and moves all virtual nodes and copies off it. With `wait`, blocks until it is safe to remove.

    With a notice it blocks until its end at most. Returns the exit code.
    """
    deadline = time.monotonic() + min(timeout_s, notice_s or timeout_s)
    with HandoverClient(call.manager) as client:
        status = client.drain(worker, strategy=strategy, deadline_s=deadline_s, notice_s=notice_s)
        if wait:
            status = _follow(client, status, deadline)
    _show(status, as_json=call.as_json)
    return exit_codes.FAILED if wait and not status.safe_to_remove else exit_codes.OK


def run_cancel(worker: str, call: CallOptions) -> int:
    """Removes the mark, so the worker accepts virtual nodes and copies again. Returns the exit code."""
    with HandoverClient(call.manager) as client:
        status = client.drain(worker, cancel=True)
    if call.as_json:
        say_json(status)
    else:
        say(f"worker {worker} is no longer draining")
    return exit_codes.OK


def run_drain_plan(worker: str, strategy: Strategy, call: CallOptions) -> int:
    """Shows the moves of a drain and the present obstacles to a removal. Changes nothing. Returns the exit code."""
    with HandoverClient(call.manager) as client:
        status = client.drain_status(worker)
        try:
            plan = client.plan("", intent=Drain(worker), strategy=strategy)
        except AlreadyThereError:
            plan = None  # no virtual node is there
        names = query_names(client.jobs())
    if call.as_json:
        say_json({"plan": plan, "drain": status})
        return exit_codes.OK
    if plan:
        show_plan(plan, names)
    _show(status, as_json=False)
    return exit_codes.OK


def _follow(client: HandoverClient, status: DrainView, deadline: float) -> DrainView:
    """Polls until the worker is safe to remove, the deadline has passed, or no handover moves the rest."""
    printed: tuple[str, ...] = ()
    while not status.safe_to_remove and not status.staying and time.monotonic() < deadline:
        if status.blockers != printed:
            say("; ".join(status.blockers), error=True)
        printed = status.blockers
        time.sleep(DRAIN_POLL_S)
        status = client.drain_status(status.worker)
    if status.staying:
        say(
            f"worker {status.worker}: no handover moves its last {status.staying} virtual nodes; see `rhino status`, "
            "then repeat `rhino drain`",
            error=True,
        )
    return status


def _show(status: DrainView, *, as_json: bool) -> None:
    if as_json:
        say_json(status)
    else:
        say(status.headline)
        for blocker in status.blockers:
            say(f"  {blocker}")
