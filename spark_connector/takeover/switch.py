"""Makes a checkpoint name another provider, and the ids of format 2. An interruption can be repaired.

Spark's logs are two folders, so no single rename changes both. A note in the checkpoint has the new contents. It is
there before the first change and goes after the last one. A call with this note at hand goes on.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from rhino_core import failpoints
from rhino_core.errors import IntegrityError
from rhino_core.foreign import read_json
from rhino_core.records import decode
from spark_connector.query_checkpoint import QueryCheckpoint, replace_file

NOTE = "rhino-adopt.json"


@dataclass(frozen=True, slots=True)
class Switch:
    """The texts to write. `commit`: the new text of the commit log entry of `batch`; empty to leave it as it is.

    `backup`: the folder with the former logs.
    """

    batch: int
    newest_offset: int
    commit: str
    former_provider: str
    provider: str
    backup: str


def begin(checkpoint: QueryCheckpoint, batch: int, commit: str, provider: str) -> Switch:
    """Copies the logs and writes the note. Only `finish` changes the logs."""
    failpoints.hit("takeover.backup.before")
    backup = checkpoint.back_up()
    failpoints.hit("takeover.backup.after")
    switch = Switch(batch, checkpoint.newest_offset(), commit, checkpoint.provider(), provider, str(backup))
    failpoints.hit("takeover.note.before")
    replace_file(_note(checkpoint), json.dumps(asdict(switch)).encode())
    failpoints.hit("takeover.note.after")
    return switch


def finish(checkpoint: QueryCheckpoint, switch: Switch) -> None:
    """Writes the logs and deletes the note. It can be repeated."""
    if switch.commit:
        failpoints.hit("takeover.commit.before")
        checkpoint.replace_commit(switch.batch, switch.commit)
        failpoints.hit("takeover.commit.after")
    failpoints.hit("takeover.provider.before")
    checkpoint.rewrite_provider(switch.former_provider, switch.provider)
    failpoints.hit("takeover.provider.after")
    failpoints.hit("takeover.end.before")
    _note(checkpoint).unlink()
    failpoints.hit("takeover.end.after")


def unfinished(checkpoint: QueryCheckpoint) -> Switch | None:
    """Returns an interrupted switch, if the query has not run since. Raises IntegrityError for an unreadable note."""
    path = _note(checkpoint)
    if not path.exists():
        return None
    try:
        switch = decode(Switch, read_json(path), NOTE)
    except (OSError, IntegrityError) as error:
        raise IntegrityError(
            f"{path}: not readable: {error}; restore the logs from the newest folder backup-* in the checkpoint"
        ) from error
    newest = (checkpoint.batches("commits")[-1:], checkpoint.batches("offsets")[-1:])
    return switch if newest == ([switch.batch], [switch.newest_offset]) else None


def forget(checkpoint: QueryCheckpoint) -> None:
    """Deletes the note of an interrupted switch, if there is one, because the logs are right."""
    _note(checkpoint).unlink(missing_ok=True)


def _note(checkpoint: QueryCheckpoint) -> Path:
    return checkpoint.folder / NOTE
