"""The benchmarks and workloads, and the arguments of their quick runs."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from dataclasses import dataclass
from types import ModuleType

import benchmarks
import workloads

HOMES = (benchmarks, workloads)


@dataclass(frozen=True, slots=True)
class Run:
    """One quick run: `python -m <module of the benchmark> <arguments> --json FILE`."""

    benchmark: str
    number: int  # of the benchmark's runs, from 1
    arguments: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.benchmark}-{self.number}"

    @property
    def module(self) -> str:
        return module_of(self.benchmark)


def found() -> tuple[str, ...]:
    """Names of the runnable packages."""
    return tuple(sorted(_modules()))


def module_of(benchmark: str) -> str:
    """For `python -m`."""
    return _modules()[benchmark]


def quick_runs(benchmark: str) -> tuple[Run, ...]:
    """The runs in the package's `QUICK`, one line of arguments each. Empty if it lists none."""
    package = importlib.import_module(_modules()[benchmark])
    listed: tuple[str, ...] = getattr(package, "QUICK", ())
    return tuple(Run(benchmark, number, tuple(line.split())) for number, line in enumerate(listed, start=1))


def judged(benchmark: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The report columns that a comparison judges: those with lower-is-better figures, and those with higher-is-better
    figures.
    """
    package = importlib.import_module(_modules()[benchmark])
    return getattr(package, "LOWER_IS_BETTER", ()), getattr(package, "HIGHER_IS_BETTER", ())


def _modules() -> dict[str, str]:
    return {name: f"{home.__name__}.{name}" for home in HOMES for name in _runnable(home) if name != "report"}


def _runnable(home: ModuleType) -> list[str]:
    packages = [module.name for module in pkgutil.iter_modules(home.__path__) if module.ispkg]
    return [name for name in packages if importlib.util.find_spec(f"{home.__name__}.{name}.__main__")]
