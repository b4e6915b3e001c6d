"""The query of the other benchmarks in Flink's SQL: the greatest of incompressible values per key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError

from benchmarks.flink.cluster import FlinkCluster, java_options
from benchmarks.stateful import ROWS_PER_BATCH, VALUE_BYTES, Load
from rhino_core.errors import RhinoError
from spark_connector.java import find_java

BUILDING = "building"  # the table whose end means that every key has a value
STATEFUL = "GroupAggregate"  # the task that has the state, in Flink's words
_FASTEST = 1_000_000_000  # rows per second


def statements(load: Load) -> tuple[str, ...]:
    """Tables, then the query; its state has a value of `VALUE_BYTES` for each of `load.keys`."""
    columns = "k bigint, p string"
    value = f"'fields.p.length' = '{VALUE_BYTES}'"
    once = f"'fields.k.kind' = 'sequence', 'fields.k.start' = '0', 'fields.k.end' = '{load.keys - 1}'"
    again = f"'fields.k.min' = '0', 'fields.k.max' = '{load.keys - 1}'"
    return (
        f"create table {BUILDING} ({columns}) with "
        f"('connector' = 'datagen', 'rows-per-second' = '{_FASTEST}', {value}, {once})",
        f"create table updates ({columns}) with "
        f"('connector' = 'datagen', 'rows-per-second' = '{ROWS_PER_BATCH}', {value}, {again})",
        f"create table greatest ({columns}, primary key (k) not enforced) with ('connector' = 'blackhole')",
        f"insert into greatest select k, max(p) "
        f"from (select * from {BUILDING} union all select * from updates) group by k",
    )


def submit(cluster: FlinkCluster, load: Load) -> None:
    """Starts the query on the cluster; RhinoError with Flink's reason when it does not take it."""
    # In a thread, where no Ctrl-C arrives: py4j answers one within a call with an AttributeError.
    with _gateway(cluster) as jvm, ThreadPoolExecutor(1) as pool:
        try:
            pool.submit(_execute, jvm, cluster.settings, statements(load)).result()
        except Py4JJavaError as error:
            raise RhinoError(f"Flink does not take the query: {error}") from error


def _execute(jvm: Any, settings: Mapping[str, str], texts: Sequence[str]) -> None:
    configuration = jvm.org.apache.flink.configuration.Configuration()
    for name, value in {"execution.target": "remote", **settings}.items():
        configuration.setString(name, value)
    streaming = jvm.org.apache.flink.table.api.EnvironmentSettings.newInstance().inStreamingMode()
    environment = streaming.withConfiguration(configuration).build()
    tables = jvm.org.apache.flink.table.api.TableEnvironment.create(environment)
    for text in texts:
        tables.executeSql(text)


@contextmanager
def _gateway(cluster: FlinkCluster) -> Iterator[Any]:
    """A JVM with Flink's classes. It ends with the context, or with this process."""
    port, process = launch_gateway(
        classpath=str(cluster.jars / "*"),
        javaopts=java_options(cluster.temporary),
        java_path=str(find_java()),
        die_on_exit=True,
        create_new_process_group=True,  # a Ctrl-C is ours to handle
        return_proc=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
    try:
        yield gateway.jvm
    finally:
        gateway.shutdown()
        process.stdin.close()
        process.wait()
