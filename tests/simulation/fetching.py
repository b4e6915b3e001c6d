"""A simulated Prepare under block-centric placement."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rhino.ids import StoreVersion
from worker_runtime.core.closure import StoreCatalogue

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster
    from tests.simulation.sidecar import Sidecar


def fetch_blocks(cluster: Cluster, writer: Sidecar, wanted: StoreVersion) -> bool:
    """What Prepare does: the rest of the version from whoever can be reached; False when it cannot be had."""
    names = [name for name in cluster.sidecars if name != writer.name]
    others = [other for name in names if (other := cluster.network.reach(writer.name, name)) is not None]
    union = dict(writer.disk.files[wanted.store])
    for other in others:
        union.update(other.disk.files[wanted.store])
    closure = StoreCatalogue(union.values()).cheapest_closure(wanted.version, writer.disk.files[wanted.store])
    if closure is None:
        return False
    missing = sorted(closure - writer.disk.files[wanted.store].keys(), key=lambda n: (n.endswith(".changelog"), n))
    return all(writer.pull(union[name]) for name in missing)
