"""The gate before every method of a server: identity of the caller, form of the request, and the end of errors."""

from __future__ import annotations

import asyncio
import inspect
import logging
import secrets
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from rhino_core.descriptors import LogLimits
from rhino_core.errors import AccessDeniedError, InvalidRequestError, LocalProtocolError, RhinoError
from rhino_core.rpc import audited, gate
from rhino_core.rpc.parts import joined
from rhino_core.rpc.status import status_of
from rhino_core.security import rights
from rhino_core.security.audit import AuditLog
from rhino_core.security.identity import CALLER
from rhino_core.security.transport import PLAIN, Transport

log = logging.getLogger(__name__)
DETAILS_BYTES = 2000
RECHECK_S = 60.0  # of the certificate of a stream's caller
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class Wrapped:
    """Stands in for the server in a generated add function: methods are wrapped once, not at every call."""

    def __init__(self, server: grpc.aio.Server, wrap: Callable[[str, Any], Any]) -> None:
        self._server = server
        self._wrap = wrap

    def add_generic_rpc_handlers(self, handlers: Sequence[grpc.GenericRpcHandler[Any, Any]]) -> None:
        """Does nothing: the same methods are also registered by name."""

    def add_registered_method_handlers(
        self, service: str, handlers: dict[str, grpc.RpcMethodHandler[Any, Any]]
    ) -> None:
        wrapped = {name: self._wrap(f"/{service}/{name}", handler) for name, handler in handlers.items()}
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, wrapped),))
        self._server.add_registered_method_handlers(service, wrapped)  # type: ignore[attr-defined]  # not in the stubs


def guarded(server: grpc.aio.Server, transport: Transport, audit: AuditLog) -> Wrapped:
    """For services of Rhino: rights of the caller, gate, audit log, errors.

    Raises LocalProtocolError for a method without an entry in the table of rights, unless the transport is plain.
    """
    return Wrapped(server, lambda method, handler: _guarded(_Method(method, transport, audit), handler))


def authorized(server: grpc.aio.Server, transport: Transport, audit: AuditLog) -> Wrapped:
    """For services of others, such as health: rights of the caller only."""
    return Wrapped(server, lambda method, handler: _authorized(_Method(method, transport, audit), handler))


class _Method:
    """One method, and its allowed callers."""

    def __init__(self, name: str, transport: Transport, audit: AuditLog) -> None:
        if transport is not PLAIN and name not in rights.RIGHTS:
            raise LocalProtocolError(f"{name}: nobody has decided who may call it (rhino_core.security.rights)")
        self.name = name
        self._transport = transport
        self._audit = audit

    def begin(self, request: Any, context: Context) -> audited.Call:
        call = audited.Call(self._audit, self.name, context)
        call.asks(request)  # also for a caller who is refused
        return call

    def identify(self, call: audited.Call, context: Context) -> None:
        """Learns the identity of the caller, if possible. Raises AccessDeniedError for a caller without the right."""
        call.caller = self._transport.caller(context)
        if call.caller is not None:
            rights.check(self.name, call.caller)
        CALLER.set(call.caller)

    def admitted(self, request: Any, call: audited.Call) -> Any:
        """Checks one message, or wraps a stream of them. Raises RhinoErrors; for a stream, while it is read."""
        if isinstance(request, AsyncIterator):
            return self._each_admitted(request, call)
        if isinstance(request, _Unreadable):
            raise InvalidRequestError(f"not a request of this method: {request.reason}")
        gate.check(request)
        if call.caller is not None:
            rights.check(self.name, call.caller, request)
        return request

    async def _each_admitted(self, requests: AsyncIterator[Any], call: audited.Call) -> AsyncIterator[Any]:
        async for request in joined(requests):
            call.asks(request)
            yield self.admitted(request, call)


def _guarded(method: _Method, handler: Any) -> grpc.RpcMethodHandler[Any, Any]:
    """Returns the handler behind the gate. Its exceptions become a gRPC status."""
    coders = _readable(handler.request_deserializer), handler.response_serializer
    match handler.request_streaming, handler.response_streaming:
        case False, False:
            return grpc.unary_unary_rpc_method_handler(_guard_unary(method, handler.unary_unary), *coders)
        case True, False:
            return grpc.stream_unary_rpc_method_handler(_guard_unary(method, handler.stream_unary), *coders)
        case False, True:
            return grpc.unary_stream_rpc_method_handler(_guard_stream(method, handler.unary_stream), *coders)
        case _:
            return grpc.stream_stream_rpc_method_handler(_guard_stream(method, handler.stream_stream), *coders)


def _authorized(method: _Method, handler: Any) -> grpc.RpcMethodHandler[Any, Any]:
    """Returns the handler for callers with the right. Others get PERMISSION_DENIED."""
    coders = handler.request_deserializer, handler.response_serializer
    match handler.request_streaming, handler.response_streaming:
        case False, False:
            return grpc.unary_unary_rpc_method_handler(_allowed(method, handler.unary_unary), *coders)
        case False, True:
            return grpc.unary_stream_rpc_method_handler(_allowed(method, handler.unary_stream), *coders)
        case True, True:
            return grpc.stream_stream_rpc_method_handler(_allowed(method, handler.stream_stream), *coders)
        case _:
            raise LocalProtocolError(f"{method.name}: no service of others has such a method")


def _allowed(method: _Method, inner: Any) -> Any:
    async def once(request: Any, context: Context) -> Any:
        await _require(method, request, context)
        return await inner(request, context)  # a stream of replies may be written within

    async def streamed(request: Any, context: Context) -> AsyncIterator[Any]:
        await _require(method, request, context)
        async for reply in inner(request, context):
            yield reply

    return streamed if inspect.isasyncgenfunction(inner) else once


async def _require(method: _Method, request: Any, context: Context) -> None:
    call = method.begin(request, context)
    try:
        method.identify(call, context)
    except AccessDeniedError as error:
        await context.abort(*_verdict(method.name, context, error, call))


@dataclass(frozen=True, slots=True)
class _Unreadable:
    """Replaces an unparsable request. Otherwise gRPC would log a stack trace for each one."""

    reason: str


def _readable(deserializer: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    def read(data: bytes) -> Any:
        try:
            return deserializer(data)
        except DecodeError as error:
            return _Unreadable(str(error))

    return read


def _guard_unary(method: _Method, inner: Any) -> Callable[[Any, Context], Awaitable[Any]]:
    async def guarded(request: Any, context: Context) -> Any:
        call = method.begin(request, context)
        audited.begin(call)
        try:
            method.identify(call, context)
            reply = await inner(method.admitted(request, call), context)
        except asyncio.CancelledError:
            call.cancelled()
            raise
        except Exception as error:
            await context.abort(*_verdict(method.name, context, error, call))
        else:
            call.ended(reply)
            return reply

    return guarded


def _guard_stream(method: _Method, inner: Any) -> Callable[[Any, Context], AsyncIterator[Any]]:
    async def guarded(request: Any, context: Context) -> AsyncIterator[Any]:
        call = method.begin(request, context)
        audited.begin(call)
        ended = _Recheck(method, call, context)
        try:
            method.identify(call, context)
            ended.begin()
            async for reply in inner(method.admitted(request, call), context):
                call.answers()
                yield reply
        except (asyncio.CancelledError, GeneratorExit):
            if ended.reason is not None:
                await context.abort(*_verdict(method.name, context, ended.reason, call))
            call.cancelled()
            raise
        except Exception as error:
            await context.abort(*_verdict(method.name, context, error, call))
        else:
            call.ended()
        finally:
            ended.close()

    return guarded


class _Recheck:
    """Looks every minute whether the caller of a stream still has the right, and cancels its task if not."""

    def __init__(self, method: _Method, call: audited.Call, context: Context) -> None:
        self._method = method
        self._call = call
        self._context = context
        self._task = asyncio.current_task()
        self._timer: asyncio.TimerHandle | None = None
        self.reason: AccessDeniedError | None = None  # why the stream ends

    def begin(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(RECHECK_S, self._look)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        try:
            self._method.identify(self._call, self._context)
        except AccessDeniedError as error:
            self.reason = error
            if self._task is not None:
                self._task.cancel()
        else:
            self.begin()


# A caller may repeat its call forever.
_refusals, _failures = LogLimits(time.monotonic), LogLimits(time.monotonic)
_traced: dict[tuple[str, ...], str] = {}  # bugs whose stack trace was logged, with the number of the newest line


def _verdict(method: str, context: Context, error: Exception, call: audited.Call) -> tuple[grpc.StatusCode, str]:
    """Returns status and text for the caller, and writes a log line, or an audit line if the call has one.

    Any error but a RhinoError is a bug. The caller then gets only a number, and the log has the details.
    """
    kind, text = type(error).__name__, shortened(str(error))
    extra: dict[str, object] = {"method": method, "from": context.peer(), "error": text, "kind": kind}
    if isinstance(error, RhinoError):
        if not call.failed(error, text) and (left_out := _refusals.due(method, kind)) is not None:
            log.info("call refused", extra={**extra, "left_out": left_out})
        return status_of(error), text
    known = (method, f"{kind} {traceback.extract_tb(error.__traceback__)[-1:]}")
    left_out, traced = _failures.due(*known), known in _traced
    if left_out is not None:
        _traced[known] = secrets.token_hex(4)
    number = _traced[known]
    told = f"internal error {number}: look for this number in the log of the process"
    call.failed(error, told)
    if left_out is not None:
        log.error(
            "call failed", extra={**extra, "id": number, "left_out": left_out}, exc_info=None if traced else error
        )
    return grpc.StatusCode.INTERNAL, told


def shortened(text: str) -> str:
    """Shortens an error text: it is sent in the headers of a reply, of at most 8 KiB in total."""
    encoded = text.encode(errors="replace")
    if len(encoded) <= DETAILS_BYTES:
        return text
    kept = encoded[:DETAILS_BYTES].decode(errors="ignore")
    return f"{kept}... (cut: {len(text)} characters in all; ask for less at a time)"
