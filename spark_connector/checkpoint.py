"""Names of query checkpoints on `rhino://`."""

from __future__ import annotations

import re
from pathlib import Path

from rhino_core.errors import InvalidSettingError

# Like Hadoop's paths: "#", "?" and "%" have no special meaning.
_LOCATION = re.compile(r"(?:(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):)?(?://(?P<authority>[^/]*))?(?P<path>.*)", re.DOTALL)


def rhino_checkpoint(location: str | Path) -> str:
    """Returns the `checkpointLocation` for a query with its state in Rhino and its other files at `location`.

    Use it with Spark's own RocksDB provider: `rhino_conf(integration="checkpoint")`. transformWithState requires this
    provider. "/ckpt/q" becomes "rhino://file/ckpt/q"; "hdfs://namenode:8020/q" becomes "rhino://hdfs@namenode:8020/q".
    Raises InvalidSettingError.
    """
    text = str(location)
    parts = _LOCATION.fullmatch(text)
    assert parts is not None  # every part is optional
    scheme = parts["scheme"] or "file"
    if scheme.lower() == "rhino":
        raise InvalidSettingError(f"setting location = {text!r}: is on rhino:// already")
    if not parts["path"].startswith("/"):
        raise InvalidSettingError(f"setting location = {text!r}: must be absolute")
    authority = f"{scheme}@{parts['authority']}" if parts["authority"] else scheme
    return f"rhino://{authority}{parts['path']}"


def user_location(location: str) -> str:
    """Returns the place of a location on `rhino://` on the user's own file system; others are returned as they are.

    "rhino://file/ckpt/q" becomes "file:/ckpt/q"; "rhino://hdfs@namenode:8020/q" becomes "hdfs://namenode:8020/q".
    """
    parts = _LOCATION.fullmatch(location)
    assert parts is not None  # every part is optional
    if parts["scheme"] != "rhino" or not parts["authority"]:
        return location
    scheme, _, authority = parts["authority"].partition("@")
    return f"{scheme}:{f'//{authority}' if authority else ''}{parts['path']}"
