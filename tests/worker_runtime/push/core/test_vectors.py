"""The published test vectors of encrypted push streams, against the code and against a second implementation.

The second one has HKDF from `hmac`, and GCM from AES blocks and GHASH as NIST SP 800-38D writes it. `python -m
tests.worker_runtime.push.core.test_vectors` makes the file anew, with the second one. Do so only if the protocol has
another label.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import struct
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from worker_runtime.push.core.keys import Handshake, traffic_keys
from worker_runtime.push.core.records import Limits, receiver_ends, sender_ends

VECTORS = Path(__file__).with_name("vectors.json")
LABEL = b"rhino push v1"
ONE_RECORD = Limits(records=2)  # the third record has the second key


def hkdf_expand(key: bytes, info: bytes, size: int) -> bytes:
    made = block = b""
    while len(made) < size:
        block = hmac.digest(key, block + info + bytes([len(made) // 32 + 1]), "sha256")
        made += block
    return made[:size]


def hkdf(secret: bytes, salt: bytes, info: bytes, size: int) -> bytes:
    return hkdf_expand(hmac.digest(salt, secret, "sha256"), info, size)


def aes_gcm(key: bytes, nonce: bytes, plain: bytes, associated: bytes) -> bytes:
    """Ciphertext and tag."""

    def block(data: bytes) -> bytes:
        return Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(data)

    def times(x: int, y: int) -> int:
        product = 0
        for bit in range(127, -1, -1):
            product ^= y * (x >> bit & 1)
            y = y >> 1 ^ 0xE1 << 120 if y & 1 else y >> 1
        return product

    counted = b"".join(block(nonce + struct.pack(">I", 2 + number)) for number in range((len(plain) + 15) // 16))
    sealed = bytes(a ^ b for a, b in zip(plain, counted, strict=False))
    hashed, h = 0, int.from_bytes(block(bytes(16)), "big")
    padded = [data + bytes(-len(data) % 16) for data in (associated, sealed)]
    text = b"".join(padded) + struct.pack(">QQ", 8 * len(associated), 8 * len(sealed))
    for start in range(0, len(text), 16):
        hashed = times(hashed ^ int.from_bytes(text[start : start + 16], "big"), h)
    mask = int.from_bytes(block(nonce + struct.pack(">I", 1)), "big")
    return sealed + (hashed ^ mask).to_bytes(16, "big")


def second_implementation(given: dict[str, Any]) -> dict[str, Any]:
    secret, stream_id = bytes.fromhex(given["secret"]), bytes.fromhex(given["stream_id"])
    randoms = bytes.fromhex(given["sender_random"]), bytes.fromhex(given["receiver_random"])
    texts = [given[name].encode() for name in ("suite", "lane", "sender", "receiver")]
    fields = (LABEL, texts[0], stream_id, *texts[1:], *randoms)
    transcript = hashlib.sha256(b"".join(struct.pack("<I", len(field)) + field for field in fields)).digest()
    traffic = hkdf(secret, randoms[0] + randoms[1], LABEL + b" traffic" + transcript, 64)
    found: dict[str, Any] = {"transcript": transcript.hex()}
    for name, traffic_secret in (("from_sender", traffic[:32]), ("from_receiver", traffic[32:])):
        keys, records = [], []
        contents = [(1, transcript), *((0, bytes.fromhex(plain)) for plain in given["plain"])]
        for number, (kind, plain) in enumerate(contents):
            if number and number % ONE_RECORD.records == 0:
                traffic_secret = hkdf_expand(traffic_secret, LABEL + b" next", 32)
            key = hkdf_expand(traffic_secret, LABEL + b" key", 16)
            salt = hkdf_expand(traffic_secret, LABEL + b" salt", 12)
            keys.append({"traffic_secret": traffic_secret.hex(), "key": key.hex(), "salt": salt.hex()})
            head = struct.pack("<IIQ", len(plain), kind, number)
            nonce = bytes(a ^ b for a, b in zip(salt, number.to_bytes(12, "big"), strict=True))
            sealed = aes_gcm(key, nonce, plain, head)
            records.append({"number": number, "nonce": nonce.hex(), "record": (head + sealed).hex()})
        found[name] = {"keys": keys[:: ONE_RECORD.records], "records": records}
    return found


def handshake_of(given: dict[str, Any]) -> Handshake:
    suite, lane, sender, receiver = (given[name] for name in ("suite", "lane", "sender", "receiver"))
    stream_id, *randoms = (bytes.fromhex(given[name]) for name in ("stream_id", "sender_random", "receiver_random"))
    return Handshake(suite, stream_id, lane, sender, receiver, *randoms)


def cases() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(VECTORS.read_text())["vectors"]
    assert len(found) == len(GIVEN)
    return found


def test_the_second_implementation_agrees_with_the_vectors() -> None:
    for case in cases():
        assert second_implementation(case["given"]) == case["expected"]


def test_the_second_implementation_agrees_with_nist() -> None:
    """Test case 4 of the GCM specification: 60 bytes of text, 20 of associated data."""
    key, nonce = bytes.fromhex("feffe9928665731c6d6a8f9467308308"), bytes.fromhex("cafebabefacedbaddecaf888")
    plain = bytes.fromhex(
        "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657"
        "ba637b39"
    )
    sealed = aes_gcm(key, nonce, plain, bytes.fromhex("feedfacedeadbeeffeedfacedeadbeefabaddad2"))
    assert sealed[-16:].hex() == "5bc94fbc3221a5db94fae95ae7121a47"


def test_the_code_agrees_with_the_vectors() -> None:
    for case in cases():
        given, expected = case["given"], case["expected"]
        handshake, secret = handshake_of(given), bytes.fromhex(given["secret"])
        transcript = handshake.transcript()
        assert transcript.hex() == expected["transcript"]
        for key, name in zip(traffic_keys(secret, handshake), ("from_sender", "from_receiver"), strict=True):
            for stated in expected[name]["keys"]:
                assert (key.key.hex(), key.salt.hex()) == (stated["key"], stated["salt"])
                key = key.next()
        sender, receiver = (ends(secret, handshake, ONE_RECORD) for ends in (sender_ends, receiver_ends))
        for name, (sealer, _), (_, opener) in (("from_sender", sender, receiver), ("from_receiver", receiver, sender)):
            made = [sealer.finished(transcript)]
            opener.check_finished(made[0], transcript)
            for plain in given["plain"]:
                made.append(b"".join(sealer.seal(bytes.fromhex(plain))))
                assert opener.feed(made[-1]).hex() == plain
            assert [record.hex() for record in made] == [stated["record"] for stated in expected[name]["records"]]


GIVEN = [
    {
        "suite": "aes-128-gcm-sha256",
        "secret": bytes(range(32)).hex(),
        "stream_id": bytes(range(100, 116)).hex(),
        "lane": "commit",
        "sender": "rhino://c/worker/a",
        "receiver": "rhino://c/worker/b",
        "sender_random": bytes(range(32, 64)).hex(),
        "receiver_random": bytes(range(64, 96)).hex(),
        "plain": ["00", b"state of a stream".hex(), bytes(range(256)).hex()],
    },
    {
        "suite": "aes-128-gcm-sha256",
        "secret": "ff" * 32,
        "stream_id": "00" * 16,
        "lane": "bulk",
        "sender": "rhino://prod-7/worker/node-12.example",
        "receiver": "rhino://prod-7/worker/node-3.example",
        "sender_random": "ab" * 32,
        "receiver_random": "00" * 32,
        "plain": ["ff" * 16, "00" * 33, "5a"],
    },
]

if __name__ == "__main__":
    made = [{"given": given, "expected": second_implementation(given)} for given in GIVEN]
    about = "Bytes in hexadecimal. A key is replaced after 2 records here, and after 2^32 records or 2^40 bytes in use."
    VECTORS.write_text(json.dumps({"protocol": LABEL.decode(), "about": about, "vectors": made}, indent=1) + "\n")
