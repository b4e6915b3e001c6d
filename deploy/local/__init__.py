"""A whole cluster on one machine, for the demo, the tests and the benchmarks."""

from deploy.local.cluster import LocalCluster, LocalWorker
from deploy.local.conf import ClusterShape
from deploy.local.process import ClusterError

__all__ = ["ClusterError", "ClusterShape", "LocalCluster", "LocalWorker"]
