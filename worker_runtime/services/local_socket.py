"""The Unix socket of the local API. Never takes another process's socket, and notices the loss of its own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import socket
import stat
from collections.abc import Callable
from pathlib import Path

from rhino_core.errors import AccessDeniedError, AlreadyThereError, InvalidSettingError
from rhino_core.rpc.greeting import require_own

log = logging.getLogger(__name__)
PATH_BYTES_MAX = 107  # of sockaddr_un.sun_path, without the final zero byte
CONNECT_TIMEOUT_S = 5.0
LOOK_S = 1.0


class LocalSocket:
    """The executors' path to this sidecar.

    The server binds a name of this process in the same folder, and this name is then renamed. The reason: gRPC unlinks
    its path before binding and at its end, no matter whose socket is there.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._own = self.path.parent / f".{os.getpid()}"
        self._identity: tuple[int, int, int] | None = None
        self._removed = False

    def bind(self, bind: Callable[[str], object]) -> None:
        """Call `bind` with the address for the server. From the start only this user can access the socket.

        Raises AlreadyThereError if another process answers there, InvalidSettingError for a path that cannot be a
        socket.
        """
        longest = max(len(os.fsencode(path)) for path in (self.path, self._own))
        if longest > PATH_BYTES_MAX:
            raise self._refused(f"is {longest} bytes long, {PATH_BYTES_MAX} are possible")
        try:
            former = os.umask(0o022)  # executors refuse a socket in a folder that others can write to
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            finally:
                os.umask(former)
            self._require_protected()
            self._require_free()
            os.umask(0o177)
            try:
                bind(f"unix://{self._own}")
            finally:
                os.umask(former)
            self._identity = _identity(self._own)
            self._own.rename(self.path)
        except OSError as error:
            raise self._refused(error.strerror or str(error)) from error

    def open_to_group(self, group: str) -> None:
        """Let the Unix group use the socket, too; "" changes nothing. Raises InvalidSettingError."""
        if not group:
            return
        try:
            shutil.chown(self.path, group=group)
            self.path.chmod(0o660)
        except (LookupError, OSError) as error:
            raise InvalidSettingError(
                f"setting socket_group = {group!r}: must be a Unix group that this user belongs to: {error}"
            ) from error

    async def watch(self) -> None:
        """Until cancelled: log when executors no longer find this sidecar, and when they find it again."""
        mine = True
        while True:
            await asyncio.sleep(LOOK_S)
            before, mine = mine, self._removed or self.is_mine()
            if before and not mine:
                extra = {"socket": str(self.path), "there": "nothing" if not self.path.exists() else "another file"}
                log.error("executors do not find this sidecar: its socket is gone, start it again", extra=extra)
            elif mine and not before:
                log.info("the socket is back", extra={"socket": str(self.path)})

    def is_mine(self) -> bool:
        """Whether the path leads to this process."""
        with contextlib.suppress(OSError):
            return _identity(self.path) == self._identity
        return False

    def failure(self) -> str:
        """Why executors do not find this sidecar; empty if they do."""
        return "" if self.is_mine() else f"{self.path} is gone, or is the socket of another process"

    def remove(self) -> None:
        """Remove the socket at the end, unless it belongs to another sidecar. Nobody misses it from now on."""
        self._removed = True
        if self.is_mine():
            self.path.unlink(missing_ok=True)

    def _require_protected(self) -> None:
        """Raises InvalidSettingError for an unprotected folder: executors use no socket there."""
        try:
            require_own(self.path.parent / "nothing")
        except AccessDeniedError as error:
            raise self._refused(f"executors refuse it: {error}") from None

    def _require_free(self) -> None:
        """Removes the socket of an ended process.

        Raises AlreadyThereError if a process answers there, InvalidSettingError if the path is no socket.
        """
        try:
            kind = os.lstat(self.path).st_mode
        except FileNotFoundError:
            return
        if not stat.S_ISSOCK(kind):
            raise self._refused("is there and is no socket")
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(CONNECT_TIMEOUT_S)
            try:
                probe.connect(str(self.path))
            except ConnectionRefusedError:
                self.path.unlink(missing_ok=True)
                return
            except TimeoutError:
                pass  # a process listens, but is busy
        raise AlreadyThereError(
            f"another process answers on {self.path}: give each sidecar of a node its own --socket, or stop the other"
        )

    def _refused(self, why: str) -> InvalidSettingError:
        return InvalidSettingError(
            f"setting socket = {str(self.path)!r}: {why}; must be the path of a socket in a folder that can be written"
        )


def _identity(path: Path) -> tuple[int, int, int]:
    """Identity of the socket. Inode numbers are reused at once, so the modification time is included."""
    found = os.lstat(path)
    return found.st_dev, found.st_ino, found.st_mtime_ns
