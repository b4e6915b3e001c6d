"""The one exception tree of Rhino; `rhino.rpc.status` maps it to gRPC status codes and back.

::

    RhinoError
    ├── LocalProtocolError      our own bug: a state machine was driven against its contract
    ├── RemoteProtocolError     the other side's bug: a message that the protocol does not allow
    ├── InvalidSettingError     a setting has a wrong name, type or value
    ├── InvalidRequestError     malformed arguments of a call
    ├── UnknownError            a job, virtual node, worker, handover or file that nobody knows
    ├── AlreadyThereError       a virtual node is on the target already; a worker id is in use
    ├── ConflictError           overlaps with something that is under way
    ├── PreconditionError       right call, wrong moment
    │   ├── StaleEpochError     the caller acts under an older epoch
    │   └── TooFewWorkersError  fewer live workers than the replication factor needs
    ├── UnavailableError        a process cannot be reached, or does not answer in time
    │   └── CopiesTimeoutError  too few members held a version within the commit timeout
    ├── NoSpaceError            the disk is full or nearly so
    └── IntegrityError          stored or received bytes do not match their checksum
        └── LostError           every worker that may hold a version has answered: nobody does
"""

from __future__ import annotations


class RhinoError(Exception):
    """Base of all errors that Rhino raises on purpose. The message names the thing, the value and the way out."""


class LocalProtocolError(RhinoError):
    """A state machine was driven against its contract: a bug in this process."""


class RemoteProtocolError(RhinoError):
    """The other side sent what the protocol does not allow."""


class InvalidSettingError(RhinoError, ValueError):
    """A setting has an unknown name, or a value of the wrong type or range."""


class InvalidRequestError(RhinoError, ValueError):
    """A call has malformed arguments."""


class UnknownError(RhinoError, LookupError):
    """Names a job, virtual node, worker, handover or file that does not exist."""


class AlreadyThereError(RhinoError):
    """What is asked for is so already, or the name is taken."""


class ConflictError(RhinoError):
    """Overlaps with an operation that is under way."""


class PreconditionError(RhinoError):
    """A right call at the wrong moment."""


class StaleEpochError(PreconditionError):
    """The caller acted under an epoch older than one that this process has seen."""

    def __init__(self, current: object, received: object) -> None:
        super().__init__(f"stale epoch {received}: this process has seen {current}; fetch the group again")
        self.current = current
        self.received = received


class TooFewWorkersError(PreconditionError):
    """Fewer live workers than the replication factor needs."""


class UnavailableError(RhinoError):
    """A process cannot be reached or does not answer in time; trying again may help."""


class CopiesTimeoutError(UnavailableError):
    """Too few members held a version within the commit timeout."""


class NoSpaceError(RhinoError):
    """The disk is full, or would be."""


class IntegrityError(RhinoError):
    """Stored or received bytes do not match their checksum or length."""


class LostError(IntegrityError):
    """Every worker that may hold a version has answered, and nobody does."""
