"""What every Rhino server has: status mapping, health per service, reflection, a clean stop."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import grpc
import grpc.aio
from grpc_health.v1 import _async as health_aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from rhino.errors import RhinoError
from rhino.rpc.channel import SERVER_OPTIONS
from rhino.rpc.status import status_of

log = logging.getLogger(__name__)


class _Guarded:
    """Stands for the server in a generated add function: its methods get guards once, not with every call."""

    def __init__(self, server: grpc.aio.Server) -> None:
        self._server = server

    def add_generic_rpc_handlers(self, handlers: Sequence[grpc.GenericRpcHandler[Any, Any]]) -> None:
        """Nothing: the same methods come by name as well."""

    def add_registered_method_handlers(
        self, service: str, handlers: dict[str, grpc.RpcMethodHandler[Any, Any]]
    ) -> None:
        guarded = {name: _guarded(f"/{service}/{name}", handler) for name, handler in handlers.items()}
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, guarded),))
        self._server.add_registered_method_handlers(service, guarded)  # type: ignore[attr-defined]  # not in the stubs


def _guarded(method: str, handler: Any) -> grpc.RpcMethodHandler[Any, Any]:
    """The handler with a RhinoError turned into its gRPC status, with the error's message as details."""
    coders = handler.request_deserializer, handler.response_serializer
    match handler.request_streaming, handler.response_streaming:
        case False, False:
            return grpc.unary_unary_rpc_method_handler(_guard_unary(method, handler.unary_unary), *coders)
        case True, False:
            return grpc.stream_unary_rpc_method_handler(_guard_unary(method, handler.stream_unary), *coders)
        case False, True:
            return grpc.unary_stream_rpc_method_handler(_guard_stream(method, handler.unary_stream), *coders)
        case _:
            return grpc.stream_stream_rpc_method_handler(_guard_stream(method, handler.stream_stream), *coders)


def _guard_unary(method: str, inner: Any) -> Callable[[Any, grpc.aio.ServicerContext[Any, Any]], Awaitable[Any]]:
    async def guarded(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        try:
            return await inner(request, context)
        except RhinoError as error:
            log.info("call refused", extra={"method": method, "error": str(error), "kind": type(error).__name__})
            await context.abort(status_of(error), str(error))

    return guarded


def _guard_stream(method: str, inner: Any) -> Callable[[Any, grpc.aio.ServicerContext[Any, Any]], AsyncIterator[Any]]:
    async def guarded(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[Any]:
        try:
            async for reply in inner(request, context):
                yield reply
        except RhinoError as error:
            log.info("stream refused", extra={"method": method, "error": str(error), "kind": type(error).__name__})
            await context.abort(status_of(error), str(error))

    return guarded


class Server:
    """A grpc.aio server with health and reflection. Services must be async generators for streaming replies."""

    def __init__(self, *, reflect: bool = True) -> None:
        self._server = grpc.aio.server(options=SERVER_OPTIONS)
        self._health: Any = health_aio.HealthServicer()
        self._reflect = reflect
        self._names: list[str] = []
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)

    def add(self, add_to_server: Callable[[Any, Any], None], servicer: Any, name: str) -> None:
        """Registers `servicer` by its generated add function; `name` is the full service name, for health."""
        add_to_server(servicer, _Guarded(self._server))
        self._names.append(name)

    def bind(self, address: str) -> int:
        """Binds "host:port" (port 0: a free one) or "unix:///path"; returns the port. RuntimeError if taken."""
        return self._server.add_insecure_port(address)

    async def start(self) -> None:
        """Serves with every service NOT_SERVING in health until `ready` is called."""
        if self._reflect:
            names: Sequence[str] = [*self._names, health.SERVICE_NAME, reflection.SERVICE_NAME]
            reflection.enable_server_reflection(names, self._server)
        for name in ("", *self._names):
            await self._health.set(name, health_pb2.HealthCheckResponse.NOT_SERVING)
        await self._server.start()

    async def ready(self) -> None:
        for name in ("", *self._names):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)

    async def stop(self, grace_s: float) -> None:
        """Refuses new calls at once, gives running ones `grace_s` seconds."""
        await self._health.enter_graceful_shutdown()
        await self._server.stop(grace_s)
