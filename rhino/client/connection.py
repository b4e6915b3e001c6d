"""Connections of commands and programs to the manager and the sidecars, with their certificate, if any.

A process has one certificate. By default the environment names it (RHINO_TLS_DIR or RHINO_CLUSTER_KEY); `use` sets
another one.
"""

from __future__ import annotations

import functools
import os

import grpc

from rhino_core.rpc.channel import sync_channel
from rhino_core.security.choice import client_transport
from rhino_core.security.identity import Role
from rhino_core.security.transport import THE_MANAGER, Expected, Transport
from rhino_core.settings import CLUSTER_KEY_VARIABLE, TLS_DIR_VARIABLE

_chosen: Transport | None = None


def use(transport: Transport | None) -> None:
    """Sets the transport of all later calls of this process. None: from the environment."""
    global _chosen
    _chosen = transport


def transport() -> Transport:
    """Returns the transport of this process. Raises InvalidSettingError for variables that do not fit."""
    if _chosen is not None:
        return _chosen
    return _named(os.environ.get(TLS_DIR_VARIABLE, ""), os.environ.get(CLUSTER_KEY_VARIABLE, ""))


@functools.lru_cache(8)
def _named(tls_dir: str, cluster_key: str) -> Transport:
    return client_transport(tls_dir, cluster_key)


def manager_channel(address: str) -> grpc.Channel:
    """Returns a channel to the manager at "host:port"."""
    return sync_channel(address, transport(), THE_MANAGER)


def worker_channel(worker_id: str, peer_address: str) -> grpc.Channel:
    """Returns a channel to the sidecar of a worker."""
    return sync_channel(peer_address, transport(), Expected(Role.WORKER, worker_id))
