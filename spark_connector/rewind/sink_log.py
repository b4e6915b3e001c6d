"""The log of Spark's file sink. The sink skips every batch in this log, even if the batch now has other rows.

Log files are "<batch>" and, for every tenth batch, "<batch>.compact" with all entries up to this batch. After a rewind,
later batches get other rows, so their log entries must be moved away. Data files named only by these entries stay:
Spark's readers do not see them, but other readers do.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from rhino_core.errors import PreconditionError

FOLDER = "_spark_metadata"
_ENTRY = re.compile(r"(\d+)(\.compact)?")


def entries_to_move(names: Collection[str], batch: int) -> list[str]:
    """Returns the names of log files for batches later than `batch`, newest first.

    Raises PreconditionError when Spark could not read the remaining log: it needs every batch since a compaction.
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
