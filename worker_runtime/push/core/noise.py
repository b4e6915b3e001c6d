"""Noise_NNpsk0_25519_AESGCM_SHA256 by revision 34 of the Noise specification, without I/O.

Functions and fields have the names of https://noiseprotocol.org/noise.html. The primitives come from `cryptography`:
HKDF is RFC 5869 with the chaining key as its salt (section 4.3 of the specification).

    NNpsk0:
      -> psk, e
      <- e, ee

The caller makes the ephemeral key, a new one for each handshake.
"""

from __future__ import annotations

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256, Hash
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

PROTOCOL_NAME = "Noise_NNpsk0_25519_AESGCM_SHA256"  # as long as a hash, so that it is the first `h` as it is
PSK_BYTES = KEY_BYTES = HASH_BYTES = 32
PUBLIC_BYTES = 32
TAG_BYTES = 16
MESSAGE_BYTES_MAX = 65535  # of any message, with its tag
HANDSHAKE_BYTES = PUBLIC_BYTES + TAG_BYTES  # of a handshake message without payload
_LAST_NONCE = 2**64 - 1  # for `rekey` only


class CipherState:
    """A key, and the number of the next message."""

    def __init__(self, key: bytes) -> None:
        self.n = 0
        self._use(key)

    def _use(self, key: bytes) -> None:
        self.k = key
        self._cipher = AESGCM(key)

    def encrypt(self, plain: bytes, ad: bytes = b"") -> bytes:
        return self._cipher.encrypt(self._nonce(), plain, ad)

    def encrypt_into(self, plain: bytes | bytearray | memoryview, into: memoryview) -> None:
        """`into` has room for the tag behind the plain bytes."""
        self._cipher.encrypt_into(self._nonce(), plain, b"", into)

    def decrypt(self, sealed: bytes | memoryview, ad: bytes = b"") -> bytes:
        """Raises InvalidTag. Nothing may be decrypted afterwards."""
        return self._cipher.decrypt(self._nonce(), sealed, ad)

    def decrypt_into(self, sealed: memoryview, into: memoryview) -> None:
        """Raises InvalidTag; `into` is worth nothing then. Nothing may be decrypted afterwards."""
        self._cipher.decrypt_into(self._nonce(), sealed, b"", into)

    def rekey(self) -> None:
        """Replaces the key. Nobody can compute the former one from it. The numbers of messages go on."""
        self._use(self._cipher.encrypt(_nonce(_LAST_NONCE), bytes(KEY_BYTES), b"")[:KEY_BYTES])

    def _nonce(self) -> bytes:
        n = self.n
        if n == _LAST_NONCE:
            raise OverflowError("a key has encrypted as many messages as Noise allows")
        self.n = n + 1
        return _nonce(n)


def _nonce(n: int) -> bytes:
    return n.to_bytes(12, "big")  # 32 bits of zeros, then 64 bits, big-endian


class Handshake:
    """One end. The initiator writes the first message and reads the second one; the responder does the opposite.

    The reading methods raise InvalidTag unless the other end has the same psk and prologue.
    """

    def __init__(self, psk: bytes, prologue: bytes, ephemeral: X25519PrivateKey) -> None:
        self._psk = psk
        self._e = ephemeral
        self.h = self._ck = PROTOCOL_NAME.encode()
        self._cipher: CipherState | None = None
        self._mix_hash(prologue)

    def write_first(self, payload: bytes = b"") -> bytes:
        self._mix_key_and_hash(self._psk)
        public = self._own_public()
        return public + self._encrypt_and_hash(payload)

    def read_first(self, message: bytes) -> bytes:
        """Returns the payload."""
        self._mix_key_and_hash(self._psk)
        self._their_public(message)
        return self._decrypt_and_hash(message[PUBLIC_BYTES:])

    def write_second(self, payload: bytes = b"") -> bytes:
        public = self._own_public()
        self._mix_ee()
        return public + self._encrypt_and_hash(payload)

    def read_second(self, message: bytes) -> bytes:
        """Returns the payload."""
        self._their_public(message)
        self._mix_ee()
        return self._decrypt_and_hash(message[PUBLIC_BYTES:])

    def split(self) -> tuple[CipherState, CipherState]:
        """The ciphers of the initiator's and of the responder's messages."""
        first, second = _hkdf(self._ck, b"", 2)
        return CipherState(first), CipherState(second)

    # ------------------------------------------------------------ tokens

    def _own_public(self) -> bytes:
        public = self._e.public_key().public_bytes_raw()
        self._mix_public(public)
        return public

    def _their_public(self, message: bytes) -> None:
        self._re = message[:PUBLIC_BYTES]
        self._mix_public(self._re)

    def _mix_public(self, public: bytes) -> None:
        """The token `e`. With a psk the public key goes into the chaining key, too (section 9.2)."""
        self._mix_hash(public)
        self._mix_key(public)

    def _mix_ee(self) -> None:
        try:
            shared = self._e.exchange(X25519PublicKey.from_public_bytes(self._re))
        except ValueError:  # not a public key, or one whose products are all zero
            raise InvalidTag from None
        self._mix_key(shared)

    # ------------------------------------------------------------ the symmetric state

    def _mix_hash(self, data: bytes) -> None:
        digest = Hash(SHA256())
        digest.update(self.h + data)
        self.h = digest.finalize()

    def _mix_key(self, material: bytes) -> None:
        self._ck, key = _hkdf(self._ck, material, 2)
        self._cipher = CipherState(key)

    def _mix_key_and_hash(self, material: bytes) -> None:
        self._ck, hashed, key = _hkdf(self._ck, material, 3)
        self._mix_hash(hashed)
        self._cipher = CipherState(key)

    def _encrypt_and_hash(self, plain: bytes) -> bytes:
        assert self._cipher is not None
        sealed = self._cipher.encrypt(plain, self.h)
        self._mix_hash(sealed)
        return sealed

    def _decrypt_and_hash(self, sealed: bytes) -> bytes:
        assert self._cipher is not None
        plain = self._cipher.decrypt(sealed, self.h)
        self._mix_hash(sealed)
        return plain


def _hkdf(chaining_key: bytes, material: bytes, outputs: int) -> list[bytes]:
    made = HKDF(SHA256(), outputs * HASH_BYTES, salt=chaining_key, info=b"").derive(material)
    return [made[start : start + HASH_BYTES] for start in range(0, len(made), HASH_BYTES)]
