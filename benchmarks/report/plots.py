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
_TIMES = {"next_batch": "next batch done after (ms)", "total": "whole move (ms)", "recovery_s": "recovery (s)"}
_BARS = {"mb_per_s": "MB/s", "p50_ms": "median of the batches (ms)"}
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
    """Bars of throughput or of batches, or lines of times against state size, where a table has such columns."""
    if not table.rows:
        return None
    columns = set(table.columns)
    subject = next((name for name in _SUBJECTS if name in columns), None)
    if subject is None:
        return None
    if bars := next((name for name in _BARS if name in columns), None):
        return _bars(table, subject, bars)
    size = next((name for name in _SIZES if name in columns), None)
    time = next((name for name in _TIMES if name in columns), None)
    return _lines(table, subject, size, time) if size and time else None


def _bars(table: Table, subject: str, value: str) -> str:
    rows = [row for row in table.rows if isinstance(row.get(value), int | float)]
    figure, axes = _figure(9, 0.6 + 0.35 * len(rows))
    labels = [_label(row, subject) for row in rows]
    axes.barh(labels[::-1], [row[value] for row in rows][::-1], color=BLUE)
    axes.set(xlabel=_BARS[value], title=table.title)
    axes.grid(alpha=0.3, axis="x")
    return _svg(figure)


def _label(row: Mapping[str, Any], subject: str) -> str:
    parts = [str(row[name]) for name in ("setting", "load", subject) if name in row]
    return " ".join(parts) + (f", {row['hops']} hops" if "hops" in row else "")


def _lines(table: Table, subject: str, size: str, time: str) -> str:
    """Medians, with every single measurement as a dot."""
    figure, axes = _figure(7, 3.5)
    for name, rows in _grouped(table.rows, subject).items():
        points = [(row[size], row[time]) for row in rows if row.get(size) is not None and row.get(time) is not None]
        if not points:
            continue
        sizes = sorted({x for x, _ in points})
        medians = [statistics.median(y for x, y in points if x == at) for at in sizes]
        (line,) = axes.plot(sizes, medians, linewidth=1, label=name)
        axes.plot(*zip(*points, strict=True), "o", markersize=4, color=line.get_color())
    axes.set(xlabel=size.replace("_", " "), ylabel=_TIMES[time], title=table.title, ylim=(0, None))
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
