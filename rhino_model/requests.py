"""Requests of handovers, and their form on the wire."""

from __future__ import annotations

from rhino_core.errors import InvalidRequestError
from rhino_model.intents import Adapt, Drain, Intent, Rebalance, Request, ScaleIn, ScaleOut, check_workers, weight_of
from rhino_model.strategy import Strategy, kind_of
from rhino_pb import handover_pb2 as pb


def request_to_pb(request: Request) -> pb.HandoverRequest:
    """Raises InvalidRequestError for both or neither of intent and virtual nodes, and for adaptation's intent."""
    if (request.intent is None) == (not request.virtual_nodes):
        raise InvalidRequestError("a handover needs either virtual nodes and their target, or an intent")
    message = pb.HandoverRequest(
        job=request.job,
        virtual_nodes=request.virtual_nodes,
        target=request.target,
        deadline_s=request.deadline_s,
        strategy=strategy_to_pb(request.strategy),
    )
    match request.intent:
        case Drain(worker):
            message.drain.worker = worker
        case Rebalance(by):
            message.rebalance.by = by.value
        case ScaleOut(workers, by):
            message.scale_out.CopyFrom(pb.ScaleOutIntent(workers=workers, by=by.value))
        case ScaleIn(workers):
            message.scale_in.workers.extend(workers)
        case Adapt():
            raise InvalidRequestError(f"{request.intent}: only the manager plans it")
    return message


def request_of(message: pb.HandoverRequest) -> Request:
    """Raises InvalidRequestError for values out of range."""
    return Request(
        job=message.job,
        virtual_nodes=tuple(message.virtual_nodes),
        target=message.target,
        deadline_s=message.deadline_s,
        intent=_intent_of(message),
        strategy=strategy_of(message.strategy),
    )


def _intent_of(message: pb.HandoverRequest) -> Intent | None:
    match message.WhichOneof("intent"):
        case "drain":
            return Drain(message.drain.worker)
        case "rebalance":
            return Rebalance(weight_of(message.rebalance.by))
        case "scale_out":
            return ScaleOut(check_workers(tuple(message.scale_out.workers)), weight_of(message.scale_out.by))
        case "scale_in":
            return ScaleIn(check_workers(tuple(message.scale_in.workers)))
        case _:
            return None


def strategy_of(message: pb.Strategy) -> Strategy:
    """Raises InvalidRequestError for values out of range."""
    return Strategy(
        kind=kind_of(message.kind),
        batch_size=message.batch_size or 1,
        gap_s=message.gap_s,
        gap_batches=message.gap_batches,
        start_at_ms=message.start_at_ms,
        max_transfers=message.max_transfers,
    )


def strategy_to_pb(strategy: Strategy) -> pb.Strategy:
    return pb.Strategy(
        kind=strategy.kind.value,
        batch_size=strategy.batch_size,
        gap_s=strategy.gap_s,
        gap_batches=strategy.gap_batches,
        start_at_ms=strategy.start_at_ms,
        max_transfers=strategy.max_transfers,
    )
