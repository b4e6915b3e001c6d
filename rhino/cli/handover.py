"""`rhino handover`: plan, start and follow a handover. Data on stdout, progress on stderr."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from typing import Any

from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from rhino.cli import exit_codes
from rhino.errors import InvalidRequestError
from spark_connector.rpc.client import Handover, HandoverClient, Phase, Plan

_ITEM = re.compile(r"(\d+)/(\d+)(?:-(\d+))?")


@dataclasses.dataclass(frozen=True, slots=True)
class HandoverArguments:
    job: str
    virtual_nodes: str
    to: str
    dry_run: bool
    wait: bool
    deadline_s: float
    as_json: bool


def parse_virtual_nodes(text: str) -> list[str]:
    """`"0/1,0/4-6"` -> `["0/1", "0/4", "0/5", "0/6"]`; InvalidRequestError names a malformed item."""
    nodes: list[str] = []
    for item in (part.strip() for part in text.split(",")):
        match = _ITEM.fullmatch(item)
        if match is None:
            raise InvalidRequestError(
                f"virtual node {item!r}: expected <task group>/<partition> or <task group>/<first>-<last>, "
                "separated by commas; `rhino status` lists them"
            )
        first, last = int(match[2]), int(match[3] or match[2])
        if last < first or last - first > 100_000:
            raise InvalidRequestError(f"virtual nodes {item!r}: the range must rise")
        nodes.extend(f"{match[1]}/{partition}" for partition in range(first, last + 1))
    return list(dict.fromkeys(nodes))


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(dataclasses.asdict(value), default=lambda item: item.value))


def _show_plan(plan: Plan) -> None:
    table = Table(title=f"{plan.strategy}, {decimal(plan.bytes_to_move)} to move", title_justify="left")
    for column in ("virtual node", "origin", "target", "kind", "state", "to move"):
        table.add_column(column)
    for move in plan.moves:
        sizes = (decimal(move.state_bytes), decimal(move.bytes_to_move))
        table.add_row(move.virtual_node, move.origin, move.target, move.kind.value, *sizes)
    Console().print(table)


def _follow(client: HandoverClient, started: Handover, deadline_s: float) -> Handover:
    last = started
    for last in client.watch(started.handover_id, timeout_s=deadline_s + 30):
        left = f", waiting for {', '.join(last.waiting_for)}" if last.waiting_for else ""
        print(f"{last.phase.value}{left}", file=sys.stderr, flush=True)
        if last.phase.ended:
            break
    return last


def run_handover(manager: str, arguments: HandoverArguments) -> int:
    """Carries out the command; returns its exit code. RhinoErrors are left to the caller."""
    nodes = parse_virtual_nodes(arguments.virtual_nodes)
    with HandoverClient(manager) as client:
        if arguments.dry_run:
            plan = client.plan(arguments.job, nodes, arguments.to)
            print(json.dumps(_plain(plan), indent=2)) if arguments.as_json else _show_plan(plan)
            return exit_codes.OK
        handover = client.start(arguments.job, nodes, arguments.to, deadline_s=arguments.deadline_s)
        print(f"handover {handover.handover_id} started", file=sys.stderr)
        if arguments.wait:
            handover = _follow(client, handover, arguments.deadline_s)
    if arguments.as_json:
        print(json.dumps(_plain(handover), indent=2))
    else:
        print(f"{handover.handover_id} {handover.phase.value} {handover.reason}".rstrip())
    return exit_codes.FAILED if arguments.wait and handover.phase is not Phase.CONFIRMED else exit_codes.OK
