"""A certificate authority, and a certificate for each end that names it by a URI."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

HOST = "127.0.0.1"
ENDS = ("sender", "receiver")
VALID = timedelta(days=1)
# The ssl module of Python 3.11 cannot choose a cipher of TLS 1.3, OpenSSL's configuration can.
OPENSSL_CONF = """\
openssl_conf = init
[init]
ssl_conf = modules
[modules]
system_default = defaults
[defaults]
MinProtocol = TLSv1.3
Ciphersuites = TLS_AES_128_GCM_SHA256
"""


@dataclass(frozen=True, slots=True)
class Identity:
    """PEM files of one end: its certificate, its key, and the authority that it trusts."""

    certificate: Path
    key: Path
    authority: Path

    @classmethod
    def of(cls, folder: Path, end: str) -> Identity:
        return cls(folder / f"{end}.pem", folder / f"{end}.key", folder / "authority.pem")


def make(folder: Path) -> None:
    """Writes the files of both ends, and `openssl.cnf`, into a new folder."""
    folder.mkdir(parents=True)
    authority = ec.generate_private_key(ec.SECP256R1())
    name = _name("rhino benchmark authority")
    constraint = x509.BasicConstraints(ca=True, path_length=0)
    signed = _builder(name, name, authority).add_extension(constraint, critical=True).sign(authority, hashes.SHA256())
    _write(folder / "authority.pem", signed)
    for end in ENDS:
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName(
            [
                x509.IPAddress(ipaddress.ip_address(HOST)),
                x509.UniformResourceIdentifier(f"rhino://benchmark/worker/{end}"),
            ]
        )
        made = _builder(_name(end), name, key).add_extension(names, critical=False).sign(authority, hashes.SHA256())
        identity = Identity.of(folder, end)
        _write(identity.certificate, made)
        pem = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        identity.key.write_bytes(key.private_bytes(*pem))
    (folder / "openssl.cnf").write_text(OPENSSL_CONF)


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _builder(name: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(issuer).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number())
    return builder.not_valid_before(now - VALID).not_valid_after(now + VALID)


def _write(path: Path, certificate: x509.Certificate) -> None:
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
