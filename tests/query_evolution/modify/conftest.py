"""A query checkpoint, as Spark writes one."""

import json
import os
import time
from pathlib import Path

import pytest

from spark_connector.conf import PROVIDER_CLASSES


def offsets(provider: str) -> str:
    fields = {"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": {PROVIDER_KEY: provider}}
    return f"v1\n{json.dumps(fields)}\n{{}}"


PROVIDER_KEY = "spark.sql.streaming.stateStore.providerClass"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Of a stopped query whose newest batch is 4."""
    (tmp_path / "metadata").write_text('{"id": "5b1f0c3e-9a3f-4d5a-8a35-1d5a3a1f0c3e"}')
    for log in ("offsets", "commits"):
        (tmp_path / log).mkdir()
        path = tmp_path / log / "4"
        path.write_text(offsets(PROVIDER_CLASSES["provider"]))
        long_ago = time.time() - 3600
        os.utime(path, (long_ago, long_ago))
    return tmp_path
