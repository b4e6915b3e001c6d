"""Spreads the moves of a plan over steps (Megaphone 3.3, 4.4)."""

from __future__ import annotations

from collections.abc import Sequence

from handover_manager.plan.matching import matchings
from rhino_model.handovers import Move
from rhino_model.strategy import Kind, Strategy


def steps_of(moves: Sequence[Move], strategy: Strategy) -> tuple[tuple[Move, ...], ...]:
    """The moves in steps. Every move is in exactly one step."""
    if strategy.kind is Kind.MATCHED:
        return matched(moves)
    size = {Kind.ALL_AT_ONCE: max(len(moves), 1), Kind.FLUID: 1}.get(strategy.kind, strategy.batch_size)
    return tuple(tuple(moves[i : i + size]) for i in range(0, len(moves), size))


def matched(moves: Sequence[Move]) -> tuple[tuple[Move, ...], ...]:
    """As many steps as the busiest worker has virtual nodes to send or to receive. Fewer are impossible."""
    waiting: dict[tuple[str, str], list[Move]] = {}
    for move in moves:
        waiting.setdefault((move.origin, move.target), []).append(move)
    counts = {pair: len(group) for pair, group in waiting.items()}
    return tuple(tuple(waiting[pair].pop(0) for pair in pairs) for pairs in matchings(counts))
