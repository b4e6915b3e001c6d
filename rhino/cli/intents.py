"""What the command line asks of a handover: words to intents and strategies."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from datetime import datetime

from handover_manager.core.intents import Drain, Intent, Rebalance, ScaleIn, ScaleOut, weight_of
from handover_manager.core.strategy import Strategy, kind_of
from rhino.errors import InvalidRequestError

_ITEM = re.compile(r"(\d+)/(\d+)(?:-(\d+))?")
_GAP = re.compile(r"(\d+(?:\.\d+)?)(s|b)?")


@dataclass(frozen=True, slots=True)
class Wish:
    """The options as given; exactly one of virtual nodes, drain, rebalance, scale out and scale in is meant."""

    job: str = ""
    virtual_nodes: str = ""
    to: str = ""
    drain: str = ""
    rebalance: bool = False
    scale_out: str = ""
    scale_in: str = ""
    by: str = "bytes"

    @property
    def nodes(self) -> list[str]:
        return parse_virtual_nodes(self.virtual_nodes) if self.virtual_nodes else []

    @property
    def intent(self) -> Intent | None:
        """None for named virtual nodes. Raises InvalidRequestError unless one thing is asked for."""
        found: list[Intent | None] = []
        if self.virtual_nodes or self.to:
            if not self.virtual_nodes or not self.to:
                raise InvalidRequestError("--virtual-nodes and --to belong together: which ones, and where they go")
            found.append(None)
        if self.drain:
            found.append(Drain(self.drain))
        if self.rebalance:
            found.append(Rebalance(weight_of(self.by)))
        if self.scale_out:
            found.append(ScaleOut(_workers(self.scale_out), weight_of(self.by)))
        if self.scale_in:
            found.append(ScaleIn(_workers(self.scale_in)))
        if len(found) != 1:
            raise InvalidRequestError(
                "give one of --virtual-nodes with --to, --drain, --rebalance, --scale-out and --scale-in"
            )
        if not self.job and not self.drain:
            raise InvalidRequestError("--job is needed: the query id or its unique name; `rhino status` lists them")
        return found[0]


def _workers(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


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


def strategy_of(kind: str, batch_size: int, gap: str, start_at: str, start_in_s: float, max_transfers: int) -> Strategy:
    """Raises InvalidRequestError with the option and its value."""
    gap_s, gap_batches = _gap(gap)
    return Strategy(kind_of(kind), batch_size, gap_s, gap_batches, _start_ms(start_at, start_in_s), max_transfers)


def _gap(text: str) -> tuple[float, int]:
    if not text:
        return 0.0, 0
    match = _GAP.fullmatch(text)
    if match is None or (match[2] == "b" and "." in match[1]):
        raise InvalidRequestError(f"--gap {text!r}: expected seconds (10, 10s) or logged batches (2b)")
    return (0.0, int(match[1])) if match[2] == "b" else (float(match[1]), 0)


def _start_ms(start_at: str, start_in_s: float) -> int:
    if start_at and start_in_s:
        raise InvalidRequestError("give one of --start-at and --start-in")
    if start_in_s < 0:
        raise InvalidRequestError(f"--start-in {start_in_s:g}: must not be in the past")
    if start_in_s:
        return round((time.time() + start_in_s) * 1000)
    if not start_at:
        return 0
    try:
        moment = datetime.fromisoformat(start_at)
    except ValueError as error:
        raise InvalidRequestError(f"--start-at {start_at!r}: expected ISO 8601, as 2030-01-31T22:00") from error
    if moment.timestamp() < time.time():
        raise InvalidRequestError(f"--start-at {start_at!r}: that is past")
    return round(moment.timestamp() * 1000)
