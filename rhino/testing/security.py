"""The key and the certificates of a local cluster."""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path

from rhino_core.security.certificates import Authority
from rhino_core.security.folders import write_folder
from rhino_core.security.identity import Identity, Role
from rhino_core.security.sources import new_cluster_key, read_cluster_key
from rhino_core.settings import CLUSTER_KEY_VARIABLE

DRIVER = "local-cluster"
DRIVER_VALID = dt.timedelta(days=30)


class ClusterSecurity:
    """`begin` sets RHINO_CLUSTER_KEY for this process and those that it starts, unless it is set; `end` undoes this."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._is_ours = False

    @property
    def driver_dir(self) -> str:
        """The folder with the certificate of Spark drivers."""
        return str(self._folder / "driver")

    def begin(self) -> None:
        named = os.environ.get(CLUSTER_KEY_VARIABLE, "")
        key = Path(named) if named else self._folder / "cluster.key"
        if not named:
            if not key.exists():
                new_cluster_key(key)
            os.environ[CLUSTER_KEY_VARIABLE] = str(key)
            self._is_ours = True
        authority = Authority.of_cluster_key(read_cluster_key(key))
        identity = Identity(authority.cluster, Role.DRIVER, DRIVER)
        write_folder(Path(self.driver_dir), authority.issue(identity, DRIVER_VALID))

    def end(self) -> None:
        if self._is_ours:
            os.environ.pop(CLUSTER_KEY_VARIABLE, None)
            self._is_ours = False
