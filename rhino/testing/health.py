"""Checks whether a Rhino process serves."""

from __future__ import annotations

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from rhino.client.connection import transport
from rhino_core.rpc.channel import sync_channel
from rhino_core.security.transport import THE_MANAGER, Expected


def serving(address: str, expected: Expected = THE_MANAGER, *, timeout_s: float = 2.0) -> bool:
    """Whether the server at "host:port" or "unix:///path" reports SERVING. False if it cannot be reached."""
    with sync_channel(address, transport(), expected) as channel:
        try:
            reply = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=timeout_s)
        except grpc.RpcError as error:
            if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                return False
            raise
    return bool(reply.status == health_pb2.HealthCheckResponse.SERVING)
