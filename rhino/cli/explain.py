"""`rhino explain`: why a virtual node and its replica groups are where they are."""

from __future__ import annotations

import json

from rhino.cli import exit_codes
from rhino.cli.handover import plain
from spark_connector.rpc.client import HandoverClient


def run_explain(manager: str, job: str, virtual_node: str, *, as_json: bool) -> int:
    """Prints the reasons; returns the exit code. RhinoErrors are left to the caller."""
    with HandoverClient(manager) as client:
        found = client.explain(job, virtual_node)
    if as_json:
        print(json.dumps(plain(found), indent=2))
        return exit_codes.OK
    print(f"virtual node {found.virtual_node} of job {found.job}")
    for reason in found.reasons:
        print(f"  {reason}")
    return exit_codes.OK
