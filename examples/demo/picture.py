"""Draws latency over time, like figure 4 of the Rhino paper."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from examples.demo.report import WARM_UP_BATCHES, Kill
from rhino import Handover
from rhino.testing.query_watch import Batch


def draw(path: Path, batches: Sequence[Batch], handover: Handover, kill: Kill) -> None:
    """Writes a PNG: the duration of every batch at its end time, with the handover and the kill marked."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    zero = batches[0].started_ms
    seconds = [(b.ended_ms - zero) / 1000 for b in batches]
    figure, axes = pyplot.subplots(figsize=(10, 4.5), layout="constrained")
    axes.plot(seconds, [b.duration_ms / 1000 for b in batches], marker="o", markersize=3, linewidth=1, color="#31688e")
    axes.axvspan((handover.started_ms - zero) / 1000, (handover.finished_ms - zero) / 1000, color="#35b779", alpha=0.3)
    # The first batches load and compile classes. A scale that includes them would flatten all others.
    top = 1.15 * max(b.duration_ms for b in batches[min(WARM_UP_BATCHES, len(batches) - 1) :]) / 1000
    names = ", ".join(m.virtual_node for m in handover.plan.moves)
    target = handover.plan.moves[0].target
    axes.axvline((handover.marked_ms - zero) / 1000, color="#35b779")
    axes.text((handover.marked_ms - zero) / 1000, top, f" handover of {names} to {target}", color="#1f7a4d", va="top")
    axes.axvline((kill.at_ms - zero) / 1000, color="#d1495b")
    axes.text((kill.at_ms - zero) / 1000, top * 0.92, f" kill -9 of {kill.worker_id}", color="#d1495b", va="top")
    axes.set(xlabel="time (s)", ylabel="batch latency (s)", ylim=(0, top * 1.05))
    axes.set_title("NBQ8 on replicated state" + _cut_off(batches, top * 1.05))
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _cut_off(batches: Sequence[Batch], top_s: float) -> str:
    higher = [f"{b.duration_ms / 1000:.0f} s" for b in batches if b.duration_ms / 1000 > top_s]
    return f" (cut off while warming up: {', '.join(higher)})" if higher else ""
