"""A whole cluster on one machine, for tests of your own queries, the demo and the benchmarks."""

from importlib.util import find_spec

if find_spec("psutil") is None:
    raise ImportError("rhino.testing needs psutil, which is not installed: pip install 'rhino-state[testing]'")

from rhino.testing.cluster import LocalCluster, LocalWorker
from rhino.testing.elastic import ElasticCluster
from rhino.testing.process import ClusterError
from rhino.testing.shape import ClusterShape

__all__ = ["ClusterError", "ClusterShape", "ElasticCluster", "LocalCluster", "LocalWorker"]
