"""Identities: a role and a name within a cluster, written as a URI in a certificate.

A server is checked by a DNS name made from its identity, not by its host. So nobody answers for another worker or for
the manager, whatever host, container or mapped port it is reached by. The idea comes from Consul's server names.
"""

from __future__ import annotations

import enum
import getpass
import re
from contextvars import ContextVar
from dataclasses import dataclass

from rhino_core.errors import InvalidRequestError
from rhino_core.ids import SAFE_NAMES, is_safe

_LABEL = re.compile(r"[0-9a-z]([0-9a-z-]{0,61}[0-9a-z])?\Z")
CLUSTER_NAMES = "lower-case letters, digits and '-', at most 63, the first and the last a letter or a digit"
SCHEME = "rhino://"


class Role(enum.Enum):
    """The kind of process of a certificate. `rhino_core.security.rights` has the methods of each role."""

    MANAGER = "manager"
    WORKER = "worker"
    DRIVER = "driver"
    OPERATOR = "operator"
    READER = "reader"


@dataclass(frozen=True, slots=True)
class Identity:
    """`name`: the worker id of a worker; for others whatever their administrator calls them."""

    cluster: str
    role: Role
    name: str

    def __post_init__(self) -> None:
        if not _LABEL.match(self.cluster):
            raise InvalidRequestError(f"cluster {self.cluster[:128]!r}: must be {CLUSTER_NAMES}")
        if not is_safe(self.name):
            raise InvalidRequestError(f"name {self.name[:128]!r} of a {self.role.value}: must be {SAFE_NAMES}")

    @property
    def uri(self) -> str:
        """The URI in the certificate (subject alternative name)."""
        return f"{SCHEME}{self.cluster}/{self.role.value}/{self.name}"

    @property
    def server_name(self) -> str:
        """The DNS name in the certificate. Clients check a server by it. All managers of a cluster have the same.

        DNS names do not tell capitals apart, so "A" is written "_a", and "_" is written "__".
        """
        name = re.sub("[A-Z_]", lambda found: f"_{found[0].lower()}", self.name)
        start = "" if self.role is Role.MANAGER else f"{name}."
        return f"{start}{self.role.value}.{self.cluster}.rhino"

    def __str__(self) -> str:
        return self.uri


def parse(uri: str) -> Identity:
    """Returns the identity of a URI. Raises InvalidRequestError."""
    parts = uri.removeprefix(SCHEME).split("/")
    roles = {role.value: role for role in Role}
    if not uri.startswith(SCHEME) or len(parts) != 3 or parts[1] not in roles:
        raise InvalidRequestError(f"{uri[:256]!r}: must be {SCHEME}<cluster>/<role>/<name>, role {' or '.join(roles)}")
    return Identity(parts[0], roles[parts[1]], parts[2])


def one_identity(uris: list[str]) -> Identity:
    """Returns the only identity among the URIs of a certificate. Raises InvalidRequestError."""
    found = [uri for uri in uris if uri.startswith(SCHEME)]
    if len(found) != 1:
        raise InvalidRequestError(f"a certificate must have one URI {SCHEME}<cluster>/<role>/<name>, it has {found}")
    return parse(found[0])


def user_name() -> str:
    """The name of the Unix user, for the identity of a person with the cluster key."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # a user id without an entry in the user database
        return "unknown"
    return name if is_safe(name) else "unknown"


CALLER: ContextVar[Identity | None] = ContextVar("caller", default=None)  # None: plain transport, or no call
