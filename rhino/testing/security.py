"""The key and the certificates of a local cluster."""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path

from rhino_core.security.certificates import Authority
from rhino_core.security.folders import write_folder
from rhino_core.security.identity import Identity, Role, user_name
from rhino_core.security.sources import new_cluster_key, read_cluster_key
from rhino_core.settings import CLUSTER_KEY_VARIABLE
from spark_connector.driver_certificate import DRIVER_DIR_VARIABLE, tls_conf

DRIVER_VALID = dt.timedelta(days=30)


class ClusterSecurity:
    """`begin` sets RHINO_CLUSTER_KEY in this process, unless it is set. `end` undoes this."""

    def __init__(self, folder: Path) -> None:
        self.key = ""  # path of the cluster key, from `begin` on
        self._folder = folder
        self._driver_dir = folder / "driver"
        self._is_ours = False

    def conf(self) -> dict[str, str]:
        """Settings of Spark applications."""
        return tls_conf({DRIVER_DIR_VARIABLE: str(self._driver_dir)})

    def begin(self) -> None:
        named = os.environ.get(CLUSTER_KEY_VARIABLE, "")
        key = Path(named) if named else self._folder / "cluster.key"
        if not named:
            if not key.exists():
                new_cluster_key(key)
            os.environ[CLUSTER_KEY_VARIABLE] = str(key)
            self._is_ours = True
        self.key = str(key)
        authority = Authority.of_cluster_key(read_cluster_key(key))
        identity = Identity(authority.cluster, Role.DRIVER, user_name())  # as `rhino_conf` does
        write_folder(self._driver_dir, authority.issue(identity, DRIVER_VALID))

    def end(self) -> None:
        if self._is_ours:
            os.environ.pop(CLUSTER_KEY_VARIABLE, None)
            self._is_ours = False
