"""`rhino explain`: explains the location of a virtual node and its replica groups."""

from __future__ import annotations

from rhino.cli import exit_codes
from rhino.cli.options import CallOptions
from rhino.cli.output import say, say_json
from rhino.client.handover_client import HandoverClient


def run_explain(job: str, virtual_node: str, call: CallOptions) -> int:
    """Prints the reasons and returns the exit code."""
    with HandoverClient(call.manager) as client:
        found = client.explain(job, virtual_node)
    if call.as_json:
        say_json(found)
        return exit_codes.OK
    say(f"virtual node {found.virtual_node} of job {found.job}")
    for reason in found.reasons:
        say(f"  {reason}")
    return exit_codes.OK
