"""Sessions over TLS 1.3 with both certificates checked: by a socket, by memory, and by pyOpenSSL.

All three speak the same protocol. They differ in system calls, in copies, and in the OpenSSL that they are linked to.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Sequence
from typing import Any

from OpenSSL import SSL

from benchmarks.transports.certificates import HOST, Identity
from worker_runtime.push.sockets import send_all

WIRE_BYTES = 256 * 1024  # read from the socket at once
RECORD_BYTES = 16 * 1024  # OpenSSL returns one record of TLS at most
SUITE = "TLS_AES_128_GCM_SHA256"


def context(identity: Identity, *, server: bool) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    made.load_cert_chain(identity.certificate, identity.key)
    made.load_verify_locations(identity.authority)
    made.verify_mode = ssl.CERT_REQUIRED
    if server:
        made.num_tickets = 0  # a connection that is used in one direction never reads them
    return made


def _read_into(tls: ssl.SSLObject, view: memoryview) -> int:
    """The number of bytes read. Typeshed does not know that `read` returns it when it gets a buffer."""
    count: Any = tls.read(len(view), view)
    return int(count)


class SocketSession:
    """ssl.SSLSocket: two system calls for each record when it reads, one when it writes. For threads only."""

    def __init__(self, sock: socket.socket, made: ssl.SSLContext, *, server: bool) -> None:
        self._tls = made.wrap_socket(sock, server_side=server, server_hostname=None if server else HOST)
        self.sock: socket.socket = self._tls

    def send(self, head: bytes, data: memoryview) -> None:
        self._tls.sendall(head)
        self._tls.sendall(data)

    def fill(self, view: memoryview) -> None:
        while view:
            count = self._tls.recv_into(view)
            if count == 0:
                raise EOFError
            view = view[count:]

    def seal(self, data: bytes) -> Sequence[bytes]:
        raise NotImplementedError("an SSLSocket is for threads")

    def open(self, data: bytes) -> bytes:
        raise NotImplementedError("an SSLSocket is for threads")


class BioSession:
    """ssl.MemoryBIO: few system calls, one more copy."""

    def __init__(self, sock: socket.socket, made: ssl.SSLContext, *, server: bool) -> None:
        self.sock = sock
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        host = None if server else HOST
        self._tls = made.wrap_bio(self._incoming, self._outgoing, server_side=server, server_hostname=host)
        self._wire = memoryview(bytearray(WIRE_BYTES))
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._flush()
                self._receive()
            else:
                self._flush()
                return

    def send(self, head: bytes, data: memoryview) -> None:
        self._write(head)
        self._write(data)
        self._flush()

    def fill(self, view: memoryview) -> None:
        while view:
            try:
                count = _read_into(self._tls, view)
            except ssl.SSLWantReadError:
                self._receive()
                continue
            if count == 0:
                raise EOFError
            view = view[count:]

    def seal(self, data: bytes) -> Sequence[bytes]:
        self._write(data)
        return (self._outgoing.read(),)

    def open(self, data: bytes) -> bytes:
        self._incoming.write(data)
        found = []
        try:
            while piece := self._tls.read(RECORD_BYTES):
                found.append(piece)
        except ssl.SSLWantReadError:
            pass  # the rest has not arrived yet
        return b"".join(found)

    def _write(self, data: bytes | memoryview) -> None:
        view = memoryview(data)
        while view:
            view = view[self._tls.write(view) :]

    def _flush(self) -> None:
        send_all(self.sock, b"", memoryview(self._outgoing.read()))

    def _receive(self) -> None:
        count = self.sock.recv_into(self._wire)
        if count == 0:
            raise EOFError
        self._incoming.write(self._wire[:count])


def pyopenssl_context(identity: Identity, *, server: bool) -> SSL.Context:
    made = SSL.Context(SSL.TLS_SERVER_METHOD if server else SSL.TLS_CLIENT_METHOD)
    made.set_min_proto_version(SSL.TLS1_3_VERSION)
    made.set_tls13_ciphersuites(SUITE.encode())
    made.use_certificate_file(str(identity.certificate))
    made.use_privatekey_file(str(identity.key))
    made.load_verify_locations(str(identity.authority))
    made.set_verify(SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT)
    return made


class PyOpenSslSession:
    """pyOpenSSL over memory, with the OpenSSL of `cryptography`: newer and faster than that of many systems."""

    def __init__(self, sock: socket.socket, made: SSL.Context, *, server: bool) -> None:
        self.sock = sock
        self._tls = SSL.Connection(made)
        self._wire = memoryview(bytearray(WIRE_BYTES))
        if server:
            self._tls.set_accept_state()
        else:
            self._tls.set_connect_state()
        while True:
            try:
                self._tls.do_handshake()
            except SSL.WantReadError:
                self._flush()
                self._receive()
            else:
                self._flush()
                return

    def send(self, head: bytes, data: memoryview) -> None:
        if head:
            self._tls.sendall(head)
        if data:
            self._tls.sendall(data)
        self._flush()

    def fill(self, view: memoryview) -> None:
        while view:
            try:
                count = self._tls.recv_into(view, min(len(view), RECORD_BYTES))
            except SSL.WantReadError:
                self._receive()
                continue
            view = view[count:]

    def seal(self, data: bytes) -> Sequence[bytes]:
        raise NotImplementedError("small files use the ssl module")

    def open(self, data: bytes) -> bytes:
        raise NotImplementedError("small files use the ssl module")

    def _flush(self) -> None:
        try:
            while True:
                send_all(self.sock, b"", memoryview(self._tls.bio_read(1 << 20)))
        except SSL.WantReadError:
            return  # everything has been sent

    def _receive(self) -> None:
        count = self.sock.recv_into(self._wire)
        if count == 0:
            raise EOFError
        piece = self._wire[:count]
        while piece:
            piece = piece[self._tls.bio_write(piece) :]
