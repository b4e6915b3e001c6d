"""Sources of a process's certificate: a folder renewed by others, or a cluster key."""

from __future__ import annotations

import datetime as dt
import logging
import os
import secrets
import stat
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from rhino_core.errors import AlreadyThereError, InvalidSettingError, RhinoError
from rhino_core.folder import written
from rhino_core.security.certificates import KEY_BYTES, Authority, Material
from rhino_core.security.identity import Identity, Role

log = logging.getLogger(__name__)
# The names in a Kubernetes secret for TLS, which cert-manager and others write. All three change at once there.
AUTHORITIES_FILE, CERTIFICATE_FILE, KEY_FILE = "ca.crt", "tls.crt", "tls.key"
DERIVED_VALID = dt.timedelta(days=2)
DERIVED_RENEWED = dt.timedelta(days=1)  # before the end
KEYS_MAX = 2  # the one in use, and the one before or after it
WRITE = stat.S_IWGRP | stat.S_IWOTH
OTHERS = stat.S_IRWXG | stat.S_IRWXO


class MaterialSource(Protocol):
    def current(self) -> Material:
        """The certificate to use for a new connection: the same object as long as it is unchanged."""


class FolderSource:
    """A folder with `ca.crt`, `tls.crt` and `tls.key` in PEM. New files count for the next connection.

    An unreadable file, or one that does not fit to the others, changes nothing: it may be half of a renewal.
    """

    def __init__(self, folder: Path) -> None:
        """Raises InvalidSettingError."""
        self._folder = folder
        self._lock = threading.Lock()
        self._stamp = self._stamps()
        self._material = self._read()
        self._failure = ""  # of the last look at the files

    def current(self) -> Material:
        with self._lock:
            try:
                stamp = self._stamps()
                if stamp != self._stamp:
                    self._material, self._stamp = self._read(), stamp
                    about = {"folder": str(self._folder), "until": str(self._material.leaf.not_valid_after_utc)}
                    log.info("new certificate", extra={"identity": self._material.identity.uri, **about})
                self._failure = ""
            except RhinoError as error:
                if str(error) != self._failure:  # every call looks, and the reason may last
                    log.warning("certificates cannot be read; the former ones stay", extra={"error": str(error)})
                self._failure = str(error)
            return self._material

    def _stamps(self) -> tuple[tuple[int, int, int], ...]:
        try:
            found = [(self._folder / name).stat() for name in (AUTHORITIES_FILE, CERTIFICATE_FILE, KEY_FILE)]
        except OSError as error:
            raise InvalidSettingError(
                f"{error.filename}: {error.strerror}; the folder of --tls-dir has {AUTHORITIES_FILE}, "
                f"{CERTIFICATE_FILE} and {KEY_FILE}: `rhino cert` makes such folders"
            ) from None
        return tuple((one.st_mtime_ns, one.st_ino, one.st_size) for one in found)

    def _read(self) -> Material:
        try:
            _check_folder(self._folder)
            material = Material(
                _contents(self._folder / AUTHORITIES_FILE, WRITE),
                _contents(self._folder / CERTIFICATE_FILE, WRITE),
                _contents(self._folder / KEY_FILE, WRITE | stat.S_IRWXO),
            )
        except OSError as error:
            raise InvalidSettingError(f"{error.filename}: {error.strerror}") from None
        try:
            return material.check()
        except InvalidSettingError as error:
            raise InvalidSettingError(f"{self._folder}: {error}") from None


def _check_folder(folder: Path) -> None:
    """Raises OSError, and InvalidSettingError if others can replace its files, for example by links.

    The folders of Kubernetes are root's, with the sticky bit: in these others cannot replace files of root.
    """
    seen = folder.stat()
    if seen.st_uid not in (0, os.geteuid()):
        raise InvalidSettingError(f"{folder} belongs to user {seen.st_uid}: it must be root's or this process's own")
    if seen.st_mode & WRITE and not seen.st_mode & stat.S_ISVTX:
        raise InvalidSettingError(f"{folder} can be written by other users: chmod go-w {folder}")


def _contents(file: Path, closed: int) -> bytes:
    """Raises OSError, and InvalidSettingError if others have one of these rights. `closed`: mode bits.

    A writer of `ca.crt` decides whom the process trusts. The file may be reached by a link, as in Kubernetes.
    """
    with open(file, "rb") as opened:
        seen = os.fstat(opened.fileno())
        if seen.st_uid not in (0, os.geteuid()):
            raise InvalidSettingError(f"{file} belongs to user {seen.st_uid}: it must be root's or this process's own")
        if seen.st_mode & closed:
            raise InvalidSettingError(f"{file} is open to other users: chmod go-w,o= {file}")
        return opened.read()


class KeySource:
    """Makes short certificates in memory from the cluster key. Whoever has the key can be anybody in the cluster."""

    def __init__(
        self, file: Path, role: Role, name: str, now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC)
    ) -> None:
        """`now`: the wall clock. Raises InvalidSettingError."""
        self._authorities = [Authority.of_cluster_key(secret) for secret in read_cluster_keys(file)]
        self._identity = Identity(self._authorities[0].cluster, role, name)
        self._now = now
        self._lock = threading.Lock()
        self._material, self._made_at = self._issue()

    def current(self) -> Material:
        with self._lock:
            # A clock that was ahead made a certificate that counts for nobody until then.
            if not self._made_at <= self._now() < self._made_at + DERIVED_VALID - DERIVED_RENEWED:
                self._material, self._made_at = self._issue()
            return self._material

    def _issue(self) -> tuple[Material, dt.datetime]:
        """A certificate of the first key. Holders of only another key also find their expected name."""
        made_at, (first, *others) = self._now(), self._authorities
        also = tuple(other.cluster for other in others)
        names = [replace(self._identity, cluster=cluster).server_name for cluster in also]
        material = first.issue(self._identity, DERIVED_VALID, names, now=made_at)
        trusted = b"".join(authority.certificate_pem for authority in self._authorities)
        return replace(material, authorities=trusted, also=also), made_at


def new_cluster_key(file: Path) -> None:
    """Writes a new key that only this user may read. Nobody ever finds a part of it.

    Raises AlreadyThereError if the file exists, and InvalidSettingError if it cannot be written.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with written(file.parent, secrets.token_hex(KEY_BYTES).encode() + b"\n") as new:
            os.link(new, file)
    except FileExistsError:
        raise AlreadyThereError(f"cluster key {file}: it exists already; remove it to make another one") from None
    except OSError as error:
        raise InvalidSettingError(f"cluster key {file}: {error.strerror}") from None


def read_cluster_key(file: Path) -> bytes:
    """Returns the secret in use: the first one. Raises InvalidSettingError like `read_cluster_keys`."""
    return read_cluster_keys(file)[0]


def read_cluster_keys(file: Path) -> list[bytes]:
    """Returns the secret in use, and the other one while the key changes.

    Raises InvalidSettingError if the file is another user's, if others may read it, or if it does not have one or two
    such keys.

    A file of root may be readable for its group, unless this process is root's, too: secrets in Kubernetes reach other
    users in this way only. PostgreSQL has the same rule.
    """
    try:
        with open(file, encoding="ascii") as opened:
            seen = os.fstat(opened.fileno())
            text = opened.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a key"
        raise InvalidSettingError(f"cluster key {file}: {reason}; `rhino cert key {file}` makes one") from None
    if seen.st_uid not in (0, os.geteuid()):
        raise InvalidSettingError(
            f"cluster key {file} belongs to user {seen.st_uid}: it must be root's or this process's own"
        )
    for_group = stat.S_IRGRP if seen.st_uid == 0 != os.geteuid() else 0
    if seen.st_mode & OTHERS & ~for_group:
        raise InvalidSettingError(f"cluster key {file} is open to other users: chmod 600 {file}")
    try:
        secrets_found = [bytes.fromhex(line) for line in text.split()]
    except ValueError:
        secrets_found = []
    if not 0 < len(secrets_found) <= KEYS_MAX or any(len(secret) != KEY_BYTES for secret in secrets_found):
        raise InvalidSettingError(
            f"cluster key {file}: must be {2 * KEY_BYTES} hexadecimal digits, and a second line of them while the key "
            "changes"
        )
    return secrets_found
