"""Describes the machine of a benchmark, for its report."""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

_LIBRARIES = ("grpcio", "protobuf", "uvloop", "rocksdict", "crc32c", "pyspark", "duckdb")


def machine() -> dict[str, Any]:
    """Returns processor, memory, kernel, versions, and the load average before the benchmark."""
    models = [line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.processor(),
        "cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "kernel": platform.release(),
        "python": sys.version.split()[0],
        "libraries": {name: version(name) for name in _LIBRARIES},
        "load_average_before": os.getloadavg(),
    }


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if Path(path).exists() else []
