"""The certificate of a Spark driver: a folder named by the user, or one made from the cluster key."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from rhino_core.errors import InvalidSettingError
from rhino_core.security.certificates import Authority
from rhino_core.security.folders import write_folder
from rhino_core.security.identity import Identity, Role, user_name
from rhino_core.security.sources import read_cluster_keys
from rhino_core.settings import CLUSTER_KEY_VARIABLE

DRIVER_DIR_VARIABLE = "RHINO_DRIVER_TLS_DIR"
VALID = dt.timedelta(days=365)


def tls_conf(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns `spark.rhino.tls.dir`, or nothing if connections are plain.

    RHINO_DRIVER_TLS_DIR names the folder. Otherwise RHINO_CLUSTER_KEY names a cluster key, and the certificate is made
    from it for a year, in the Unix user's folder of states. Raises InvalidSettingError.
    """
    if folder := environment.get(DRIVER_DIR_VARIABLE, ""):
        return _conf(Path(folder))
    if key := environment.get(CLUSTER_KEY_VARIABLE, ""):
        authorities = _authorities(Path(key))
        base = environment.get("XDG_STATE_HOME") or Path.home() / ".local/state"
        return _conf(_made(authorities, Path(base) / "rhino-state/drivers" / authorities[0].cluster))
    return {}


def _conf(folder: Path) -> dict[str, str]:
    return {"spark.rhino.tls.dir": str(folder.absolute())}


def key_conf(key: Path, folder: Path) -> dict[str, str]:
    """The same, with a certificate made from the key into this folder."""
    return _conf(_made(_authorities(key), folder))


def _authorities(key: Path) -> list[Authority]:
    return [Authority.of_cluster_key(secret) for secret in read_cluster_keys(key)]


def _made(authorities: list[Authority], folder: Path) -> Path:
    first = authorities[0]
    material = first.issue(Identity(first.cluster, Role.DRIVER, user_name()), VALID)
    material = replace(material, authorities=b"".join(one.certificate_pem for one in authorities))
    try:
        write_folder(folder, material)
    except OSError as error:
        raise InvalidSettingError(
            f"the driver's certificate: {error.filename}: {os.strerror(error.errno or 0)}; name another folder with "
            f"{DRIVER_DIR_VARIABLE}, and make the certificate there with `rhino cert driver`"
        ) from None
    return folder
