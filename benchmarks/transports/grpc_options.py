"""Channels and servers over mTLS, with the options that the data path is tried with."""

from __future__ import annotations

from collections.abc import Sequence

import grpc

from benchmarks.transports.certificates import Identity
from rhino_core.rpc.channel import CHANNEL_OPTIONS, SERVER_OPTIONS

SERVICE = "rhino.benchmark.Transports"
BULK, COMMIT, TICKET = "Bulk", "Commit", "Ticket"
MIB = 1024 * 1024
# Fewer and larger frames, reads and writes than by default (16 KiB frames, 8 KiB reads at first).
DATA_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.http2.max_frame_size", MIB),
    ("grpc.http2.lookahead_bytes", 16 * MIB),
    ("grpc.http2.write_buffer_size", MIB),
    ("grpc.experimental.tcp_read_chunk_size", MIB),
    ("grpc.experimental.tcp_min_read_chunk_size", MIB),
    ("grpc.experimental.tcp_max_read_chunk_size", 4 * MIB),
)
Options = Sequence[tuple[str, int]]


def channel_options(more: Options) -> Options:
    return _merged(CHANNEL_OPTIONS, more)


def server_options(more: Options) -> Options:
    return _merged((*SERVER_OPTIONS, ("grpc.max_receive_message_length", 64 * MIB), ("grpc.http2.bdp_probe", 0)), more)


def _merged(options: Options, more: Options) -> Options:
    """The later ones count."""
    return tuple((dict(options) | dict(DATA_OPTIONS) | dict(more)).items())


def channel_credentials(identity: Identity) -> grpc.ChannelCredentials:
    key, certificate = identity.key.read_bytes(), identity.certificate.read_bytes()
    return grpc.ssl_channel_credentials(identity.authority.read_bytes(), key, certificate)


def server_credentials(identity: Identity) -> grpc.ServerCredentials:
    pair = identity.key.read_bytes(), identity.certificate.read_bytes()
    return grpc.ssl_server_credentials([pair], identity.authority.read_bytes(), require_client_auth=True)


def identity_of(data: bytes) -> bytes:
    """Serializer and deserializer: messages are bytes already."""
    return data
