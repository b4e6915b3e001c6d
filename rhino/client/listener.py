"""Identifies the listener on the supposed address of a manager, for a clear error message."""

from __future__ import annotations

import http.client
import socket

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from rhino.client.connection import manager_channel, transport
from rhino_core.security.transport import PLAIN

TIMEOUT_S = 2.0
BODY_BYTES_MAX = 1_000_000
MANAGER_SERVICE, PEER_SERVICE = "rhino.v1.HandoverManager", "rhino.v1.Peer"


def describe_listeners(addresses: str) -> str:
    """Describes the processes on one or several "host:port". Empty if one of them is a manager, or unknown."""
    first, *others = addresses.split(",")
    if not others:
        return describe_listener(first)
    found = {address: describe_listener(address) for address in (first, *others)}
    return "; ".join(f"{address}: {text}" for address, text in found.items()) if all(found.values()) else ""


def describe_listener(address: str) -> str:
    """Describes the process that listens on "host:port". Empty if it is a manager, or unknown."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), TIMEOUT_S).close()
    except socket.gaierror:
        return f"the name {host} cannot be resolved"
    except ConnectionRefusedError:
        return f"nothing listens on port {port}; is it running, and is this its --listen address?"
    except OSError as error:
        return f"the host does not answer ({error.strerror or error})"
    return _of_http(address) or _of_grpc(address)


def _of_http(address: str) -> str:
    connection = http.client.HTTPConnection(address, timeout=TIMEOUT_S)
    try:
        connection.request("GET", "/metrics")
        body = connection.getresponse().read(BODY_BYTES_MAX).decode(errors="replace")
    except (OSError, http.client.HTTPException):
        return ""  # no HTTP at all
    finally:
        connection.close()
    if "\nrhino_" not in body:
        return "an HTTP server answers there"
    owner = "sidecar" if "rhino_stored_bytes" in body else "manager"
    return f"this is the metrics port of a {owner}; give the address of --listen of the manager"


def _not_ours() -> str:
    if transport() is PLAIN:
        return "asks for a certificate: give --cluster-key or --tls-dir"
    return "does not accept this command's certificate: it may have another authority, or no TLS at all"


def _of_grpc(address: str) -> str:
    with manager_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for service, found in ((MANAGER_SERVICE, ""), (PEER_SERVICE, "a Rhino sidecar answers there")):
            try:
                stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=TIMEOUT_S)
            except grpc.RpcError as error:
                if error.code() is grpc.StatusCode.NOT_FOUND:
                    continue
                if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                    return "a gRPC server that is not Rhino's answers there"
                return f"a process accepts connections there, but does not speak gRPC in time, or {_not_ours()}"
            return found
    return "a gRPC server that is not a manager answers there"
