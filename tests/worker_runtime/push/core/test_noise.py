"""The Noise handshake and its ciphers, against public test vectors and against its own two ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from worker_runtime.push.core.noise import (
    HANDSHAKE_BYTES,
    PROTOCOL_NAME,
    PSK_BYTES,
    PUBLIC_BYTES,
    CipherState,
    Handshake,
)

VECTORS = Path(__file__).with_name("noise_vectors.json")
PSK, PROLOGUE = bytes(range(PSK_BYTES)), b"prologue"
# The next key of a cipher with the key PSK. `rekey` of another implementation, noiseprotocol 0.3.1, has made it.
REKEYED = "0201675c87335949b909793da5bb4d92fcf6d44b92a6e0792b6ae48b1881259d"


def ends(psks: tuple[bytes, bytes] = (PSK, PSK), prologues: tuple[bytes, bytes] = (PROLOGUE, PROLOGUE)) -> Any:
    return [Handshake(*given, X25519PrivateKey.generate()) for given in zip(psks, prologues, strict=True)]


def given(vector: dict[str, Any], end: str) -> Handshake:
    (psk,) = vector[f"{end}_psks"]
    ephemeral = X25519PrivateKey.from_private_bytes(bytes.fromhex(vector[f"{end}_ephemeral"]))
    return Handshake(bytes.fromhex(psk), bytes.fromhex(vector[f"{end}_prologue"]), ephemeral)


def test_the_code_agrees_with_public_vectors() -> None:
    """Those of the library cacophony: two messages of the handshake, then messages of both ends in turns."""
    (vector,) = json.loads(VECTORS.read_text())["vectors"]
    assert vector["protocol_name"] == PROTOCOL_NAME
    messages = [(bytes.fromhex(one["payload"]), bytes.fromhex(one["ciphertext"])) for one in vector["messages"]]
    sender, receiver = given(vector, "init"), given(vector, "resp")
    (first, first_sent), (second, second_sent), *others = messages
    assert sender.write_first(first) == first_sent
    assert receiver.read_first(first_sent) == first
    assert receiver.write_second(second) == second_sent
    assert sender.read_second(second_sent) == second
    assert sender.h.hex() == receiver.h.hex() == vector["handshake_hash"]
    assert len(others) == 4
    sealing = sender.split()[0], receiver.split()[1]
    opening = receiver.split()[0], sender.split()[1]
    for number, (plain, sealed) in enumerate(others):
        assert sealing[number % 2].encrypt(plain) == sealed
        assert opening[number % 2].decrypt(sealed) == plain


def test_bytes_in_a_buffer_are_encrypted_as_others_are() -> None:
    one, two, opener = (CipherState(PSK) for _ in range(3))
    for plain in (b"state", bytes(1000)):
        sealed, opened = memoryview(bytearray(len(plain) + 16)), memoryview(bytearray(len(plain)))
        one.encrypt_into(plain, sealed)
        assert bytes(sealed) == two.encrypt(plain)
        opener.decrypt_into(sealed, opened)
        assert bytes(opened) == plain


def test_a_new_key_is_that_of_the_specification() -> None:
    """And numbers go on (sections 4.2 and 11.3)."""
    cipher = CipherState(PSK)
    cipher.encrypt(b"x")
    cipher.rekey()
    assert cipher.k.hex() == REKEYED
    assert cipher.n == 1


def test_the_number_of_new_keys_encrypts_no_message() -> None:
    cipher = CipherState(PSK)
    cipher.n = 2**64 - 2
    cipher.encrypt(b"")
    with pytest.raises(OverflowError):
        cipher.encrypt(b"")


def test_both_ends_come_to_the_same_keys() -> None:
    sender, receiver = ends()
    first = sender.write_first()
    assert receiver.read_first(first) == b""
    second = receiver.write_second()
    assert sender.read_second(second) == b""
    assert len(first) == len(second) == HANDSHAKE_BYTES
    assert [cipher.k for cipher in sender.split()] == [cipher.k for cipher in receiver.split()]
    assert sender.split()[0].k != sender.split()[1].k


def test_no_two_handshakes_have_the_same_keys() -> None:
    """Also with the same psk: so it does not help to learn that later."""
    keys = set()
    for _ in range(3):
        sender, receiver = ends()
        receiver.read_first(sender.write_first())
        sender.read_second(receiver.write_second())
        keys |= {cipher.k for cipher in sender.split()}
    assert len(keys) == 6


@pytest.mark.parametrize(
    "others",
    [{"psks": (PSK, PSK[::-1])}, {"prologues": (PROLOGUE, b"another stream")}],
    ids=["psk", "prologue"],
)
def test_ends_that_differ_do_not_meet(others: dict[str, tuple[bytes, bytes]]) -> None:
    """The receiver notices it by the first message, and the sender by the reply of a receiver that goes on."""
    sender, receiver = ends(**others)
    with pytest.raises(InvalidTag):
        receiver.read_first(sender.write_first())
    with pytest.raises(InvalidTag):
        sender.read_second(receiver.write_second())


@pytest.mark.parametrize("which", ["first", "second"])
def test_no_bit_of_a_handshake_may_change(which: str) -> None:
    for bit in range(8 * HANDSHAKE_BYTES):
        sender, receiver = ends()
        message = sender.write_first()
        reader = receiver.read_first
        if which == "second":
            receiver.read_first(message)
            message, reader = receiver.write_second(), sender.read_second
        changed = bytearray(message)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(InvalidTag):
            reader(bytes(changed))


def test_a_public_key_of_zeros_opens_nothing() -> None:
    sender, receiver = ends()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sender, "_own_public", lambda: sender._mix_public(bytes(PUBLIC_BYTES)) or bytes(PUBLIC_BYTES))
        first = sender.write_first()
    receiver.read_first(first)
    with pytest.raises(InvalidTag):
        receiver.write_second()
