"""Metadata of operators that has versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from rhino_core.errors import IntegrityError
from spark_connector import operator_metadata
from spark_connector.operator_metadata import below, root, schema_path


def test_a_path_of_a_schema_file_has_a_checkpoint_and_a_file() -> None:
    """Also in a checkpoint whose own path looks like such a file."""
    for checkpoint in ("file:/q", "rhino://hdfs@n:8020/a b/q", "file:/x/state/0/_stateSchema/default/y"):
        path = schema_path(checkpoint, 12, "default/3_id")
        assert (root(path), below(path)) == (checkpoint, "default/3_id")


@pytest.mark.parametrize("path", ["file:/q/state/0/_stateSchema/x", "file:/q/state/a/_stateSchema/default/x", ""])
def test_another_path_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="is not the full path of a schema file"):
        below(path)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    fields = {
        "operatorInfo": {"operatorId": 1, "operatorName": "ä"},
        "stateStoreInfo": [{"stateSchemaFilePaths": [schema_path("file:/ä", 1, "default/0_id")], "more": 1}],
        "operatorPropertiesJson": "{}",
    }
    operator_metadata.write(tmp_path / "new" / "0", fields)
    assert operator_metadata.read(tmp_path / "new" / "0") == fields
    assert (tmp_path / "new" / "0").read_text().startswith('v2\n{"operatorInfo":{"operatorId":1,"operatorName":"ä"}')
    changed = operator_metadata.described(fields, 2, lambda path: None)
    assert (changed["operatorInfo"]["operatorId"], changed["stateStoreInfo"][0]) == (
        2,
        {"stateSchemaFilePaths": [], "more": 1},
    )
    with pytest.raises(IntegrityError, match="not readable"):
        operator_metadata.read(tmp_path / "none")
