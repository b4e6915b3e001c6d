"""Draws the time between two committed batches, with the losses."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from examples.survive.scene import Story


def draw(path: Path, story: Story) -> None:
    """Writes a PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    zero = story.logged[0]
    gaps = [after - before for before, after in pairwise(story.logged)]
    figure, axes = pyplot.subplots(figsize=(10, 4.5), layout="constrained")
    axes.plot([at - zero for at in story.logged[1:]], gaps, marker="o", markersize=2, linewidth=1, color="#31688e")
    top = 1.25 * max(gaps)
    for number, loss in enumerate(story.happened):
        axes.axvline(loss.at - zero, color="#d1495b", linewidth=1)
        axes.text(
            loss.at - zero, top * (0.99 - 0.06 * (number % 3)), f" {loss.name}", color="#d1495b", va="top", fontsize=8
        )
    axes.set(xlabel="time (s)", ylabel="time since the batch before (s)", ylim=(0, top))
    axes.set_title("A query of one batch a second, through the loss of every process")
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
