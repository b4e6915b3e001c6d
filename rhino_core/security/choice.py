"""The transport of a process, by its settings."""

from __future__ import annotations

import datetime as dt
import logging
from pathlib import Path

from rhino_core.errors import InvalidSettingError
from rhino_core.ids import is_loopback
from rhino_core.security.certificates import Material
from rhino_core.security.identity import Role, user_name
from rhino_core.security.sources import FolderSource, KeySource
from rhino_core.security.standing import RefusedNames
from rhino_core.security.transport import PLAIN, MutualTls, Transport
from rhino_core.settings import ManagerSettings, SidecarSettings

log = logging.getLogger(__name__)
MANAGER_NAME = "manager"  # in certificates that a manager makes from the cluster key


def daemon_transport(settings: SidecarSettings | ManagerSettings) -> Transport:
    """Returns the transport of a daemon. Raises InvalidSettingError for a certificate of another process."""
    if isinstance(settings, SidecarSettings):
        role, name = Role.WORKER, settings.worker_id
    else:
        role, name = Role.MANAGER, MANAGER_NAME
    refused = RefusedNames(Path(settings.refused_names)) if settings.refused_names else None
    if settings.cluster_key:
        return MutualTls(KeySource(Path(settings.cluster_key), role, name), refused)
    if settings.tls_dir:
        return _of_folder(Path(settings.tls_dir), role, name if role is Role.WORKER else "", refused)
    if not settings.insecure and not is_loopback(settings.listen.rpartition(":")[0]):
        raise InvalidSettingError(
            f"--listen {settings.listen} can be reached from other machines: give --tls-dir (`rhino cert` makes "
            "certificates) or --cluster-key, or --insecure if everybody who reaches it may read and delete all state"
        )
    if settings.insecure:
        log.warning("no encryption and no identities (--insecure): whoever reaches a port can read and delete state")
    return PLAIN


def client_transport(tls_dir: str, cluster_key: str) -> Transport:
    """Returns the transport of a command or program. Both empty: plain. Raises InvalidSettingError.

    With a cluster key, the identity is the Unix user, as an operator.
    """
    if tls_dir and cluster_key:
        raise InvalidSettingError(f"a folder with a certificate ({tls_dir}) or a cluster key ({cluster_key}), not both")
    if cluster_key:
        return MutualTls(KeySource(Path(cluster_key), Role.OPERATOR, user_name()))
    return MutualTls(FolderSource(Path(tls_dir))) if tls_dir else PLAIN


def _check_use(folder: Path, material: Material) -> None:
    """Raises InvalidSettingError for a certificate that all callers of the daemon would refuse."""
    if dt.datetime.now(dt.UTC) >= (end := material.leaf.not_valid_after_utc):
        raise InvalidSettingError(f"{folder}: the certificate has ended at {end}: renew it")
    name = material.identity.server_name
    if name not in material.host_names:
        raise InvalidSettingError(
            f"{folder}: the certificate does not have the DNS name {name}, by which others check this process: issue "
            "it again"
        )


def _of_folder(folder: Path, role: Role, name: str, refused: RefusedNames | None) -> Transport:
    transport = MutualTls(FolderSource(folder), refused)
    own = transport.identity
    if own.role is not role or (name and own.name != name):
        expected = f"{role.value} {name!r}" if name else f"a {role.value}"
        raise InvalidSettingError(f"{folder}: the certificate is that of {own}, but this process is {expected}")
    _check_use(folder, transport.source.current())
    return transport
