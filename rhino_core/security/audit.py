"""The audit log: caller, method, objects and outcome of calls. One JSON object per line.

Every line goes to the ordinary log, as logger `rhino.audit`, and to a file of its own if there is one. A full disk
stops no call: a lost line is counted, and the file later has the number of missing lines.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import stat
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rhino_core.descriptors import LogLimits, LogShares
from rhino_core.errors import InvalidSettingError
from rhino_core.folder import FILE_MODE

log = logging.getLogger("rhino.audit")
OK, CANCELLED = "ok", "cancelled"
ACCEPTED, ENDED = "accepted", "ended"  # of sessions; gRPC does not tell a server whether a client closed or vanished
REASON_CHARACTERS = 500
_GOOD = frozenset({OK, CANCELLED, ACCEPTED, ENDED})
# Not to block on something that is no file. Readable, to see whether the last line is whole.
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW
FILE_BYTES_MAX = 64 * 1024 * 1024  # of one file; then it is renamed to FILE.1
FORMER_MAX = 8  # files FILE.1 to FILE.8
OF_PRINCIPAL = 300  # lines of one principal that are written in a minute
MINUTE_S = 60.0


@dataclass(frozen=True, slots=True)
class Line:
    """The event. `outcome`: one of the words above, or the kind of the error, with its text in `reason`.

    `principal`: the URI in the caller's certificate; empty: it has none, or an invalid one. `peer`: its address as gRPC
    writes it. `names`: of the objects, from the request and the reply. `duration_s`: seconds since the call began.
    """

    principal: str
    peer: str
    method: str
    names: Mapping[str, object]
    outcome: str
    duration_s: float
    reason: str = ""
    time_s: float = field(default_factory=time.time)  # wall clock, seconds since the Unix epoch


class AuditLog:
    """Writes audit lines. Methods may be called by any thread, and never raise.

    Another process may rename or delete the file at any time: the next line goes to a new one of the same name.
    """

    def __init__(self, file: str = "", clock: Callable[[], float] = time.monotonic) -> None:
        """`file`: empty: only the ordinary log. Raises InvalidSettingError if the file cannot be appended to."""
        self._limits = LogLimits(clock)
        self._shares = LogShares(clock, OF_PRINCIPAL, MINUTE_S)
        self.missing_total = 0  # lines that could not be written since the start
        self._path = Path(file).absolute() if file else None
        self._lock = threading.Lock()
        self._out = -1
        self._missing = 0  # lines that could not be written since the last one that was
        if self._path is not None:
            try:
                self._out = _open(self._path)
            except OSError as error:
                raise InvalidSettingError(
                    f"--audit-log {file}: {error.strerror}; give a file that this user may write, in an existing folder"
                ) from None

    def write(self, line: Line, *, alarm: bool = False) -> None:
        """Logs the line; `alarm`: as a warning.

        Alarms, and failures of unknown callers, may repeat at will. Of those of one principal, method and outcome, one
        is written in ten seconds. Of all others of one principal, 300 are written in a minute. A line has the number of
        omitted ones before it: no flood fills a disk, or drives older lines out of it.
        """
        repeats = alarm or not (line.principal or line.outcome in _GOOD)
        with self._lock:
            if repeats:
                left_out = self._limits.due(line.principal, line.method, line.outcome)
            else:
                left_out = self._shares.due(line.principal or line.peer.rpartition(":")[0])
        if left_out is None:
            return
        fields = {
            "principal": line.principal,
            "peer": line.peer,
            "method": line.method,
            "names": dict(line.names),
            "outcome": line.outcome,
            **({"reason": line.reason[:REASON_CHARACTERS]} if line.reason else {}),
            "duration_s": round(line.duration_s, 6),
            **({"left_out": left_out} if left_out else {}),
        }
        log.log(logging.WARNING if alarm else logging.INFO, "audit", extra=fields)
        with self._lock:
            if self._path is not None:
                self._append(self._path, {"time": _stamp(line.time_s), **fields})

    def close(self) -> None:
        """Closes the file. Later lines go to the ordinary log only."""
        with self._lock:
            if self._out >= 0:
                os.close(self._out)
            self._path, self._out = None, -1

    def _append(self, path: Path, fields: Mapping[str, object]) -> None:
        try:
            self._follow(path)
            if self._missing:
                self._put({"time": fields["time"], "missing_lines": self._missing})
                log.info("the audit log is written again", extra={"file": str(path), "missing_lines": self._missing})
                self._missing = 0
            self._put(fields)
        except OSError as error:
            self._missing += 1
            self.missing_total += 1
            if self._missing == 1:
                log.error(
                    "audit log cannot be written; until it can, only this log has its lines",
                    extra={"file": str(path), "error": error.strerror},
                )

    def _follow(self, path: Path) -> None:
        """Opens the file anew if the name belongs to another one, or to none, or if it is full."""
        if self._out >= 0:
            try:
                here = os.fstat(self._out)
                if os.path.samestat(os.lstat(path), here):
                    if here.st_size < FILE_BYTES_MAX:
                        return
                    _shift(path)
            except FileNotFoundError:
                pass  # renamed or deleted
            former, self._out = self._out, -1
            os.close(former)
        self._out = _open(path)

    def _put(self, fields: Mapping[str, object]) -> None:
        data = json.dumps(fields, default=str).encode() + b"\n"
        if _is_torn(self._out):
            data = b"\n" + data
        if os.write(self._out, data) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _open(path: Path) -> int:
    """Opens a regular file that only this Unix user may read, and makes it if necessary. Raises OSError."""
    out = os.open(path, _FLAGS, FILE_MODE)
    try:
        mode = os.fstat(out).st_mode
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "not a regular file")
        if stat.S_IMODE(mode) != FILE_MODE:
            os.fchmod(out, FILE_MODE)
    except OSError:
        os.close(out)
        raise
    return out


def _shift(path: Path) -> None:
    """Renames the file to FILE.1, FILE.1 to FILE.2 and so on. The oldest one is replaced. Raises OSError."""
    names = [path, *(path.with_name(f"{path.name}.{number}") for number in range(1, FORMER_MAX + 1))]
    for older, newer in zip(names[:0:-1], names[-2::-1], strict=True):
        if os.path.lexists(newer):
            os.replace(newer, older)


def _is_torn(file: int) -> bool:
    """Whether the file ends within a line, because the disk was full."""
    size = os.fstat(file).st_size
    return size > 0 and os.pread(file, 1, size - 1) != b"\n"


def _stamp(time_s: float) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time_s))
    return f"{whole}.{int(time_s % 1 * 1000):03d}Z"
