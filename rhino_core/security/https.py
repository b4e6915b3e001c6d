"""HTTPS for monitoring, with the certificate of the daemon. New certificates count for the next connection."""

from __future__ import annotations

import os
import ssl

from rhino_core.errors import InvalidRequestError
from rhino_core.http_server import Certificate
from rhino_core.security.audit import AuditLog, Line
from rhino_core.security.certificates import Material
from rhino_core.security.identity import Identity, Role, one_identity
from rhino_core.security.sources import MaterialSource
from rhino_core.security.transport import MutualTls, Transport
from rhino_core.settings import MUTUAL, OFF, ManagerSettings, SidecarSettings

MAY_READ = frozenset({Role.OPERATOR, Role.READER})
METHOD = "/metrics"  # in the audit log
_REFUSED = "AccessDeniedError"  # the outcome, as of calls


class DaemonHttps:
    """`mutual`: metrics are for operators and readers of the cluster. Otherwise they are for everybody.

    Health is for everybody, always: probes have no certificate. A certificate of another authority is refused by TLS.
    """

    def __init__(self, source: MaterialSource, audit: AuditLog, *, mutual: bool) -> None:
        self._source = source
        self._audit = audit
        self._mutual = mutual
        self._used = source.current()
        self._newest = self._context_of(self._used)
        self.context = self._context_of(self._used)
        self.context.sni_callback = self._choose  # at the beginning of every handshake

    def refusal(self, certificate: Certificate, peer: str) -> str:
        if not self._mutual:
            return ""
        try:
            caller = _identity_of(certificate)
        except InvalidRequestError as error:
            return self._refused("", peer, str(error))
        cluster = self._used.identity.cluster
        if caller.role in MAY_READ and caller.cluster == cluster:
            return ""
        roles = " and ".join(sorted(role.value for role in MAY_READ))
        return self._refused(caller.uri, peer, f"{caller} may not read metrics: only {roles} of {cluster} may")

    def _refused(self, principal: str, peer: str, why: str) -> str:
        self._audit.write(Line(principal, peer, METHOD, {}, _REFUSED, 0.0, why), alarm=True)
        return why

    def _choose(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        if (now := self._source.current()) is not self._used:
            self._used, self._newest = now, self._context_of(now)
        connection.context = self._newest

    def _context_of(self, material: Material) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        _use(context, material)
        if self._mutual:
            context.load_verify_locations(cadata=material.authorities.decode("ascii"))
            context.verify_mode = ssl.CERT_OPTIONAL
        return context


def metrics_https(
    settings: SidecarSettings | ManagerSettings, transport: Transport, audit: AuditLog
) -> DaemonHttps | None:
    """How the metrics of a daemon with this transport are served. None: over plain HTTP."""
    if settings.metrics_tls == OFF or not isinstance(transport, MutualTls):
        return None
    return DaemonHttps(transport.source, audit, mutual=settings.metrics_tls == MUTUAL)


def _use(context: ssl.SSLContext, material: Material) -> None:
    """The module ssl reads keys from files only. This one is in memory, and nobody else can open it."""
    file = os.memfd_create("rhino-certificate", os.MFD_CLOEXEC)
    try:
        with open(file, "wb", closefd=False) as out:
            out.write(material.certificate + b"\n" + material.key)
        context.load_cert_chain(f"/proc/self/fd/{file}")
    finally:
        os.close(file)


def _identity_of(certificate: Certificate) -> Identity:
    """Raises InvalidRequestError."""
    if not certificate:
        raise InvalidRequestError("metrics are for callers with a certificate of the cluster (--metrics-tls mutual)")
    return one_identity([value for kind, value in certificate.get("subjectAltName", ()) if kind == "URI"])
