"""Parts of the tests of encrypted pushes that other tests use as well."""

from __future__ import annotations

import json
from typing import Any

from tests.worker_runtime.cluster import Process


def log_lines(process: Process) -> list[dict[str, Any]]:
    text = (process.settings.data_dir.parent / "log").read_text()
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]
