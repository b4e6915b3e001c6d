"""Common parts of all Rhino servers: guarded methods, health per service, reflection, graceful shutdown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import grpc
import grpc.aio
from grpc_health.v1 import _async as health_aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import _async as reflection_aio
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

from rhino_core.errors import UnavailableError
from rhino_core.rpc.binding import check_free
from rhino_core.rpc.channel import CALLS_MAX, SERVER_OPTIONS
from rhino_core.rpc.guard import authorized, guarded
from rhino_core.security.audit import AuditLog
from rhino_core.security.transport import PLAIN, Transport

READY = "ready"  # in gRPC health: the process and all that it depends on
HUNG_S = 60.0  # executors have long pauses


class Server:
    """A grpc.aio server with health and reflection. Methods with streaming replies must be async generators."""

    def __init__(
        self,
        *,
        transport: Transport = PLAIN,
        audit: AuditLog | None = None,
        reflect: bool = False,
        calls_max: int = CALLS_MAX,
        hung_s: float = HUNG_S,
    ) -> None:
        """`calls_max`: concurrent calls of one connection. Further ones wait at the client.

        `hung_s`: the connection of a client whose process hangs, though its machine answers, ends about so long after
        an unanswered probe.

        `audit`: None: audit lines go to the ordinary log only.
        """
        self._transport = transport
        self._audit = audit if audit is not None else AuditLog()
        limits = ("grpc.max_concurrent_streams", calls_max), ("grpc.http2.ping_timeout_ms", round(hung_s * 1000))
        self._server = grpc.aio.server(options=(*SERVER_OPTIONS, *limits))
        self._health: Any = health_aio.HealthServicer()
        self._reflect = reflect
        self._names: list[str] = []
        self._shown: dict[str, Any] = {}
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._allowed())

    def add(self, add_to_server: Callable[[Any, Any], None], servicer: Any, name: str) -> None:
        """Registers `servicer` by its generated add function. `name` is the full service name, for health."""
        add_to_server(servicer, guarded(self._server, self._transport, self._audit))
        self._names.append(name)

    def bind(self, address: str) -> int:
        """Binds "host:port" (port 0: a free one) or "unix:///path". Returns the port.

        Raises UnavailableError when it is in use, InvalidSettingError when this process cannot bind it.
        """
        if not address.startswith("unix:"):
            check_free(address)  # gRPC reports only that binding failed, and prints its own lines on stderr
        transport = PLAIN if address.startswith("unix:") else self._transport
        try:
            return transport.listen(self._server, address)
        except RuntimeError as error:
            raise UnavailableError(f"cannot listen on {address}: {error}") from error

    async def start(self) -> None:
        """Starts serving. In health, everything is NOT_SERVING until `ready` or `report` is called."""
        if self._reflect:
            names: Sequence[str] = [*self._names, health.SERVICE_NAME, reflection.SERVICE_NAME]
            servicer = reflection_aio.ReflectionServicer(names)
            reflection_pb2_grpc.add_ServerReflectionServicer_to_server(servicer, self._allowed())
        await self.report(alive=False, ready=False)
        await self._server.start()

    def _allowed(self) -> Any:
        return authorized(self._server, self._transport, self._audit)

    async def ready(self) -> None:
        await self.report(alive=True, ready=True)

    async def report(self, *, alive: bool, ready: bool) -> None:
        """Sets the health: `alive` of the server and each service, `ready` of the name READY."""
        wanted = dict.fromkeys(("", *self._names), alive) | {READY: ready}
        for name, good in wanted.items():
            status = health_pb2.HealthCheckResponse.SERVING if good else health_pb2.HealthCheckResponse.NOT_SERVING
            if self._shown.get(name) != status:
                self._shown[name] = status
                await self._health.set(name, status)

    async def stop(self, grace_s: float) -> None:
        """Refuses new calls at once and gives running calls `grace_s` seconds."""
        await self._health.enter_graceful_shutdown()
        await self._server.stop(grace_s)
