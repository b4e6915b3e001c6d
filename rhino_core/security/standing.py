"""Whether the certificate of a caller still counts.

TLS looks at it when a connection begins, and not when a session is resumed. So each call checks again: the end of the
certificate, its issue by an authority that counts now, and a refusal of its owner by name.
"""

from __future__ import annotations

import datetime as dt
import logging
import time
from collections.abc import Callable
from pathlib import Path

from cryptography import x509

from rhino_core.errors import AccessDeniedError, InvalidRequestError, InvalidSettingError
from rhino_core.security.certificates import UNREADABLE, Material, issued
from rhino_core.security.identity import Identity, one_identity
from rhino_core.security.sources import MaterialSource

log = logging.getLogger(__name__)
LOOK_S = 1.0  # between two looks at files
KNOWN_MAX = 10_000  # certificates


class Standing:
    """Methods may be called by one thread at a time."""

    def __init__(
        self,
        source: MaterialSource,
        refused: RefusedNames | None = None,
        now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`refused`: None: nobody is refused by name. `now`: the wall clock. `clock`: monotonic seconds."""
        self._source = source
        self._refused = refused
        self._now = now
        self._clock = clock
        self._look_at = float("-inf")
        self._material: Material | None = None
        self._ends: dict[bytes, dt.datetime] = {}  # by the chain; of certificates that an authority has issued

    def check(self, caller: Identity, chain: bytes) -> None:
        """`chain`: PEM; the first is the caller's, the others may have issued it. Raises AccessDeniedError."""
        self._look()
        if self._refused is not None and caller.uri in self._refused.names:
            raise AccessDeniedError(f"{caller} is refused by name (--refused-names)")
        end = self._ends.get(chain)
        if end is None:  # perhaps of an authority that the files name since the last look
            self._look_at = float("-inf")
            self._look()
            end = self._end_of(caller, chain)
            if len(self._ends) >= KNOWN_MAX:
                self._ends.clear()
            self._ends[chain] = end
        if self._now() >= end:
            raise AccessDeniedError(f"the certificate of {caller} has ended at {end}: renew it and connect again")

    def _look(self) -> None:
        if self._clock() < self._look_at:
            return
        self._look_at = self._clock() + LOOK_S
        if (now := self._source.current()) is not self._material:
            self._material = now
            self._ends.clear()
        if self._refused is not None:
            self._refused.look()

    def _end_of(self, caller: Identity, chain: bytes) -> dt.datetime:
        """When the first certificate on the way to an authority ends."""
        assert self._material is not None
        try:
            authorities = x509.load_pem_x509_certificates(self._material.authorities)
            leaf, *others = x509.load_pem_x509_certificates(chain)
            others += x509.load_pem_x509_certificates(self._material.certificate)  # of the same intermediate authority
        except UNREADABLE as error:
            raise AccessDeniedError(f"the certificate of {caller} cannot be read: {error}") from None
        current, end = leaf, leaf.not_valid_after_utc
        while not (issuers := [one for one in authorities if issued(current, one)]):
            issuer = next((one for one in others if issued(current, one)), None)
            if issuer is None:
                raise AccessDeniedError(
                    f"the certificate of {caller} is not from an authority that counts now: see ca.crt"
                )
            others.remove(issuer)
            current, end = issuer, min(end, issuer.not_valid_after_utc)
        return min(end, max(one.not_valid_after_utc for one in issuers))


class RefusedNames:
    """A file of identities (`rhino://CLUSTER/ROLE/NAME`), one a line. They are refused before their certificates end.

    `#` begins a comment. The file may change at any time. An unreadable one changes nothing.
    """

    def __init__(self, file: Path) -> None:
        """Raises InvalidSettingError."""
        self._file = file
        self._failure = ""
        self._stamp = self._stat()
        self.names = self._read()

    def look(self) -> None:
        try:
            if (stamp := self._stat()) != self._stamp:
                self.names, self._stamp = self._read(), stamp
                log.info("names that are refused", extra={"file": str(self._file), "names": sorted(self.names)})
            self._failure = ""
        except InvalidSettingError as error:
            if str(error) != self._failure:
                log.warning("the refused names stay as they were", extra={"error": str(error)})
            self._failure = str(error)

    def _stat(self) -> tuple[int, int, int]:
        try:
            found = self._file.stat()
        except OSError as error:
            raise InvalidSettingError(f"--refused-names {self._file}: {error.strerror}") from None
        return found.st_mtime_ns, found.st_ino, found.st_size

    def _read(self) -> frozenset[str]:
        try:
            lines = self._file.read_text("ascii").splitlines()
            uris = [text for line in lines if (text := line.partition("#")[0].strip())]
            return frozenset(one_identity([uri]).uri for uri in uris)
        except OSError as error:
            raise InvalidSettingError(f"--refused-names {self._file}: {error.strerror}") from None
        except (UnicodeDecodeError, InvalidRequestError) as error:
            raise InvalidSettingError(f"--refused-names {self._file}: {error}") from None
