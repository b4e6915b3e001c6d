"""Source trees of older revisions."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.upgrade.revisions import OLDER, NoHistoryError, extract


@pytest.fixture(scope="session", params=OLDER, ids=lambda revision: revision[:7])
def older(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source tree of an older revision. Without the history of the repository, the test is skipped."""
    try:
        return extract(request.param, tmp_path_factory.mktemp("revision"))
    except NoHistoryError as error:
        pytest.skip(str(error))
