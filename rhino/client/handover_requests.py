"""Requests of handovers as protobuf messages."""

from __future__ import annotations

from collections.abc import Sequence

from handover_manager.plan.intents import Drain, Intent, Rebalance, ScaleIn, ScaleOut
from handover_manager.plan.strategy import Strategy
from rhino_core.errors import InvalidRequestError
from rhino_pb import handover_pb2 as pb


def request_to_pb(
    job: str, virtual_nodes: Sequence[str], target: str, intent: Intent | None, strategy: Strategy, deadline_s: float
) -> pb.HandoverRequest:
    """Builds the request. Raises InvalidRequestError if both or neither of `intent` and virtual nodes are given."""
    if (intent is None) == (not virtual_nodes):
        raise InvalidRequestError("a handover needs either virtual nodes and their target, or an intent")
    request = pb.HandoverRequest(
        job=job, virtual_nodes=virtual_nodes, target=target, deadline_s=deadline_s, strategy=strategy_to_pb(strategy)
    )
    match intent:
        case Drain(worker):
            request.drain.worker = worker
        case Rebalance(by):
            request.rebalance.by = by.value
        case ScaleOut(workers, by):
            request.scale_out.CopyFrom(pb.ScaleOutIntent(workers=workers, by=by.value))
        case ScaleIn(workers):
            request.scale_in.workers.extend(workers)
    return request


def strategy_to_pb(strategy: Strategy) -> pb.Strategy:
    return pb.Strategy(
        kind=strategy.kind.value,
        batch_size=strategy.batch_size,
        gap_s=strategy.gap_s,
        gap_batches=strategy.gap_batches,
        start_at_ms=strategy.start_at_ms,
        max_transfers=strategy.max_transfers,
    )
