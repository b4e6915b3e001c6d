"""Describes machine, date and commit of a benchmark, for its report."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[1]
_LIBRARIES = ("grpcio", "protobuf", "uvloop", "rocksdict", "crc32c", "pyspark", "duckdb")


def machine() -> dict[str, Any]:
    """Returns processor, memory, kernel, versions, date, commit, and the load average before the benchmark."""
    models = [line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "cpu": models[0] if models else platform.processor(),
        "cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "kernel": platform.release(),
        "python": sys.version.split()[0],
        "libraries": {name: version(name) for name in _LIBRARIES},
        "load_average_before": os.getloadavg(),
    }


def _commit() -> str:
    """`-dirty` is appended if files differ from it; "not recorded" outside a repository."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--exclude=*", "--abbrev=12", "--dirty"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "not recorded"


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if Path(path).exists() else []
