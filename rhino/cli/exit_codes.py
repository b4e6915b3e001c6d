"""Exit codes of the `rhino` command. Each has one meaning."""

from __future__ import annotations

from rhino_core import errors

OK = 0
FAILED = 1  # executed without success: handover rolled back, worker not safe to remove, damage not repaired
USAGE = 2  # wrong arguments or settings
REFUSED = 3  # unknown name, conflict, already there, too few workers, no space; rewind: no batch is complete
UNREACHABLE = 4  # the manager or a sidecar did not answer in time
REPAIRED = 5  # a scrub found damage, and repaired all of it
DEGRADED = 6  # `rhino status --check`: redundancy, a worker or a disk is missing
CRITICAL = 7  # `rhino status --check`: some state has no complete copy on a reachable worker
INTERRUPTED = 130  # Ctrl-C
PIPE_CLOSED = 141  # the reader of the output has ended

HELP = (
    "Exit codes: 0 done; 1 carried out but failed; 2 wrong arguments or settings; "
    "3 refused, with the reason; 4 not reachable; 5 damage found and repaired; 6 status --check: degraded; "
    "7 status --check: critical; 130 interrupted; 141 the reader of the output has ended."
)


def of_error(error: errors.RhinoError) -> int:
    """Returns the exit code of a command that ends with the error."""
    if isinstance(error, errors.InvalidSettingError | errors.InvalidRequestError):
        return USAGE
    if isinstance(error, errors.UnavailableError):
        return UNREACHABLE
    refused = (
        errors.UnknownError,
        errors.AlreadyThereError,
        errors.ConflictError,
        errors.PreconditionError,
        errors.AccessDeniedError,
        errors.NoSpaceError,
    )
    return REFUSED if isinstance(error, refused) else FAILED
