"""Which benchmarks there are, and the arguments of their quick runs."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from dataclasses import dataclass

import benchmarks


@dataclass(frozen=True, slots=True)
class Run:
    """One quick run: `python -m benchmarks.<benchmark> <arguments> --json FILE`."""

    benchmark: str
    number: int  # of the benchmark's runs, from 1
    arguments: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.benchmark}-{self.number}"


def found() -> tuple[str, ...]:
    """Packages of `benchmarks` that can be run."""
    packages = (module.name for module in pkgutil.iter_modules(benchmarks.__path__) if module.ispkg)
    return tuple(sorted(n for n in packages if importlib.util.find_spec(f"benchmarks.{n}.__main__") and n != "report"))


def quick_runs(benchmark: str) -> tuple[Run, ...]:
    """What the package lists as `QUICK`, one line of arguments per run; nothing when it lists none."""
    package = importlib.import_module(f"benchmarks.{benchmark}")
    listed: tuple[str, ...] = getattr(package, "QUICK", ())
    return tuple(Run(benchmark, number, tuple(line.split())) for number, line in enumerate(listed, start=1))
