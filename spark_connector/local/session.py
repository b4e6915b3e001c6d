"""`local_session()`, for `local[*]` and notebooks."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rhino_core.errors import PreconditionError
from spark_connector.jar_place import jar_file
from spark_connector.java import export_java_home
from spark_connector.local.daemons import join
from spark_connector.local.directory import LocalDirectory
from spark_connector.running_session import check_connect, check_session, load_jar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


LISTS = ("spark.jars", "spark.plugins")  # settings of which a user's value is added to ours


def local_session(
    conf: Mapping[str, str] | None = None,
    *,
    data_dir: str | Path | None = None,
    integration: str = "provider",
    jar: Path | None = None,
) -> SparkSession:
    """Returns a Spark session with its state in `data_dir`. Starts a manager and a sidecar there if none run.

    For `local[*]` and notebooks. The state stays when the process ends: a later session, or another process, with the
    same `data_dir` continues the same queries. Processes share the daemons. These end after the last process.
    `data_dir` is `$XDG_DATA_HOME/rhino-state/local` by default; `rhino local clean` deletes its content. `conf` has
    further settings. `integration` is as for `rhino_conf`, and `jar` a file.

    Raises PreconditionError if this process has a session that cannot use this directory, or with Spark Connect;
    InvalidSettingError for an unusable path; UnavailableError if the daemons do not start. Otherwise as `rhino_conf`.
    """
    from pyspark.sql import SparkSession

    if jar is not None:
        jar_file(str(jar), Path(jar))
    given = dict(conf or {})
    directory = LocalDirectory(data_dir)
    check_connect(given)
    active = check_session()
    if active is not None:
        _check_same("socket", active.get("spark.rhino.socket", ""), str(directory.socket), directory)
    export_java_home()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # PySpark would take python3, which may have no packages
    daemons = join(directory.path)
    ours = daemons.conf(integration=integration, jar=jar)
    settings = ours | given | {key: ",".join([ours[key], given[key]]) for key in LISTS if key in given}
    if active is not None:
        _check_same("manager", active["spark.rhino.manager"], daemons.manager, directory)
    else:
        load_jar(ours["spark.jars"])
        print(
            f"Rhino keeps state in {directory.path} (rhino local clean deletes it); "
            f"rhino status --manager {daemons.manager} --cluster-key {directory.key}",
            file=sys.stderr,
        )
    return SparkSession.builder.config(map=settings).getOrCreate()


def _check_same(name: str, has: str, wanted: str, directory: LocalDirectory) -> None:
    if has != wanted:
        raise PreconditionError(
            f"the session that runs in this process does not use the daemons of data_dir {directory.path}: its "
            f"spark.rhino.{name} is {has}, not {wanted}. Call spark.stop(), and then this again"
        )
