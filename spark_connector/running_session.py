"""Checks of the session in this process: Spark reads plugins, jars and most settings only when it starts."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from rhino_core.errors import PreconditionError

PLUGIN = "rhino.spark.RhinoPlugin"


def check_connect(conf: Mapping[str, str]) -> None:
    """Raises PreconditionError if this process uses Spark Connect: its sessions cannot set plugins and jars."""
    api = conf.get("spark.api.mode", os.environ.get("SPARK_API_MODE", "")).lower()
    by = [name for name in ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED") if os.environ.get(name)]
    by += [f"{name} = {conf[name]}" for name in ("spark.remote",) if name in conf]
    by += [f"spark.api.mode = {api}"] if api == "connect" else []
    if by:
        raise PreconditionError(
            f"this process uses Spark Connect ({', '.join(by)}), whose server alone can load Rhino. Give the settings "
            "to the server (`rhino conf` prints them, for spark-defaults.conf or its command line), and set none here"
        )


def check_rows(rows: object) -> None:
    """Raises PreconditionError for a DataFrame of Spark Connect: its queries run in another process."""
    if type(rows).__module__.startswith("pyspark.sql.connect."):
        raise PreconditionError(
            "the rows are a DataFrame of Spark Connect: make them with a session in the driver's process, which runs "
            "the new code and watches its batches"
        )


def check_session() -> dict[str, str] | None:
    """Returns the settings of the running SparkContext, or None. Raises PreconditionError if it runs without Rhino."""
    context = _spark_context()
    if context is None:
        return None
    active = dict(context.getConf().getAll())
    if PLUGIN not in map(str.strip, active.get("spark.plugins", "").split(",")):
        raise PreconditionError(
            "a SparkSession without Rhino runs in this process. getOrCreate() would return it with names of classes "
            "that it cannot load, and its stateful queries would spoil their checkpoints. Call spark.stop(), and then "
            "this again"
        )
    return active


def load_jar(jar: str) -> None:
    """Adds the jar to a running JVM, of an earlier session or of spark-submit. It reads spark.jars no more.

    Raises PreconditionError if the JVM does not take it.
    """
    from pyspark import SparkContext

    if SparkContext._gateway is None and "PYSPARK_GATEWAY_PORT" not in os.environ:
        return  # the next session starts a JVM
    SparkContext._ensure_initialized()
    jvm: Any = SparkContext._jvm
    utils = jvm.org.apache.spark.util.Utils
    if not utils.classIsLoadable(PLUGIN):
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        if loader.getClass().getName() == "org.apache.spark.util.MutableURLClassLoader":
            loader.addURL(jvm.java.io.File(jar).toURI().toURL())
    if not utils.classIsLoadable(PLUGIN):
        raise PreconditionError(
            f"the JVM of this process was started without {jar} and cannot load it now; start the process (a notebook: "
            f"its kernel) again, or start Spark with --jars {jar}"
        )


def _spark_context() -> Any:
    """The running SparkContext. A process that has not imported PySpark has none."""
    core = sys.modules.get("pyspark.core.context") or sys.modules.get("pyspark.context")
    return core.SparkContext._active_spark_context if core is not None else None
