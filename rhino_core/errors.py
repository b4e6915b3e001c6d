"""The exception tree of Rhino. `rhino_core.rpc.status` maps it to gRPC status codes and back."""

from __future__ import annotations


class RhinoError(Exception):
    """Base of all errors that Rhino raises on purpose. The message names the object, its value and the way out."""


class LocalProtocolError(RhinoError):
    """A state machine was driven against its contract: a bug in this process."""


class RemoteProtocolError(RhinoError):
    """The other process sent a message that the protocol does not allow."""


class InvalidSettingError(RhinoError, ValueError):
    """A setting has an unknown name, or a value of the wrong type or range."""


class InvalidRequestError(RhinoError, ValueError):
    """A call has malformed arguments."""


class UnknownError(RhinoError, LookupError):
    """The request names an unknown job, virtual node, worker, handover or file."""


class AlreadyThereError(RhinoError):
    """The requested state already exists, or the name is taken."""


class ConflictError(RhinoError):
    """The request overlaps with an operation in progress."""


class PreconditionError(RhinoError):
    """The request is valid, but not in the present state."""


class TooFewWorkersError(PreconditionError):
    """Fewer live workers than the replication factor needs."""


class AccessDeniedError(RhinoError):
    """The caller's certificate does not allow this call."""


class UnavailableError(RhinoError):
    """A process cannot be reached or does not answer in time. A retry may succeed."""


class CopiesTimeoutError(UnavailableError):
    """Too few members confirmed a version while bytes moved, and for the commit timeout afterwards."""


class NoSpaceError(RhinoError):
    """The disk is full, or the write would fill it."""


class IntegrityError(RhinoError):
    """Stored or received bytes do not match their checksum or length."""


class LostError(IntegrityError):
    """Every worker that may have a version has answered, and none has it."""
