"""One soak: trouble for a while, figures all the time."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.soak.daemons import Daemons
from tests.soak.slopes import SAMPLES_MIN, Growth, growing
from tests.soak.trouble import Trouble

SAMPLES_MAX, SAMPLE_S = 60, 5.0  # a sample takes a second, and more on a busy machine
SHOWN = (
    "manager anonymous MB",
    "a anonymous MB",
    "a threads",
    "a descriptors",
    "a tasks",
    "journal MB",
    "index MB",
    "store MB",
)


@dataclass(frozen=True, slots=True)
class Soaked:
    came: dict[str, int]
    samples: list[dict[str, float]]
    growing: list[Growth]


async def soak(
    folder: Path, seconds: float, *, seed: int = 0, leak: str = "", say: Callable[[str], None] = lambda line: None
) -> Soaked:
    """Raises when a daemon ends by itself. `folder`: empty."""
    samples: list[dict[str, float]] = []
    count = min(SAMPLES_MAX, max(SAMPLES_MIN, int(seconds / SAMPLE_S)))
    async with Daemons(folder, leak) as daemons:
        trouble = Trouble(daemons, seed)
        with contextlib.closing(trouble):
            async with asyncio.TaskGroup() as tasks:
                running = tasks.create_task(_all(trouble))
                begun = time.monotonic()
                for number in range(count):
                    await asyncio.sleep(begun + (number + 1) * seconds / count - time.monotonic())
                    daemons.check()
                    samples.append(await daemons.figures())
                    say(_line(time.monotonic() - begun, samples[-1], trouble))
                running.cancel()
    return Soaked(dict(trouble.came), samples, list(growing(samples)))


async def _all(trouble: Trouble) -> None:
    async with asyncio.TaskGroup() as tasks:
        trouble.begin(tasks)


def _line(seconds: float, sample: dict[str, float], trouble: Trouble) -> str:
    figures = ", ".join(f"{figure} {sample.get(figure, 0):.4g}" for figure in SHOWN)
    came = f"{trouble.came['batches']} batches, {trouble.came['workers replaced']} workers replaced"
    return f"{seconds:6.0f} s: {figures}; {came}"
