"""Common parts of all Rhino servers: gate, status mapping, health per service, reflection, graceful shutdown."""

from __future__ import annotations

import logging
import secrets
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from grpc_health.v1 import _async as health_aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from rhino_core.errors import InvalidRequestError, RhinoError, UnavailableError
from rhino_core.rpc import gate
from rhino_core.rpc.binding import check_free
from rhino_core.rpc.channel import REQUEST_BYTES_MAX, SERVER_OPTIONS
from rhino_core.rpc.status import status_of

log = logging.getLogger(__name__)
# Calls by which people change a cluster. The log records the address of the caller.
ASKED_BY_PEOPLE = frozenset(
    {
        *("StartHandover", "CancelHandover", "DrainWorker", "MoveCheckpoint"),
        *("ForgetJob", "ForgetJobLater", "UndoForgetJob", "ForgetWorker", "StartScrub"),
    }
)
READY = "ready"  # in gRPC health: the process and all that it depends on
REQUEST_CHARACTERS = 500  # length of a request in the log
DETAILS_BYTES = 2000
# A sidecar may report all its stored files, or a driver all its stores, so some servers accept larger requests.
LARGE_REQUESTS = frozenset(
    {
        "/rhino.v1.ReplicationManager/Register",
        "/rhino.v1.ReplicationManager/Heartbeat",
        "/rhino.v1.HandoverManager/DriverSession",
    }
)
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class _Guarded:
    """Stands in for the server in a generated add function, so that methods are wrapped once, not at every call."""

    def __init__(self, server: grpc.aio.Server) -> None:
        self._server = server

    def add_generic_rpc_handlers(self, handlers: Sequence[grpc.GenericRpcHandler[Any, Any]]) -> None:
        """Does nothing: the same methods are also registered by name."""

    def add_registered_method_handlers(
        self, service: str, handlers: dict[str, grpc.RpcMethodHandler[Any, Any]]
    ) -> None:
        guarded = {name: _guarded(f"/{service}/{name}", handler) for name, handler in handlers.items()}
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, guarded),))
        self._server.add_registered_method_handlers(service, guarded)  # type: ignore[attr-defined]  # not in the stubs


def _guarded(method: str, handler: Any) -> grpc.RpcMethodHandler[Any, Any]:
    """Returns the handler behind the gate. Its exceptions become a gRPC status."""
    coders = _readable(method, handler.request_deserializer), handler.response_serializer
    match handler.request_streaming, handler.response_streaming:
        case False, False:
            return grpc.unary_unary_rpc_method_handler(_guard_unary(method, handler.unary_unary), *coders)
        case True, False:
            return grpc.stream_unary_rpc_method_handler(_guard_unary(method, handler.stream_unary), *coders)
        case False, True:
            return grpc.unary_stream_rpc_method_handler(_guard_stream(method, handler.unary_stream), *coders)
        case _:
            return grpc.stream_stream_rpc_method_handler(_guard_stream(method, handler.stream_stream), *coders)


@dataclass(frozen=True, slots=True)
class _Unreadable:
    """Replaces a request that cannot be parsed. Otherwise gRPC would log a stack trace for each one."""

    reason: str


def _readable(method: str, deserializer: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    def read(data: bytes) -> Any:
        if len(data) > REQUEST_BYTES_MAX and method not in LARGE_REQUESTS:
            return _Unreadable(f"{len(data)} bytes, at most {REQUEST_BYTES_MAX} are allowed")
        try:
            return deserializer(data)
        except DecodeError as error:
            return _Unreadable(str(error))

    return read


def _admitted(request: Any) -> Any:
    """Checks one message, or wraps a stream of them. Raises InvalidRequestError; for a stream, while it is read."""
    if isinstance(request, AsyncIterator):
        return _each_admitted(request)
    if isinstance(request, _Unreadable):
        raise InvalidRequestError(f"not a request of this method: {request.reason}")
    gate.check(request)
    return request


async def _each_admitted(requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
    async for request in requests:
        yield _admitted(request)


def _guard_unary(method: str, inner: Any) -> Callable[[Any, Context], Awaitable[Any]]:
    told = method.rpartition("/")[2] in ASKED_BY_PEOPLE

    async def guarded(request: Any, context: Context) -> Any:
        try:
            admitted = _admitted(request)
            if told:
                asked = " ".join(str(admitted).split())[:REQUEST_CHARACTERS]
                log.info("asked", extra={"method": method, "from": context.peer(), "request": asked})
            return await inner(admitted, context)
        except Exception as error:
            await context.abort(*_verdict(method, context, error))

    return guarded


def _guard_stream(method: str, inner: Any) -> Callable[[Any, Context], AsyncIterator[Any]]:
    async def guarded(request: Any, context: Context) -> AsyncIterator[Any]:
        try:
            async for reply in inner(_admitted(request), context):
                yield reply
        except Exception as error:
            await context.abort(*_verdict(method, context, error))

    return guarded


_traced: set[tuple[str, str]] = set()  # bugs whose stack trace was logged: a caller may repeat its call forever


def _verdict(method: str, context: Context, error: Exception) -> tuple[grpc.StatusCode, str]:
    """Returns status and text for the caller, and writes a log line.

    An error that is not a RhinoError is a bug. The caller then gets only a number, and the log has the details.
    """
    extra = {"method": method, "from": context.peer(), "error": shortened(str(error)), "kind": type(error).__name__}
    if isinstance(error, RhinoError):
        log.info("call refused", extra=extra)
        return status_of(error), extra["error"]
    number = secrets.token_hex(4)
    known = (method, f"{type(error).__name__} {traceback.extract_tb(error.__traceback__)[-1:]}")
    log.error("call failed", extra={**extra, "id": number}, exc_info=None if known in _traced else error)
    _traced.add(known)
    return grpc.StatusCode.INTERNAL, f"internal error {number}: look for this number in the log of the process"


def shortened(text: str) -> str:
    """Shortens an error text: it is sent in the headers of a reply, which may have 8 KiB in total."""
    encoded = text.encode(errors="replace")
    if len(encoded) <= DETAILS_BYTES:
        return text
    kept = encoded[:DETAILS_BYTES].decode(errors="ignore")
    return f"{kept}... (cut: {len(text)} characters in all; ask for less at a time)"


class Server:
    """A grpc.aio server with health and reflection. Methods with streaming replies must be async generators."""

    def __init__(self, *, reflect: bool = False, request_bytes_max: int = REQUEST_BYTES_MAX) -> None:
        """`request_bytes_max` limits one client message. Above REQUEST_BYTES_MAX it affects only LARGE_REQUESTS."""
        limit = ("grpc.max_receive_message_length", request_bytes_max)
        self._server = grpc.aio.server(options=(*SERVER_OPTIONS, limit))
        self._health: Any = health_aio.HealthServicer()
        self._reflect = reflect
        self._names: list[str] = []
        self._shown: dict[str, Any] = {}
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)

    def add(self, add_to_server: Callable[[Any, Any], None], servicer: Any, name: str) -> None:
        """Registers `servicer` by its generated add function. `name` is the full service name, for health."""
        add_to_server(servicer, _Guarded(self._server))
        self._names.append(name)

    def bind(self, address: str) -> int:
        """Binds "host:port" (port 0: a free one) or "unix:///path". Returns the port.

        Raises UnavailableError when it is in use, InvalidSettingError when this process cannot bind it.
        """
        if not address.startswith("unix:"):
            check_free(address)  # gRPC reports only that binding failed, and prints its own lines on stderr
        try:
            return self._server.add_insecure_port(address)
        except RuntimeError as error:
            raise UnavailableError(f"cannot listen on {address}: {error}") from error

    async def start(self) -> None:
        """Starts serving. In health, everything is NOT_SERVING until `ready` or `report` is called."""
        if self._reflect:
            names: Sequence[str] = [*self._names, health.SERVICE_NAME, reflection.SERVICE_NAME]
            reflection.enable_server_reflection(names, self._server)
        await self.report(alive=False, ready=False)
        await self._server.start()

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
