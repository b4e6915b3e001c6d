"""Names of query checkpoints on `rhino://`."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from rhino.errors import InvalidSettingError


def rhino_checkpoint(location: str | Path) -> str:
    """The `checkpointLocation` of a query whose state Rhino keeps, and whose other files lie at `location` itself.

    For Spark's own RocksDB provider (`rhino_conf(through="checkpoint")`), which transformWithState insists on.
    "/ckpt/q" becomes "rhino://file/ckpt/q", "hdfs://namenode:8020/q" "rhino://hdfs@namenode:8020/q".
    Raises InvalidSettingError.
    """
    text = str(location)
    parts = urlsplit(text if ":" in text.split("/")[0] else f"file:{text}")
    if parts.scheme == "rhino":
        raise InvalidSettingError(f"setting location = {text!r}: is on rhino:// already")
    if not parts.path.startswith("/"):
        raise InvalidSettingError(f"setting location = {text!r}: must be absolute")
    authority = f"{parts.scheme}@{parts.netloc}" if parts.netloc else parts.scheme
    return f"rhino://{authority}{parts.path}"
