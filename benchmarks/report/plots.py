"""Plots as SVG texts, which a page can hold."""

from __future__ import annotations

import io
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.report.shapes import Table, Timeline

BLUE, GREEN, RED, GREY = "#31688e", "#35b779", "#d1495b", "#888888"
_COLOURS = {"handover": GREEN, "kill": RED, "restart": GREY}
_SIZES = ("state_bytes", "state_gb", "state_mb", "size_gb", "gb", "state_rows")
_SECONDS = ("recovery_s", "next_batch_s", "total_s", "seconds", "duration_s")
_SUBJECTS = ("subject", "provider", "system", "strategy")


def timeline(line: Timeline) -> str:
    """Batch latency over time; what was done meanwhile is marked."""
    figure, axes = _figure(9, 3.2)
    axes.plot(line.ends_s, line.durations_s, marker="o", markersize=3, linewidth=1, color=BLUE)
    # The first batches load classes: to scale with them, the others would be a flat line.
    top = 1.25 * max(line.durations_s[min(3, len(line.durations_s) - 1) :])
    for turn, mark in enumerate(line.marks):
        colour = _COLOURS.get(mark.label, GREY)
        axes.axvspan(mark.begin_s, max(mark.end_s, mark.begin_s + 0.05), color=colour, alpha=0.3)
        axes.text(mark.begin_s, top * (0.97 - 0.1 * (turn % 3)), f" {mark.label}", color=colour, va="top")
    axes.set(xlabel="time (s)", ylabel="batch latency (s)", ylim=(0, top), title=line.title)
    axes.grid(alpha=0.3)
    return _svg(figure)


def of_table(table: Table) -> str | None:
    """Bars of throughput, or lines of seconds against state size, where a table has such columns."""
    if not table.rows:
        return None
    columns = set(table.columns)
    subject = next((name for name in _SUBJECTS if name in columns), None)
    if subject is None:
        return None
    if "mb_per_s" in columns:
        return _bars(table, subject)
    size = next((name for name in _SIZES if name in columns), None)
    seconds = next((name for name in _SECONDS if name in columns), None)
    return _lines(table, subject, size, seconds) if size and seconds else None


def _bars(table: Table, subject: str) -> str:
    rows = [row for row in table.rows if isinstance(row.get("mb_per_s"), int | float)]
    figure, axes = _figure(9, 0.6 + 0.35 * len(rows))
    labels = [f"{row[subject]}, {row['hops']} hops" if "hops" in row else str(row[subject]) for row in rows]
    axes.barh(labels[::-1], [row["mb_per_s"] for row in rows][::-1], color=BLUE)
    axes.set(xlabel="MB/s", title=table.title)
    axes.grid(alpha=0.3, axis="x")
    return _svg(figure)


def _lines(table: Table, subject: str, size: str, seconds: str) -> str:
    """Medians, with every single measurement as a dot."""
    figure, axes = _figure(7, 3.5)
    for name, rows in _grouped(table.rows, subject).items():
        points = [
            (row[size], row[seconds]) for row in rows if row.get(size) is not None and row.get(seconds) is not None
        ]
        if not points:
            continue
        sizes = sorted({x for x, _ in points})
        medians = [statistics.median(y for x, y in points if x == at) for at in sizes]
        (line,) = axes.plot(sizes, medians, linewidth=1, label=name)
        axes.plot(*zip(*points, strict=True), "o", markersize=4, color=line.get_color())
    axes.set(xlabel=size.replace("_", " "), ylabel=seconds.replace("_", " "), title=table.title, ylim=(0, None))
    axes.legend()
    axes.grid(alpha=0.3)
    return _svg(figure)


def _grouped(rows: Sequence[Mapping[str, Any]], column: str) -> dict[str, list[Mapping[str, Any]]]:
    names = dict.fromkeys(str(row[column]) for row in rows)
    return {name: [row for row in rows if str(row[column]) == name] for name in names}


def _figure(width: float, height: float) -> tuple[Any, Any]:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(width, height), layout="constrained")
    return figure, axes


def _svg(figure: Any) -> str:
    from matplotlib import pyplot

    sink = io.StringIO()
    figure.savefig(sink, format="svg", metadata={"Date": None})
    pyplot.close(figure)
    text = sink.getvalue()
    return text[text.index("<svg") :]
