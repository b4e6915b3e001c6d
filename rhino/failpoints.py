"""Named points at which a test lets a real daemon die or fail: before and after each step that persists something.

The environment variable RHINO_FAILPOINTS arms them: `name=kill` (kill -9 at the first hit), `name=kill:3` (at the
third), `name=error` (raises OSError EIO), `name=stop` (SIGSTOP at every hit, after a line "failpoint <name>" on
standard error: whoever waits for it looks, or kills something else, and sends SIGCONT); several are joined by commas.
Unarmed, a point costs one look at a dict.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
from collections.abc import Mapping

from rhino.errors import InvalidSettingError

VARIABLE = "RHINO_FAILPOINTS"
_STEPS = (
    "incarnation.file",  # the file store-uuid
    "incarnation.index",
    "recovery.drop",  # index entry of a damaged file
    "recovery.orphan",  # file without an index entry
    "recovery.boot_id",
    "store.inbox.unlink",  # a file that is here already
    "store.move_in.rename",
    "store.take_over.index",
    "store.incoming.create",
    "store.incoming.write",
    "store.incoming.rename",
    "store.incoming.index",
    "store.make_visible.index",
    "store.epoch",
    "store.floor",
    "store.remove.index",
    "store.remove.bury",  # rename into tmp
    "store.remove.unlink",
    "store.drop_job.index",
    "store.drop_job.bury",  # rename into tmp
    "store.discard_folder",  # of a forgotten job or an ended session
    "store.sync",  # a round for `synced` jobs
    "journal.generation",  # at open
    "journal.raise_generation",
    "journal.put",
    "journal.put_all",
    "journal.delete",
    "handover.intent",  # journalled, or a later step's beginning
    "handover.join",  # a target is asked into a group
    "handover.marker",  # journalled, with the desired locations
    "handover.push",  # of desired locations to a driver
    "handover.writers",  # sidecars are asked who wrote a logged batch
    "handover.confirm",  # journalled
    "handover.owner",  # a target is made owner, or a former owner named again
    "handover.settled",  # journalled: the targets own the groups
    "handover.end",  # journalled: rolled back, cancelled or redirected
)
NAMES = tuple(f"{step}.{when}" for step in _STEPS for when in ("before", "after"))


class _Armed:
    """What happens at one point, at its `hits`-th hit; after that nothing. A stop: at every hit."""

    def __init__(self, action: str, hits: int) -> None:
        self._action = action
        self._hits = hits
        self._lock = threading.Lock()

    def reach(self, name: str) -> None:
        if self._action == "stop":
            print(f"failpoint {name}", file=sys.stderr, flush=True)
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
            return
        with self._lock:
            self._hits -= 1
            if self._hits != 0:
                return
        if self._action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise OSError(errno.EIO, f"failpoint {name}")


_armed: dict[str, _Armed] = {}


def arm(environment: Mapping[str, str]) -> None:
    """Arms what RHINO_FAILPOINTS names, and nothing else. Raises InvalidSettingError for an unknown name or action."""
    _armed.clear()
    for item in filter(None, environment.get(VARIABLE, "").split(",")):
        name, _, action = item.partition("=")
        if name not in NAMES:
            raise InvalidSettingError(f"{VARIABLE}: unknown failpoint {name!r}; known: {', '.join(NAMES)}")
        what, _, hits = action.partition(":")
        if what not in ("kill", "error", "stop") or not (hits or "1").isdigit() or hits == "0":
            raise InvalidSettingError(
                f"{VARIABLE}: {item!r}: must be name=kill, name=kill:<hit>, name=error or name=stop"
            )
        _armed[name] = _Armed(what, int(hits or 1))


def hit(name: str) -> None:
    """Does what the point is armed for, if anything."""
    if _armed and name in _armed:
        _armed[name].reach(name)
