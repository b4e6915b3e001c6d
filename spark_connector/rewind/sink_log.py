"""The log of Spark's file sink: by it the sink leaves out batches that it has written before, whatever they hold now.

Files are "<batch>" and, every tenth batch, "<batch>.compact", which has everything up to that batch. After a rewind
Spark makes later batches of other rows, so what the log says of them has to go. The data files that only these
entries name stay: Spark's readers do not see them; others would.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from rhino.errors import PreconditionError

FOLDER = "_spark_metadata"
_ENTRY = re.compile(r"(\d+)(\.compact)?")


def entries_to_move(names: Collection[str], batch: int) -> list[str]:
    """Names in the log's folder that are about later batches than `batch`, the newest first.

    Raises PreconditionError when Spark could not read what would be left: it needs every batch since a compaction.
    """
    entries = {name: match for name in names if (match := _ENTRY.fullmatch(name))}
    later = [name for name, match in entries.items() if int(match[1]) > batch]
    left = {int(match[1]) for name, match in entries.items() if name not in later}
    compacted = [int(match[1]) for name, match in entries.items() if match[2] and name not in later]
    lacking = sorted(set(range(max(compacted, default=0), batch + 1)) - left)
    if lacking and entries:
        raise PreconditionError(
            f"the file sink's log lacks batch {lacking[0]}: without its later entries Spark could not read it; "
            "restore it from a backup, or start with a new checkpoint and output folder"
        )
    return sorted(later, key=lambda name: int(entries[name][1]), reverse=True)
