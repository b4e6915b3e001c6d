"""Calls to sidecars of a local cluster that only its manager may make."""

from __future__ import annotations

import os
from pathlib import Path

import grpc

from rhino_core.rpc.channel import sync_channel
from rhino_core.security.identity import Role
from rhino_core.security.sources import KeySource
from rhino_core.security.transport import PLAIN, Expected, MutualTls
from rhino_core.settings import CLUSTER_KEY_VARIABLE


def as_manager(worker_id: str, peer_address: str) -> grpc.Channel:
    """Returns a channel to the sidecar of a worker, for whoever has the cluster's key."""
    key = os.environ.get(CLUSTER_KEY_VARIABLE, "")
    transport = MutualTls(KeySource(Path(key), Role.MANAGER, "tests")) if key else PLAIN
    return sync_channel(peer_address, transport, Expected(Role.WORKER, worker_id))
