"""Draws the time between two committed batches, with the losses."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path


def draw(path: Path, commits: Sequence[float], losses: Sequence[tuple[float, str]]) -> None:
    """Writes a PNG. `commits`: the time of each (seconds). `losses`: time and name of each."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    zero = commits[0]
    gaps = [after - before for before, after in pairwise(commits)]
    figure, axes = pyplot.subplots(figsize=(10, 4.5), layout="constrained")
    axes.plot([at - zero for at in commits[1:]], gaps, marker="o", markersize=2, linewidth=1, color="#31688e")
    top = 1.25 * max(gaps)
    for number, (at, name) in enumerate(losses):
        axes.axvline(at - zero, color="#d1495b", linewidth=1)
        axes.text(at - zero, top * (0.99 - 0.06 * (number % 3)), f" {name}", color="#d1495b", va="top", fontsize=8)
    axes.set(xlabel="time (s)", ylabel="time since the batch before (s)", ylim=(0, top))
    axes.set_title("A query of one batch a second, through the loss of every process")
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
