"""Time until the next batch is done over the size of the state, as Rhino's table 1 and figure 1 show it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.cells import Row

_PHASES = (
    *(("detected", "#d9d9d9"), ("scheduled", "#9ecae1"), ("prepared", "#e6550d"), ("loaded", "#fdae6b")),
    ("next_batch", "#31a354"),
)


def draw(path: Path, rows: Sequence[Row], *, since: str, title: str) -> None:
    """Writes a PNG: one bar per size and subject, cut where a step was done. Rows have milliseconds `since` then."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 1.2 + 0.5 * len(rows)), layout="constrained")
    names = [f"{row['state_bytes'] / 1e9:g} GB, {row['subject']}" for row in rows]
    left = [0.0] * len(rows)
    for phase, colour in (step for step in _PHASES if all(step[0] in row for row in rows)):
        until = [max(row[phase] / 1000, start) for row, start in zip(rows, left, strict=True)]
        widths = [end - start for end, start in zip(until, left, strict=True)]
        axes.barh(names, widths, left=left, color=colour, label=f"until {phase.replace('_', ' ')}")
        left = until
    axes.invert_yaxis()
    axes.set(xlabel=f"seconds after {since} (medians)", title=title)
    axes.legend(loc="lower right")
    axes.grid(axis="x", alpha=0.3)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
