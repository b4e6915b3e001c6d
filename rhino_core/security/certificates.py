"""Certificates: their content, and their issue by an authority."""

from __future__ import annotations

import datetime as dt
import hashlib
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from rhino_core.errors import InvalidRequestError, InvalidSettingError
from rhino_core.security.identity import Identity, one_identity

CURVE = ec.SECP256R1()
AUTHORITY_DAYS = 3650
CLOCK_SKEW = dt.timedelta(minutes=5)  # a certificate counts from so much before it was issued
KEY_BYTES = 32  # of a cluster key
# Every holder of a cluster key makes the same authority, so that its dates must not depend on the moment.
DERIVED_FROM = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
DERIVED_UNTIL = dt.datetime(2120, 1, 1, tzinfo=dt.UTC)
# What the library raises for a damaged certificate or key. It reads some parts only when they are asked for.
UNREADABLE = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.InvalidVersion,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
)


@dataclass(frozen=True, slots=True)
class Material:
    """The TLS material of a process, in PEM: trusted authorities, own certificates and private key."""

    authorities: bytes
    certificate: bytes
    key: bytes
    also: tuple[str, ...] = ()  # further names of the same cluster, while its key changes

    @property
    def clusters(self) -> frozenset[str]:
        """Names of the cluster. Raises InvalidSettingError."""
        return frozenset((self.identity.cluster, *self.also))

    @property
    def leaf(self) -> x509.Certificate:
        """The process's own certificate: the first one. Raises InvalidSettingError."""
        try:
            return x509.load_pem_x509_certificates(self.certificate)[0]
        except UNREADABLE as error:
            raise InvalidSettingError(f"not a certificate in PEM: {error}") from None

    @property
    def identity(self) -> Identity:
        """Raises InvalidSettingError."""
        return identity_of(self.leaf)

    @property
    def host_names(self) -> list[str]:
        """The DNS names in the certificate, in small letters. Raises InvalidSettingError."""
        _ = self.identity  # the certificate has such an extension
        names = self.leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        return [name.lower() for name in names.get_values_for_type(x509.DNSName)]

    def is_issued(self) -> bool:
        """Whether one of the authorities has signed the certificate itself."""
        return any(issued(self.leaf, one) for one in x509.load_pem_x509_certificates(self.authorities))

    def check(self) -> Material:
        """Returns itself. Raises InvalidSettingError if the parts do not belong together."""
        try:
            x509.load_pem_x509_certificates(self.authorities)
        except UNREADABLE as error:
            raise InvalidSettingError(f"the authorities are not certificates in PEM: {error}") from None
        try:
            key = serialization.load_pem_private_key(self.key, None)
        except UNREADABLE as error:
            raise InvalidSettingError(f"not an unencrypted private key in PEM: {error}") from None
        form, leaf = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo), self.leaf
        try:
            same = key.public_key().public_bytes(*form) == leaf.public_key().public_bytes(*form)
            _ = leaf.issuer, leaf.not_valid_before_utc, leaf.not_valid_after_utc
        except UNREADABLE as error:
            raise InvalidSettingError(f"the certificate cannot be read: {error}") from None
        if not same:
            raise InvalidSettingError("the private key is not that of the certificate")
        _ = self.identity
        return self


def issued(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    """Whether the issuer has signed the certificate itself (not through others)."""
    try:
        certificate.verify_directly_issued_by(issuer)
    except (InvalidSignature, *UNREADABLE):
        return False
    return True


def identity_of(certificate: x509.Certificate) -> Identity:
    """Returns the identity in a certificate. Raises InvalidSettingError."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        return one_identity(names.get_values_for_type(x509.UniformResourceIdentifier))
    except x509.ExtensionNotFound:
        raise InvalidSettingError("the certificate has no subject alternative name, so it says nothing of us") from None
    except InvalidRequestError as error:
        raise InvalidSettingError(str(error)) from None
    except UNREADABLE as error:
        raise InvalidSettingError(f"the certificate's subject alternative name cannot be read: {error}") from None


@dataclass(frozen=True, slots=True)
class Authority:
    """Issues the certificates of one cluster."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @staticmethod
    def create(cluster: str, days: int = AUTHORITY_DAYS) -> Authority:
        """Returns a new authority."""
        now = dt.datetime.now(dt.UTC)
        key, serial = ec.generate_private_key(CURVE), x509.random_serial_number()
        return Authority(_own(key, cluster, now - CLOCK_SKEW, now + dt.timedelta(days=days), serial), key)

    @staticmethod
    def load(certificate: bytes, key: bytes) -> Authority:
        """Returns the authority of two PEM files. Raises InvalidSettingError."""
        try:
            private = serialization.load_pem_private_key(key, None)
            found = x509.load_pem_x509_certificate(certificate)
            named = found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        except UNREADABLE as error:
            raise InvalidSettingError(f"not an authority in PEM: {error}") from None
        if not named:
            raise InvalidSettingError("the authority has no common name, which is that of the cluster")
        if not isinstance(private, ec.EllipticCurvePrivateKey):
            raise InvalidSettingError("the authority's key is not of an elliptic curve; issue with your own tools")
        return Authority(found, private)

    @staticmethod
    def of_cluster_key(secret: bytes) -> Authority:
        """Returns the authority derived from the secret, the same for every holder (HKDF, RFC 5869)."""
        wide = HKDF(hashes.SHA256(), 48, None, b"rhino cluster authority v1").derive(secret)
        # 128 bits more than the order has, so that the remainder is uniform (FIPS 186-5, A.2.1).
        order = CURVE.group_order
        key = ec.derive_private_key(int.from_bytes(wide) % (order - 1) + 1, CURVE)
        name = HKDF(hashes.SHA256(), 6, None, b"rhino cluster name v1").derive(secret).hex()
        return Authority(_own(key, f"key-{name}", DERIVED_FROM, DERIVED_UNTIL, 1), key)

    @property
    def cluster(self) -> str:
        """The name of its cluster."""
        return str(self.certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)

    @property
    def certificate_pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        return _key_pem(self.key)

    def issue(
        self, identity: Identity, valid: dt.timedelta, hosts: Sequence[str] = (), now: dt.datetime | None = None
    ) -> Material:
        """Returns a certificate for both ends of a connection. `hosts` are names and addresses for other clients.

        `now`: by the wall clock; None: at this moment. Raises InvalidRequestError for an identity of another cluster.
        """
        if identity.cluster != self.cluster:
            raise InvalidRequestError(f"{identity} is not of the cluster {self.cluster} of this authority")
        # Not the authority's own name, or else the certificate would count as signed by itself.
        subject = _subject(f"{identity.role.value}:{identity.name}"[:64])
        now, key = now or dt.datetime.now(dt.UTC), ec.generate_private_key(CURVE)
        names: list[x509.GeneralName] = [
            x509.UniformResourceIdentifier(identity.uri),
            x509.DNSName(identity.server_name),
            *map(_host_name, hosts),
        ]
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        certificate = (
            _builder(subject, self.certificate.subject, key, now - CLOCK_SKEW, now + valid)
            .serial_number(x509.random_serial_number())
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False)
            .sign(self.key, hashes.SHA256())
        )
        return Material(self.certificate_pem, certificate.public_bytes(serialization.Encoding.PEM), _key_pem(key))


def _own(
    key: ec.EllipticCurvePrivateKey, cluster: str, start: dt.datetime, end: dt.datetime, serial: int
) -> x509.Certificate:
    """The certificate of an authority, signed by itself."""
    subject = _subject(cluster)
    signing = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    return (
        _builder(subject, subject, key, start, end)
        .serial_number(serial)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(signing, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, start: dt.datetime, end: dt.datetime
) -> x509.CertificateBuilder:
    """A certificate without serial number, extensions and signature."""
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
    return builder.not_valid_before(start).not_valid_after(end)


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        return x509.DNSName(host)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def fingerprint(certificate: x509.Certificate) -> str:
    """SHA-256 of a certificate, in hexadecimal digits."""
    return hashlib.sha256(certificate.public_bytes(serialization.Encoding.DER)).hexdigest()
