"""The data directory of local sessions: its place, its layout and its locks."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TextIO

from rhino_core.errors import AlreadyThereError, IntegrityError, InvalidSettingError
from rhino_core.folder import FILE_MODE, FOLDER_MODE, claim, replace_file, subfolder
from rhino_core.foreign import read_json, require_closed
from rhino_core.records import decode
from rhino_core.rpc.greeting import greeter_path
from rhino_core.security.sources import new_cluster_key
from spark_connector.local.locks import FileLock

KIND = "local session"
_SOCKET_BYTES_MAX = 107  # of a path in `struct sockaddr_un`, without its final zero


@dataclass(frozen=True, slots=True)
class Running:
    """The record of the supervisor, written when both daemons answer."""

    pid: int  # of the supervisor
    manager: str  # "host:port"


def default_data_dir(environment: Mapping[str, str] | None = None) -> Path:
    """Returns `$XDG_DATA_HOME/rhino-state/local`, by default below ~/.local/share."""
    env = os.environ if environment is None else environment
    share = env.get("XDG_DATA_HOME", "")
    # The specification says to ignore a relative path.
    base = Path(share) if share.startswith("/") else Path.home() / ".local" / "share"
    return base / "rhino-state" / "local"


class LocalDirectory:
    """Paths below one data directory.

    Each process that uses the directory has a shared lock on `users` until it ends. The supervisor has an exclusive
    lock on `supervisor`. It passes its lock on `daemons` to both daemons, so nobody starts a second pair while they
    still run. `starting` lets one process at a time look for a supervisor and start it.
    """

    def __init__(self, path: str | Path | None = None) -> None:
        self.path = Path(os.path.abspath(Path(path).expanduser())) if path else default_data_dir()
        self.socket = self.path / "socket"  # a short name: paths of sockets may not be long
        self.manager = self.path / "manager"
        self.sidecar = self.path / "sidecar"
        self.spark = self.path / "spark"  # spark.local.dir, if the default is on another file system
        self.logs = self.path / "logs"
        self.key = self.path / "cluster.key"  # without it, no other Unix user can call the daemons
        self.driver = self.path / "driver"  # certificate of the drivers
        self.users = FileLock(self.path / "users.lock")
        self.starting = FileLock(self.path / "starting.lock")
        self.supervisor = FileLock(self.path / "supervisor.lock")
        self.daemons = FileLock(self.path / "daemons.lock")
        self._running = self.path / "running.json"

    def create(self) -> None:
        """Creates and marks the folder.

        Raises InvalidSettingError for an unusable path, PreconditionError for a folder with other files, and
        AccessDeniedError for one that another user could have prepared.
        """
        size = len(os.fsencode(greeter_path(self.socket)))
        if size > _SOCKET_BYTES_MAX:
            raise InvalidSettingError(
                f"setting data_dir = {str(self.path)!r}: too long, because the path of a Unix socket in it has {size} "
                f"bytes and may have {_SOCKET_BYTES_MAX}; give a shorter path"
            )
        self._require_closed()
        claim(self.path, KIND)
        require_closed(self.path)
        for folder in (self.spark, self.logs):
            subfolder(folder)
        if not self.key.exists():
            with contextlib.suppress(AlreadyThereError):  # another process was faster
                new_cluster_key(self.key)

    def exists(self) -> bool:
        """Whether there is anything to look at. Raises PreconditionError if the folder has other files."""
        if not self.path.exists():
            return False
        self._require_closed()
        claim(self.path, KIND)
        return True

    def _require_closed(self) -> None:
        """Raises AccessDeniedError if another user could have prepared the folder, for example with links.

        An own, empty folder is closed.
        """
        if self.path.is_dir():
            if self.path.stat().st_uid == os.geteuid() and not any(self.path.iterdir()):
                self.path.chmod(FOLDER_MODE)
            require_closed(self.path)

    def open_log(self, name: str) -> TextIO:
        """Opens a log for writing, from its start. Raises OSError for a link."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        return open(os.open(self.logs / name, flags, FILE_MODE), "w")

    def running(self) -> Running | None:
        """The record of the present or the latest supervisor. None before both daemons have answered."""
        with contextlib.suppress(OSError, IntegrityError):
            return decode(Running, read_json(self._running, own=True), self._running.name)
        return None

    def write_running(self, running: Running) -> None:
        replace_file(self._running, json.dumps(asdict(running)).encode() + b"\n")  # readers see the complete file

    def clear_running(self) -> None:
        self._running.unlink(missing_ok=True)
