"""The URLs of an archive, and the setting."""

from __future__ import annotations

from pathlib import Path

import pytest

from rhino_core.archive_url import check_url
from rhino_core.errors import InvalidRequestError, InvalidSettingError
from rhino_core.settings import ManagerSettings


@pytest.mark.parametrize("url", ["s3://bucket/state", "gs://bucket", "az://container/x", "file:///mnt/x", "/mnt/x"])
def test_what_an_archive_may_be(url: str) -> None:
    assert check_url(url) == check_url(ManagerSettings(Path("/x"), archive=url).archive)


@pytest.mark.parametrize("url", ["hdfs://x/y", "s3://", "state", "../x", "s3://key:secret@bucket/x", "s3://bucket?x=1"])
def test_what_it_may_not_be(url: str) -> None:
    with pytest.raises(InvalidRequestError):
        check_url(url)
    with pytest.raises(InvalidSettingError):
        ManagerSettings(Path("/x"), archive=url)
