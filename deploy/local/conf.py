"""Spark settings of sessions on a local cluster."""

from __future__ import annotations

from dataclasses import dataclass

from deploy.local.spark_daemons import LEAN_JVM
from spark_connector import rhino_conf

_STATE = "spark.sql.streaming.stateStore"
# What Rhino's settings replace; everything else is the same for a fair comparison.
_RHINO_ONLY = ("spark.plugins", "spark.jars", f"{_STATE}.providerClass")
_ROCKSDB_PROVIDER = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


@dataclass(frozen=True, slots=True)
class ClusterShape:
    """Sizes of a local cluster."""

    worker_cores: int = 2  # tasks at a time on each worker
    executor_memory_mb: int = 768  # heap of an executor, one per worker
    driver_memory_mb: int = 768  # heap of the driver


def spark_settings(master_url: str, app_name: str, shape: ClusterShape) -> dict[str, str]:
    """What every session on the cluster needs, whoever keeps its state."""
    java_options = " ".join(LEAN_JVM)
    return {
        "spark.master": master_url,
        "spark.app.name": app_name,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": f"{shape.driver_memory_mb}m",
        "spark.driver.extraJavaOptions": java_options,
        "spark.executor.memory": f"{shape.executor_memory_mb}m",
        "spark.executor.extraJavaOptions": java_options,
        "spark.executor.cores": str(shape.worker_cores),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "WARN",
        "spark.sql.session.timeZone": "UTC",
    }


def rhino_settings(manager: str, socket: str) -> dict[str, str]:
    return dict(rhino_conf(manager=manager, socket=socket))


def stock_settings() -> dict[str, str]:
    """Spark's own RocksDB provider under the settings that Rhino asks for."""
    kept = {
        key: value
        for key, value in rhino_settings("127.0.0.1:1", "/unused").items()
        if key not in _RHINO_ONLY and not key.startswith("spark.rhino.")
    }
    return kept | {f"{_STATE}.providerClass": _ROCKSDB_PROVIDER}
