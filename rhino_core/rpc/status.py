"""The mapping between Rhino's exceptions and gRPC status codes, in both directions."""

from __future__ import annotations

import grpc
import grpc.aio

from rhino_core import errors

# Most specific first: the first class that matches decides.
STATUS_OF_ERROR: tuple[tuple[type[errors.RhinoError], grpc.StatusCode], ...] = (
    (errors.InvalidSettingError, grpc.StatusCode.INVALID_ARGUMENT),
    (errors.InvalidRequestError, grpc.StatusCode.INVALID_ARGUMENT),
    (errors.UnknownError, grpc.StatusCode.NOT_FOUND),
    (errors.AlreadyThereError, grpc.StatusCode.ALREADY_EXISTS),
    (errors.ConflictError, grpc.StatusCode.ABORTED),
    (errors.PreconditionError, grpc.StatusCode.FAILED_PRECONDITION),
    (errors.AccessDeniedError, grpc.StatusCode.PERMISSION_DENIED),
    (errors.CopiesTimeoutError, grpc.StatusCode.DEADLINE_EXCEEDED),  # the sidecar's, so that clients do not ask again
    (errors.UnavailableError, grpc.StatusCode.UNAVAILABLE),
    (errors.NoSpaceError, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (errors.IntegrityError, grpc.StatusCode.DATA_LOSS),
    (errors.RemoteProtocolError, grpc.StatusCode.INTERNAL),
    (errors.LocalProtocolError, grpc.StatusCode.INTERNAL),
    (errors.RhinoError, grpc.StatusCode.UNKNOWN),
)

TOO_LARGE = "message larger than max"  # gRPC's text, with the same status that Rhino uses for a full disk
ERROR_OF_STATUS: dict[grpc.StatusCode, type[errors.RhinoError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: errors.InvalidRequestError,
    grpc.StatusCode.NOT_FOUND: errors.UnknownError,
    grpc.StatusCode.ALREADY_EXISTS: errors.AlreadyThereError,
    grpc.StatusCode.ABORTED: errors.ConflictError,
    grpc.StatusCode.FAILED_PRECONDITION: errors.PreconditionError,
    grpc.StatusCode.PERMISSION_DENIED: errors.AccessDeniedError,
    grpc.StatusCode.UNAVAILABLE: errors.UnavailableError,
    grpc.StatusCode.DEADLINE_EXCEEDED: errors.UnavailableError,
    grpc.StatusCode.CANCELLED: errors.UnavailableError,
    grpc.StatusCode.UNIMPLEMENTED: errors.UnavailableError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: errors.NoSpaceError,
    grpc.StatusCode.DATA_LOSS: errors.IntegrityError,
    grpc.StatusCode.INTERNAL: errors.RemoteProtocolError,
}


def status_of(error: errors.RhinoError) -> grpc.StatusCode:
    """Returns a server's gRPC status code for `error`."""
    return next(code for kind, code in STATUS_OF_ERROR if isinstance(error, kind))


def error_of(call_error: grpc.RpcError, doing: str) -> errors.RhinoError:
    """Returns the Rhino exception for a failed call. `doing` names the call and its target for the message."""
    code = grpc.StatusCode.UNKNOWN
    details: str | None = str(call_error)
    if isinstance(call_error, grpc.Call | grpc.aio.AioRpcError):  # of blocking and of asyncio calls
        code, details = call_error.code(), call_error.details()
    if code is grpc.StatusCode.UNIMPLEMENTED:
        details = f"what answers there does not serve this call ({details}): is it the address of another process?"
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and TOO_LARGE in (details or ""):
        return errors.RemoteProtocolError(f"{doing}: {details}")
    return ERROR_OF_STATUS.get(code, errors.RhinoError)(f"{doing}: {details or code.name}")
