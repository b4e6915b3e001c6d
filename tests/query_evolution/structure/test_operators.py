"""The files in which Spark describes operators, and what is refused of them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from query_evolution.structure.columns import fits, parse_columns, shown
from query_evolution.structure.operators import Variable, read_operators
from query_evolution.structure.schemas import parse_schema
from rhino_core.errors import IntegrityError, PreconditionError
from spark_connector.query_checkpoint import JOIN_STORES
from tests.query_evolution.structure.described import (
    PARTITIONS,
    operators,
    schema,
    schema_bytes,
    write_operators,
    write_versioned,
)

PLAN = ("stateStoreSave: k long -> count long?", "dedupe: user string -> ")


def test_operators_are_read_as_spark_writes_them(tmp_path: Path) -> None:
    write_operators(tmp_path, PLAN)
    assert [*read_operators(tmp_path)] == operators(*PLAN)
    assert str(read_operators(tmp_path)[0]) == "0 stateStoreSave (key: k long; value: count long)"


def test_long_schemas_are_in_parts() -> None:
    key, value = "k long, s string?", "count long?"
    assert parse_schema(schema_bytes(key, value, chunks=3)) == parse_schema(schema_bytes(key, value))
    assert shown(parse_schema(schema_bytes(key, value))[0]) == "k long, s string"


@pytest.mark.parametrize("length", range(0, len(schema_bytes("k long", "n long")), 7))
def test_a_schema_that_is_cut_off_is_refused(length: int) -> None:
    with pytest.raises(IntegrityError):
        parse_schema(schema_bytes("k long", "n long")[:length])


@pytest.mark.parametrize("text", ["", "[]", '"long"', '{"type":"struct"}', '{"type":"array"}', "null"])
def test_what_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(IntegrityError, match="a schema of state is not readable"):
        parse_columns(text)


def nested(kind: object) -> str:
    return json.dumps({"type": "struct", "fields": [{"name": "a", "type": kind, "nullable": True, "metadata": {}}]})


def test_nested_types_are_compared_by_position() -> None:
    struct = [json.loads(schema(text)) for text in ("x long?", "y long?", "y long", "y string?")]
    inner = [parse_columns(nested(one)) for one in struct]
    assert [fits(inner[0], other) for other in inner] == [True, True, True, False]
    array = [
        parse_columns(nested({"type": "array", "elementType": "long", "containsNull": nulls}))
        for nulls in (True, False)
    ]
    assert [fits(array[0], array[1]), fits(array[1], array[0])] == [True, False]
    maps = [
        parse_columns(nested({"type": "map", "keyType": key, "valueType": "long", "valueContainsNull": False}))
        for key in ("long", "string")
    ]
    assert [fits(maps[0], maps[0]), fits(maps[0], maps[1]), fits(maps[0], array[0])] == [True, False, False]


def metadata(folder: Path, operator: int) -> Path:
    return folder / "state" / str(operator) / "_metadata" / "metadata"


def test_what_is_not_described_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PreconditionError, match="describes no stateful operator"):
        read_operators(tmp_path)
    write_operators(tmp_path, PLAN)
    (tmp_path / "state" / "1" / "0" / "_metadata" / "schema").unlink()
    with pytest.raises(PreconditionError, match="the columns of the state are not known"):
        read_operators(tmp_path)
    metadata(tmp_path, 0).unlink()
    with pytest.raises(PreconditionError, match="operator 0 is not described"):
        read_operators(tmp_path)


TOTALS = {"total": "k int -> n long, s long", "$ttl_total": "t long, k int -> v boolean"}
LEFT = {"left-keyToNumValues": "k long -> value long", "right-keyToNumValues": "k long -> value long"}


def test_operators_with_column_families_are_read_as_spark_writes_them(tmp_path: Path) -> None:
    write_versioned(tmp_path, 0, "transformWithStateExec", TOTALS, variables={"total": "ValueState"})
    write_versioned(tmp_path, 1, "symmetricHashJoin", LEFT)
    totals, join = read_operators(tmp_path)
    assert str(totals) == (
        "0 transformWithStateExec (key: k int; state: total ValueState (n long, s long), NoTime, Update)"
    )
    assert str(join) == (
        "1 symmetricHashJoin (key: k long; state: left-keyToNumValues (value long), right-keyToNumValues (value long))"
    )
    assert [family.name for family in totals.stores[0].families] == ["$ttl_total", "total"]
    assert (totals.variables, totals.partitions_used) == ((Variable("total", "ValueState", ttl=False),), PARTITIONS)
    assert join.kind == "symmetricHashJoin of state format 3 or 4"


def test_an_operator_is_read_as_it_was_at_a_batch(tmp_path: Path) -> None:
    write_versioned(tmp_path, 0, "transformWithStateExec", TOTALS, batch=2, variables={"total": "ValueState"})
    more = {**TOTALS, "last": "k int -> v long"}
    write_versioned(tmp_path, 0, "transformWithStateExec", more, batch=10, variables={"total": "ValueState"})
    counts = [len(read_operators(tmp_path, batch)[0].stores[0].families) for batch in (2, 9, 10, None)]
    assert counts == [2, 2, 3, 3]
    with pytest.raises(PreconditionError, match=r"from batch 2 on, and not for batch 1; choose a later batch"):
        read_operators(tmp_path, 1)


def test_damaged_metadata_with_versions_is_refused(tmp_path: Path) -> None:
    write_versioned(tmp_path, 0, "transformWithStateExec", TOTALS, variables={"total": "ValueState"})
    path = tmp_path / "state" / "0" / "_metadata" / "v2" / "0"
    text = path.read_text()
    for wrong in (
        text.replace("v2", "v3", 1),
        text.replace('"operatorId": 0', '"operatorId": 1'),
        text.replace('"storeName": "default"', '"storeName": "other"'),
        text.replace("_stateSchema", "elsewhere"),
        text.replace("stateVariableType", "kind"),
        "v2\n{}",
        "",
    ):
        path.write_text(wrong)
        with pytest.raises(IntegrityError, match="not readable"):
            read_operators(tmp_path)
    path.write_text(re.sub(r'"stateSchemaFilePaths": \[.*?\]', '"stateSchemaFilePaths": []', text))
    with pytest.raises(PreconditionError, match=r"born empty and has not run yet\. Run one batch"):
        read_operators(tmp_path)
    path.write_text(text)
    schema_file = tmp_path / "state" / "0" / "_stateSchema" / "default" / "0_schema"
    data = schema_file.read_bytes()
    for length in range(0, len(data), 13):
        schema_file.write_bytes(data[:length])
        with pytest.raises(IntegrityError, match="not readable"):
            read_operators(tmp_path)
    schema_file.unlink()
    with pytest.raises(PreconditionError, match="the columns of the state are not known"):
        read_operators(tmp_path)


def test_damaged_descriptions_are_refused(tmp_path: Path) -> None:
    write_operators(tmp_path, PLAN)
    text = metadata(tmp_path, 1).read_text()
    for wrong in (text.replace("v1", "v9"), text.replace('"operatorId": 1', '"operatorId": 2'), "v1\n{}", ""):
        metadata(tmp_path, 1).write_text(wrong)
        with pytest.raises(IntegrityError, match="not readable"):
            read_operators(tmp_path)
    (tmp_path / "state" / "0").rename(tmp_path / "state" / "5")
    with pytest.raises(IntegrityError, match="some are missing"):
        read_operators(tmp_path)


def test_stores_of_a_join_are_in_the_order_of_the_commit_log(tmp_path: Path) -> None:
    write_operators(tmp_path, PLAN)
    fields = json.loads(metadata(tmp_path, 0).read_text().partition("\n")[2])
    (one,) = fields["stateStoreInfo"]
    fields["stateStoreInfo"] = [one | {"storeName": name} for name in reversed(JOIN_STORES)]
    metadata(tmp_path, 0).write_text(f"v1\n{json.dumps(fields)}")
    for name in JOIN_STORES:
        path = tmp_path / "state" / "0" / "0" / name / "_metadata" / "schema"
        path.parent.mkdir(parents=True)
        path.write_bytes(schema_bytes("k long", f"{name.replace('-', '_')} long"))
    join, _ = read_operators(tmp_path)
    assert tuple(store.name for store in join.stores) == JOIN_STORES
    assert shown(join.stores[0].value) == "left_keyToNumValues long"
    fields["stateStoreInfo"].pop()
    metadata(tmp_path, 0).write_text(f"v1\n{json.dumps(fields)}")
    with pytest.raises(PreconditionError, match="expected one, or those of a join"):
        read_operators(tmp_path)
