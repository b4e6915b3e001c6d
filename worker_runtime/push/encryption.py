"""The encryption of a sidecar's push streams, and its suite. docs/design/push-encryption.md."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass, replace

from rhino_core.errors import PreconditionError, RemoteProtocolError
from rhino_core.security.identity import Identity, Role, parse
from rhino_core.security.transport import Transport
from rhino_core.settings import REQUIRED
from worker_runtime.push.core.noise import PROTOCOL_NAME

log = logging.getLogger(__name__)
SUITE, NO_SUITE = PROTOCOL_NAME, "none"
_SETTING = "--push-encryption"


@dataclass(frozen=True, slots=True)
class Encryption:
    """The choice of one sidecar.

    `identity`: of its certificate; None: it has none, so nothing can be encrypted. `mode`: the setting.
    """

    identity: Identity | None
    mode: str

    @property
    def suites(self) -> tuple[str, ...]:
        """The suites offered by this sidecar as a sender, and accepted as a receiver. Best first."""
        return (SUITE,) if self.identity is not None and self.mode == REQUIRED else (NO_SUITE,)

    def choose(self, offered: Collection[str], sender: str) -> str:
        """The suite for a stream of this worker. Raises PreconditionError if no offered one is accepted here."""
        for suite in self.suites:
            if suite in offered:
                return suite
        raise PreconditionError(
            f"push streams of sidecar {sender!r} are {_in_words(offered)}, and this sidecar accepts only "
            f"{_in_words(self.suites)}: give both the same {_SETTING}"
        )

    def confirm(self, suite: str, receiver: str) -> str:
        """The suite chosen by the receiver. Raises PreconditionError if this sidecar has not offered it."""
        if suite not in self.suites:
            raise PreconditionError(
                f"sidecar {receiver!r} takes only push streams that are {_in_words([suite])}, and this sidecar sends "
                f"only {_in_words(self.suites)}: give both the same {_SETTING}"
            )
        return suite

    def identity_of(self, worker_id: str) -> Identity:
        """The identity of another worker of this cluster, as checked by TLS."""
        if self.identity is None:
            raise RemoteProtocolError(f"a stream of worker {worker_id!r} is encrypted, but there are no certificates")
        return Identity(self.identity.cluster, Role.WORKER, worker_id)

    def answering(self, sender: str) -> str:
        """This sidecar, as the sender with this identity knows it. A cluster has two names while its key changes."""
        if self.identity is None:
            raise RemoteProtocolError(f"a stream of {sender} is encrypted, but there are no certificates")
        return str(replace(self.identity, cluster=parse(sender).cluster))


NOT_ENCRYPTED = Encryption(None, REQUIRED)


def chosen(transport: Transport, mode: str) -> Encryption:
    """The encryption of a sidecar with this transport. `mode`: the setting; empty: as secure as the transport."""
    encryption = Encryption(transport.identity, mode or REQUIRED)
    if transport.identity is not None and NO_SUITE in encryption.suites:
        log.warning("files on their way to other sidecars may be plain", extra={"push_encryption": mode})
    return encryption


def _in_words(suites: Collection[str]) -> str:
    return " or ".join("not encrypted" if suite == NO_SUITE else f"encrypted with {suite[:64]}" for suite in suites)
