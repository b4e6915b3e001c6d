"""Spark settings of sessions on a local cluster."""

from __future__ import annotations

import os

from rhino.testing.shape import ClusterShape
from rhino.testing.spark_daemons import lean_jvm
from spark_connector.conf import SPARK_PROVIDER, STREAMING, recovery_conf, state_conf


def spark_settings(master_url: str, app_name: str, shape: ClusterShape, workers: int, driver: str) -> dict[str, str]:
    """Settings for every session on a cluster of `workers` workers, with or without Rhino.

    `driver` is the driver's address. The first task waits for all executors: tasks keep their workers, so a late
    executor would get none.
    """
    java_options = " ".join(lean_jvm())
    return {
        "spark.master": master_url,
        "spark.app.name": app_name,
        "spark.driver.host": driver,
        "spark.driver.bindAddress": driver,
        "spark.driver.memory": f"{shape.driver_memory_mb}m",
        "spark.driver.extraJavaOptions": java_options,
        "spark.executor.memory": f"{shape.executor_memory_mb}m",
        "spark.executor.extraJavaOptions": java_options,
        "spark.executor.cores": str(shape.worker_cores),
        # Python workers find modules in this folder, as they do with local[*].
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(filter(None, [os.getcwd(), os.environ.get("PYTHONPATH")])),
        "spark.cores.max": str(shape.worker_cores * workers),
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "WARN",
        "spark.sql.session.timeZone": "UTC",
    }


def stock_settings() -> dict[str, str]:
    """Spark's own RocksDB provider with Rhino's other state settings: a fair comparison without a jar."""
    provider = {f"{STREAMING}.stateStore.providerClass": SPARK_PROVIDER}
    # Locations name lost executors without Rhino, so that a long wait for a slot would delay each batch after a loss.
    return provider | state_conf() | recovery_conf() | {"spark.locality.wait": "500ms"}
