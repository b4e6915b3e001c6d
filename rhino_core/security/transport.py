"""Connections between processes: plain, or TLS 1.3 with certificates on both sides."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, cast

import grpc
import grpc.aio

from rhino_core.errors import AccessDeniedError, InvalidRequestError
from rhino_core.security.certificates import Material
from rhino_core.security.identity import Identity, Role, one_identity
from rhino_core.security.sources import MaterialSource
from rhino_core.security.standing import RefusedNames, Standing

_CHAIN = ("x509_pem_cert", "x509_pem_cert_chain")  # of a caller: its own certificate, and those that issued it
Options = Sequence[tuple[str, Any]]
Context = Any  # grpc.aio.ServicerContext


class Expected(NamedTuple):
    """The identity that must answer at an address. `name`: the worker id of a worker."""

    role: Role
    name: str = ""


THE_MANAGER = Expected(Role.MANAGER)


class Transport(Protocol):
    """How a process connects, listens, and learns the identity of callers."""

    @property
    def identity(self) -> Identity | None:
        """The identity of this process; None: it has no certificate."""

    @property
    def edition(self) -> int:
        """A number for the certificate of new channels. It changes with this certificate."""

    def channel(self, address: str, expected: Expected, options: Options) -> grpc.aio.Channel:
        """A channel to "host:port". Its calls fail with UNAVAILABLE if another process answers there."""

    def sync_channel(self, address: str, expected: Expected, options: Options) -> grpc.Channel: ...

    def listen(self, server: grpc.aio.Server, address: str) -> int:
        """Binds "host:port" and returns the port. Raises RuntimeError."""

    def caller(self, context: Context) -> Identity | None:
        """The caller. None: unknown, so everybody may call everything. Raises AccessDeniedError."""

    def later_check(self, context: Context) -> Callable[[], None] | None:
        """Looks at the caller's certificate again, also after the call. It raises AccessDeniedError.

        None: there is no certificate.
        """


class Plain:
    """No encryption, and no identities."""

    edition = 0
    identity = None

    def channel(self, address: str, expected: Expected, options: Options) -> grpc.aio.Channel:
        return grpc.aio.insecure_channel(address, options=options)

    def sync_channel(self, address: str, expected: Expected, options: Options) -> grpc.Channel:
        return grpc.insecure_channel(address, options=tuple(options))

    def listen(self, server: grpc.aio.Server, address: str) -> int:
        return server.add_insecure_port(address)

    def caller(self, context: Context) -> Identity | None:
        return None

    def later_check(self, context: Context) -> Callable[[], None] | None:
        return None


PLAIN = Plain()


class MutualTls:
    """TLS with certificates on both sides, from a source that may renew them."""

    def __init__(self, source: MaterialSource, refused: RefusedNames | None = None) -> None:
        """`refused`: callers refused by name; None: nobody is."""
        self.source = source
        self._standing = Standing(source, refused)
        self._used = source.current()
        self._edition = 1
        self.identity = self._used.identity
        self._clusters = self._used.clusters

    @property
    def edition(self) -> int:
        if (now := self.source.current()) is not self._used:
            self._used = now
            self._edition += 1
        return self._edition

    def channel(self, address: str, expected: Expected, options: Options) -> grpc.aio.Channel:
        return grpc.aio.secure_channel(address, self._credentials(), options=self._options(expected, options))

    def sync_channel(self, address: str, expected: Expected, options: Options) -> grpc.Channel:
        return grpc.secure_channel(address, self._credentials(), options=self._options(expected, options))

    def listen(self, server: grpc.aio.Server, address: str) -> int:
        return server.add_secure_port(address, _server_credentials(self.source))

    def caller(self, context: Context) -> Identity | None:
        shown = context.auth_context()
        uris = [uri.decode(errors="replace") for uri in shown.get("peer_uri", ())]
        try:
            caller = one_identity(uris)
        except InvalidRequestError as error:
            raise AccessDeniedError(str(error)) from None
        if caller.cluster not in self._clusters:
            raise AccessDeniedError(f"{caller} is of another cluster than {self.identity}")
        self._standing.check(caller, _chain(shown))
        return caller

    def later_check(self, context: Context) -> Callable[[], None] | None:
        caller, chain = self.caller(context), _chain(context.auth_context())
        return None if caller is None else partial(self._standing.check, caller, chain)

    def _credentials(self) -> grpc.ChannelCredentials:
        now = self.source.current()
        return grpc.ssl_channel_credentials(now.authorities, now.key, now.certificate)

    def _options(self, expected: Expected, options: Options) -> tuple[tuple[str, Any], ...]:
        server = Identity(self.identity.cluster, expected.role, expected.name or expected.role.value)
        return (*options, ("grpc.ssl_target_name_override", server.server_name))


def _chain(shown: Mapping[str, Iterable[bytes]]) -> bytes:
    """The certificates of a caller in PEM, its own first. `shown`: by the call."""
    return b"".join(pem for name in _CHAIN for pem in shown.get(name, ()))


def _server_credentials(source: MaterialSource) -> grpc.ServerCredentials:
    """Credentials, read from the source at every handshake."""
    used = source.current()

    def renewed() -> grpc.ServerCertificateConfiguration | None:
        nonlocal used
        now = source.current()
        if now is used:
            return None
        used = now
        return _configuration(now)

    first, ask = _configuration(used), cast("Callable[[], grpc.ServerCertificateConfiguration]", renewed)
    return grpc.dynamic_ssl_server_credentials(first, ask, require_client_authentication=True)


def _configuration(material: Material) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(material.key, material.certificate)], material.authorities)
