"""The transports that are compared, and how to name a variant of one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from rhino_core.errors import InvalidSettingError

KIB = 1024
BASELINE = "plain"


@dataclass(frozen=True, slots=True)
class Subject:
    """`bulk` and `commit` name what carries data files and small files. `piece_bytes`: bytes of a data file at once."""

    name: str
    way: str  # "plain", "tls", "records" or "grpc": requirement (a), (b), (c) and what is there now
    bulk: str
    commit: str
    piece_bytes: int
    encrypted: bool = True


_ALL = (
    Subject(BASELINE, "plain", "plain", "plain", 512 * KIB, encrypted=False),
    Subject("grpc_insecure", "grpc", "sync", "aio", 1024 * KIB, encrypted=False),
    Subject("grpc_aio", "grpc", "aio", "aio", 1024 * KIB),
    Subject("grpc_sync", "grpc", "sync", "sync", 1024 * KIB),
    Subject("grpc_mixed", "grpc", "sync", "aio", 1024 * KIB),
    Subject("tls_socket", "tls", "socket", "bio", 512 * KIB),
    Subject("tls_bio", "tls", "bio", "bio", 512 * KIB),
    Subject("tls_pyopenssl", "tls", "pyopenssl", "bio", 512 * KIB),
    Subject("records", "records", "records", "records", 512 * KIB),
)
SUBJECTS: Mapping[str, Subject] = {subject.name: subject for subject in _ALL}


def parse(text: str) -> Subject:
    """`records`, or `records@256` for pieces of 256 KiB. Raises InvalidSettingError."""
    name, _, kib = text.partition("@")
    if name not in SUBJECTS or (kib and not kib.isdecimal()):
        raise InvalidSettingError(f"{text!r}: expected one of {', '.join(SUBJECTS)}, perhaps with @ and KiB of a piece")
    subject = SUBJECTS[name]
    return replace(subject, name=text, piece_bytes=int(kib) * KIB) if kib else subject
