"""The key schedule of encrypted push streams, without I/O. docs/design/push-encryption.md is its specification.

Both ends derive the same keys from a secret that the receiver gave to the sender over TLS, and from everything that
they know about the stream. So a stream only works between the two workers, and on the lane, for which it was opened.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from cryptography.hazmat.primitives.hashes import SHA256, Hash
from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand

LABEL = b"rhino push v1"
SUITE = "aes-128-gcm-sha256"
NO_SUITE = "none"
STREAM_ID_BYTES, SECRET_BYTES, RANDOM_BYTES = 16, 32, 32
KEY_BYTES, SALT_BYTES = 16, 12
TRANSCRIPT_BYTES = 32
_TRAFFIC_BYTES = 32
_LENGTH = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Handshake:
    """What both ends know of a stream. Nothing of it is secret.

    `lane`: its name. `sender`, `receiver`: the URIs of their certificates. The random values are RANDOM_BYTES long.
    """

    suite: str
    stream_id: bytes
    lane: str
    sender: str
    receiver: str
    sender_random: bytes
    receiver_random: bytes

    def transcript(self) -> bytes:
        """SHA-256 of the label and of all fields, each behind its length."""
        texts = (self.suite, self.lane, self.sender, self.receiver)
        suite, lane, sender, receiver = (text.encode() for text in texts)
        fields = (LABEL, suite, self.stream_id, lane, sender, receiver, self.sender_random, self.receiver_random)
        digest = Hash(SHA256())
        for field in fields:
            digest.update(_LENGTH.pack(len(field)) + field)
        return digest.finalize()


class TrafficKey:
    """Key and salt of one direction, until `next` replaces them."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self.key = _expanded(secret, b"key", KEY_BYTES)
        self.salt = _expanded(secret, b"salt", SALT_BYTES)

    def next(self) -> TrafficKey:
        """The key that follows. Nobody can compute this one from it."""
        return TrafficKey(_expanded(self._secret, b"next", _TRAFFIC_BYTES))


def traffic_keys(secret: bytes, handshake: Handshake) -> tuple[TrafficKey, TrafficKey]:
    """The first keys of the two directions: from the sender, and from the receiver."""
    kdf = HKDF(
        SHA256(),
        2 * _TRAFFIC_BYTES,
        salt=handshake.sender_random + handshake.receiver_random,
        info=LABEL + b" traffic" + handshake.transcript(),
    )
    made = kdf.derive(secret)
    return TrafficKey(made[:_TRAFFIC_BYTES]), TrafficKey(made[_TRAFFIC_BYTES:])


def _expanded(secret: bytes, purpose: bytes, size: int) -> bytes:
    return HKDFExpand(SHA256(), size, info=LABEL + b" " + purpose).derive(secret)
