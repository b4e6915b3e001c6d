"""Parts of the tests of attacks that other tests use as well."""

from __future__ import annotations

import datetime as dt
from typing import Any

import grpc
import grpc.aio
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from rhino_core.security.certificates import Authority, Material
from rhino_core.security.transport import Expected
from tests.rhino_core.security.servers import CLUSTER, HOUR

OURS, STRANGERS = Authority.create(CLUSTER), Authority.create(CLUSTER)


NOW = dt.datetime.now(dt.UTC)


def made(
    authority: Authority = OURS,
    *,
    uris: tuple[str, ...] = (f"rhino://{CLUSTER}/operator/a",),
    start: dt.datetime = NOW - HOUR,
    end: dt.datetime = NOW + HOUR,
    usages: tuple[x509.ObjectIdentifier, ...] = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH),
    dns: tuple[str, ...] = (),
) -> Material:
    """A certificate with any content, signed by the authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a")])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(authority.certificate.subject)
    builder = builder.public_key(key.public_key()).serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(start).not_valid_after(end)
    names = [*map(x509.UniformResourceIdentifier, uris), *map(x509.DNSName, dns)]
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    certificate = builder.sign(authority.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return Material(OURS.certificate_pem, certificate, key.private_bytes(serialization.Encoding.PEM, *form))


class Attacker:
    """A client that presents any certificate. It does not care who answers, as long as our authority says so."""

    edition = 0

    def __init__(self, material: Material, server_name: str = f"manager.{CLUSTER}.rhino") -> None:
        self._material = material
        self._server_name = server_name

    def channel(self, address: str, expected: Expected, options: Any) -> grpc.aio.Channel:
        own = self._material
        credentials = grpc.ssl_channel_credentials(OURS.certificate_pem, own.key or None, own.certificate or None)
        override = ("grpc.ssl_target_name_override", self._server_name)
        return grpc.aio.secure_channel(address, credentials, options=(*options, override))
