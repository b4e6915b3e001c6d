"""What runs in this process already."""

from __future__ import annotations

import pytest
from pyspark.sql.classic.dataframe import DataFrame
from pyspark.sql.connect.dataframe import DataFrame as RemoteFrame

from rhino_core.errors import PreconditionError
from spark_connector.running_session import check_rows


def test_rows_of_spark_connect_are_refused() -> None:
    check_rows(object.__new__(DataFrame))
    with pytest.raises(PreconditionError, match="make them with a session in the driver's process"):
        check_rows(object.__new__(RemoteFrame))
