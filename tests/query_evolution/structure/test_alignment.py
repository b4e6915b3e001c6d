"""Which operator of a new plan is which of the former one: what is certain is paired, all else is refused."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from query_evolution.structure.alignment import Alignment, Choices, align
from query_evolution.structure.operators import Operator, Store, read_operators
from rhino_core.errors import InvalidRequestError, PreconditionError
from spark_connector.query_checkpoint import JOIN_STORES
from tests.query_evolution.structure.described import operators, write_operators, write_versioned

COUNT = "stateStoreSave: k long -> count long?"
SUM = "stateStoreSave: k long -> sum double?"
USERS = "dedupe: user string -> "
URLS = "dedupe: url string -> "
RECENT = "dedupeWithinWatermark: user string -> expiresAtMicros long"
TOTAL = "stateStoreSave:  -> count long?"


def fates(alignment: Alignment) -> list[str]:
    return [
        f"{line.fate.value} {line.old.number if line.old else '-'} {line.new.number if line.new else '-'}"
        for line in alignment.lines
    ]


def aligned(old: list[str], new: list[str], choices: Choices | None = None) -> list[str]:
    return fates(align(operators(*old), operators(*new), choices or Choices()))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ([COUNT], [COUNT, USERS], ["same 0 0", "born - 1"]),
        ([COUNT], [USERS, COUNT], ["born - 0", "moved 0 1"]),
        ([COUNT, USERS], [COUNT], ["same 0 0", "dropped 1 -"]),
        ([USERS, COUNT], [COUNT], ["moved 1 0", "dropped 0 -"]),
        ([COUNT, USERS], [USERS, COUNT], ["moved 1 0", "moved 0 1"]),
        ([USERS, URLS, COUNT], [COUNT, URLS, USERS], ["moved 2 0", "same 1 1", "moved 0 2"]),
        ([COUNT, USERS], [COUNT, RECENT], ["same 0 0", "born - 1", "dropped 1 -"]),
        ([COUNT, SUM], [SUM, USERS, COUNT], ["moved 1 0", "born - 1", "moved 0 2"]),
    ],
)
def test_operators_that_are_alike_are_paired(old: list[str], new: list[str], expected: list[str]) -> None:
    assert aligned(old, new) == expected


def test_the_same_operators_change_nothing_even_if_some_are_alike() -> None:
    alignment = align(operators(USERS, COUNT, USERS), operators(USERS, COUNT, USERS))
    assert not alignment.changes
    assert fates(alignment) == ["same 0 0", "same 1 1", "same 2 2"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ([USERS, USERS], [USERS]),
        ([USERS], [USERS, USERS]),
        ([COUNT, USERS, USERS], [USERS, USERS, COUNT]),
    ],
)
def test_operators_that_nobody_can_tell_apart_are_refused_with_both_lists(old: list[str], new: list[str]) -> None:
    with pytest.raises(PreconditionError, match="are alike, and only you know which is which: say so with --pair") as e:
        aligned(old, new)
    text = str(e.value)
    assert "former operators:\n  0 " in text
    assert "new operators:\n  0 " in text
    assert text.count("dedupe (key: user string; value: -)") == sum(o == USERS for o in (*old, *new))


def test_a_person_says_which_is_which() -> None:
    assert aligned([USERS, USERS], [USERS], Choices({1: 0})) == ["moved 1 0", "dropped 0 -"]
    assert aligned([USERS], [USERS, USERS], Choices({0: 1})) == ["born - 0", "moved 0 1"]
    assert aligned([USERS, USERS], [USERS], Choices(drop=frozenset({0}))) == ["moved 1 0", "dropped 0 -"]
    swap = [COUNT, USERS, USERS], [COUNT, USERS, USERS]
    assert aligned(*swap, Choices({1: 2})) == ["same 0 0", "moved 2 1", "moved 1 2"]


def test_an_operator_whose_columns_have_other_names_is_asked_for() -> None:
    with pytest.raises(PreconditionError, match=r"only names of columns differ; --pair 1=1 keeps its state, --drop 1"):
        aligned([COUNT, USERS], [COUNT, URLS])
    assert aligned([COUNT, USERS], [COUNT, URLS], Choices({1: 1})) == ["same 0 0", "same 1 1"]
    assert aligned([COUNT, USERS], [COUNT, URLS], Choices(drop=frozenset({1}))) == [
        "same 0 0",
        "born - 1",
        "dropped 1 -",
    ]


def test_an_operator_with_other_columns_is_refused_with_the_reason() -> None:
    changed = "stateStoreSave: k long, country string -> count long?"
    reason = r"the key in the state is \(k long\), and the new operator wants \(k long, country string\)"
    with pytest.raises(PreconditionError, match=rf"{reason}; --drop 0 gives up its state"):
        aligned([COUNT, USERS], [changed, USERS])
    with pytest.raises(PreconditionError, match=rf"--pair 0=0: {reason}"):
        aligned([COUNT, USERS], [changed, USERS], Choices({0: 0}))
    with pytest.raises(PreconditionError, match="the value in the state is"):
        aligned([COUNT, USERS], [SUM, USERS])
    assert aligned([COUNT, USERS], [changed, USERS], Choices(drop=frozenset({0}))) == [
        "born - 0",
        "same 1 1",
        "dropped 0 -",
    ]


def test_a_column_may_lose_its_nulls_but_not_get_some() -> None:
    """As Spark checks it."""
    nulls, none = COUNT, COUNT.replace("?", "")
    assert aligned([nulls, USERS], [none], Choices({0: 0})) == ["same 0 0", "dropped 1 -"]
    with pytest.raises(PreconditionError, match="the value in the state is"):
        aligned([none, USERS], [nulls], Choices({0: 0}))


def test_another_number_of_partitions_is_refused() -> None:
    with pytest.raises(PreconditionError, match=r"has 2 partitions, and the new plan 4.*shuffle\.partitions"):
        align(operators(COUNT), operators(COUNT, USERS, partitions=4))


def test_a_plan_that_keeps_nothing_is_refused() -> None:
    with pytest.raises(PreconditionError, match="no operator keeps its state; start the new code from a new"):
        aligned([COUNT], [USERS])


@pytest.mark.parametrize(
    ("choices", "reason"),
    [
        (Choices({7: 0}), "there is no former operator 7"),
        (Choices({0: 7}), "there is no new operator 7"),
        (Choices({0: 0, 1: 0}), "the new operator 0 is named twice"),
        (Choices({0: 0}, frozenset({0})), "the former operator 0 is named twice"),
        (Choices({0: -1}), "there is no new operator -1"),
    ],
)
def test_wrong_choices_are_named(choices: Choices, reason: str) -> None:
    with pytest.raises(InvalidRequestError, match=reason):
        aligned([COUNT, USERS], [USERS, COUNT], choices)


def test_kinds_are_not_mixed_by_a_person() -> None:
    with pytest.raises(PreconditionError, match="dedupe is another kind of operator than stateStoreSave"):
        aligned([COUNT, USERS], [COUNT], Choices({1: 0}))


def test_an_operator_without_keys_runs_in_one_partition() -> None:
    (total, count) = operators(TOTAL, COUNT)
    assert (total.partitions_used, count.partitions_used) == (1, 2)


# ---- operators with column families

TWS = "transformWithStateInPandasExec"
FAMILIES = {"rows": "k int -> n long", "last": "k int, u long -> v long?"}
KINDS = {"rows": "ValueState", "last": "MapState"}
JOIN_3 = {"left-keyToNumValues": "k long -> value long", "left-keyWithIndexToValue": "k long, index long -> a long"}


def versioned(
    folder: Path, name: str, families: dict[str, str], kinds: dict[str, str] | None, *others: str
) -> list[Operator]:
    """Operator 0 has column families, and the others none."""
    write_operators(folder, ["unused: k long -> ", *others])
    shutil.rmtree(folder / "state" / "0")
    write_versioned(folder, 0, name, families, variables=kinds)
    return [*read_operators(folder)]


def test_a_processor_with_the_same_variables_is_the_same_operator(tmp_path: Path) -> None:
    old = versioned(tmp_path / "old", TWS, FAMILIES, KINDS)
    new = versioned(tmp_path / "new", TWS, dict(reversed(FAMILIES.items())), KINDS, USERS)
    assert fates(align(old, new)) == ["same 0 0", "born - 1"]


@pytest.mark.parametrize(
    ("families", "kinds", "reason"),
    [
        (
            {"rows": FAMILIES["rows"]},
            {"rows": "ValueState"},
            "the state variables were last MapState, rows ValueState, and are rows ValueState in the new operator",
        ),
        (FAMILIES, KINDS | {"rows": "ListState"}, "and are last MapState, rows ListState in the new operator"),
        (
            {"rows": "k int -> n string"} | {"last": FAMILIES["last"]},
            KINDS,
            r"the value of rows in the state is \(n long\), and the new operator wants \(n string\)",
        ),
        (
            FAMILIES | {"last": "k int, u string -> v long?"},
            KINDS,
            r"the key of last in the state is \(k int, u long\), and the new operator wants \(k int, u string\)",
        ),
        (FAMILIES | {"$ttl_rows": "t long -> v boolean"}, KINDS, r"the new operator wants \$ttl_rows, last, rows"),
    ],
)
def test_a_processor_with_other_variables_is_refused_with_both_lists(
    tmp_path: Path, families: dict[str, str], kinds: dict[str, str], reason: str
) -> None:
    old = versioned(tmp_path / "old", TWS, FAMILIES, KINDS, USERS)
    new = versioned(tmp_path / "new", TWS, families, kinds, USERS)
    with pytest.raises(PreconditionError, match=rf"{reason}.*; --drop 0 gives up its state") as caught:
        align(old, new)
    for part in ("former operators:", "new operators:"):
        listed = str(caught.value).partition(part)[2]
        assert "rows" in listed
    assert fates(align(old, new, Choices(drop=frozenset({0})))) == ["born - 0", "same 1 1", "dropped 0 -"]


def test_a_processor_with_another_mode_or_other_keys_in_store_is_refused(tmp_path: Path) -> None:
    old = versioned(tmp_path / "old", TWS, FAMILIES, KINDS, USERS)
    first = old[0]
    other_mode = replace(first, modes=(("timeMode", "EventTime"), ("outputMode", "Update")))
    with pytest.raises(PreconditionError, match="the modes were timeMode NoTime, outputMode Update, and are timeMode"):
        align(old, [other_mode, old[1]])
    families = tuple(replace(family, encoder="another") for family in first.stores[0].families)
    other_form = replace(first, stores=(replace(first.stores[0], families=families),))
    with pytest.raises(PreconditionError, match="the keys of last are stored in another form"):
        align(old, [other_form, old[1]])


def test_joins_of_both_forms_are_different_kinds(tmp_path: Path) -> None:
    new = versioned(tmp_path / "new", "symmetricHashJoin", JOIN_3, None, USERS)
    stores = tuple(Store(name, 2, 0, new[0].stores[0].key, new[0].stores[0].value) for name in JOIN_STORES)
    old = [Operator(0, "symmetricHashJoin", stores), new[1]]
    assert fates(align(old, new)) == ["born - 0", "same 1 1", "dropped 0 -"]
    with pytest.raises(
        PreconditionError,
        match="Join of state format 1 or 2 is another kind of operator than symmetricHashJoin of",
    ):
        align(old, new, Choices({0: 0}))
