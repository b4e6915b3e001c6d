"""Named points for a test to kill or fail a real daemon: before and after each step with a persistent effect.

The environment variable RHINO_FAILPOINTS arms them. Commas separate several entries. The actions are:

- `name=kill`: kill -9 at the first hit; `name=kill:3`: at the third hit.
- `name=error`: raises OSError EIO at the first hit.
- `name=stop`: prints a line "failpoint <name>" on standard error and stops the process by SIGSTOP, at every hit. A test
  waits for that line, inspects the cluster or kills another process, and sends SIGCONT.

The points of a Spark driver are in Scala (query_evolution/scala/modify/records/Failpoints.scala): `stop` and `kill`, at
every hit.

Every point is declared here, and `hit` names it. An unarmed process does not look at the names, so a point costs next
to nothing. An armed one refuses an undeclared name, and so does any process after `refuse_unknown`. Tests enumerate
`NAMES`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping

from rhino_core.errors import InvalidSettingError, LocalProtocolError

VARIABLE = "RHINO_FAILPOINTS"
_STEPS = (
    "folder.mark",  # the file RHINO
    "incarnation.file",  # the file store-uuid
    "incarnation.index",
    "recovery.drop",  # index entry of a damaged file
    "recovery.orphan",  # file that is not in the index
    "recovery.boot_id",
    "store.inbox.unlink",  # duplicate of a file that is stored already
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
    "store.remove.trash",  # rename into tmp
    "store.remove.unlink",
    "store.drop_job.index",
    "store.drop_job.trash",  # rename into tmp
    "store.discard",  # folder of a forgotten job or an ended session
    "store.sync",  # one round of fsync for `synced` jobs
    "archive.pack",  # a sidecar uploads a pack to the archive
    "archive.part",  # a sidecar remembers a part, and is about to return it
    "archive.manifest",  # a manager writes a manifest
    "store.witness",  # records of the managers' journal, in the index of a witness
    "store.flush",  # record of the time up to which files are on disk
    "journal.generation",  # when the journal is opened
    "journal.write",  # the records of one event
    "journal.raise_generation",  # in such a write
    "handover.intent",  # journalled, also at the start of a later step
    "handover.join",  # a target is asked to join a group
    "handover.marker",  # journalled, with the desired locations
    "handover.push",  # desired locations are sent to a driver
    "handover.writers",  # sidecars are asked which worker wrote a logged batch
    "handover.confirm",  # journalled
    "handover.owner",  # a target becomes owner, or the former owner is restored
    "handover.settled",  # journalled: the targets own the groups
    "handover.end",  # journalled: rolled back, cancelled or redirected
    "forget.record",  # journalled: a job is forgotten, and the time that is left
    "forget.due",  # journalled: the time is over, nothing takes it back
    "forget.delete",  # the replication manager is asked to delete the state
    "forget.end",  # journalled: the state is deleted, or the user has taken it back
    "takeover.backup",  # logs of a query checkpoint are copied
    "takeover.note",  # what adopt and release are about to write
    "takeover.commit",  # commit log entry with checkpoint ids
    "takeover.provider",  # offset log entries
    "takeover.end",  # the note is deleted
    "branch.file",  # a file is copied into the hidden folder of `rhino branch` and `rhino restructure`
    "branch.schemas",  # metadata of an operator names the copied schema files
    "branch.links",  # workers link state for the new query
    "branch.name",  # the hidden folder becomes the new checkpoint
    "restructure.operator",  # an operator gets its number and its description
    "restructure.commit",  # commit log entry with the new numbers
    "modification.jar",  # `rhino modify` writes the jar of a function of Scala or Java
    "modification.record",  # `rhino modify` writes what is wanted
    "modification.withdraw",  # `rhino modify withdraw` takes it back
    "modification.table",  # the driver writes a copy of the table of a join
    "modification.accept",  # the driver writes that the checks have passed
    "modification.refuse",  # the driver writes why they have not
    "modification.bind",  # the driver binds records to a batch
    "modification.plan",  # the driver changes the plan of a batch
    "modification.judge",  # a batch of a canary is committed, and the driver writes its figures
    "modification.return",  # the driver gives a binding up
    "restart.request",  # an application asks for the query of another one
    "restart.answer",  # the request is granted, refused or withdrawn
    "restart.end",  # the restart is confirmed or returned
    "restart.take_over",  # a standby kills a driver that hangs, or takes the right to run from it
    "restart.start",  # an application with the right to run starts the query
)
NAMES = tuple(f"{step}.{when}" for step in _STEPS for when in ("before", "after"))
_DECLARED = frozenset(NAMES)


class _Armed:
    """The action of one point. Kill and error happen once, at hit number `hits`. Stop happens at every hit."""

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
_recordings: list[set[str]] = []
_refusing_unknown = False
_active = False  # whether `hit` checks names at all


def arm(environment: Mapping[str, str]) -> None:
    """Arms exactly the points in RHINO_FAILPOINTS. Raises InvalidSettingError for an unknown name or action."""
    _armed.clear()
    _update_active()
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
    _update_active()


def refuse_unknown() -> None:
    """From now on, `hit` refuses undeclared names. Test runs call it."""
    global _refusing_unknown
    _refusing_unknown = True
    _update_active()


@contextlib.contextmanager
def recording() -> Iterator[set[str]]:
    """For tests: collects the names of the points hit by this process inside of the context."""
    reached: set[str] = set()
    _recordings.append(reached)
    _update_active()
    try:
        yield reached
    finally:
        _recordings.remove(reached)
        _update_active()


def hit(name: str) -> None:
    """Performs the action of an armed point.

    Raises LocalProtocolError for an undeclared name, while anything is armed or recorded, and after `refuse_unknown`.
    """
    if _active:
        _reach(name)


def _reach(name: str) -> None:
    if name not in _DECLARED:
        raise LocalProtocolError(f"failpoint {name!r} is not declared in {__name__}")
    for reached in _recordings:
        reached.add(name)
    if name in _armed:
        _armed[name].reach(name)


def _update_active() -> None:
    global _active
    _active = bool(_armed or _recordings or _refusing_unknown)
