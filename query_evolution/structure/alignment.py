"""The pairs of operators of a new plan and of the former one. No I/O.

Operators are paired by Spark's knowledge of them: kind, stores and columns. An uncertain pair is left to the person who
asks, because a wrong one gives wrong results without an error.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from query_evolution.structure.columns import fits, shown
from query_evolution.structure.operators import Operator, Store
from query_evolution.structure.schemas import Family
from rhino_core.errors import InvalidRequestError, PreconditionError


class Fate(enum.StrEnum):
    SAME = "same"  # keeps number and state
    MOVED = "moved"  # keeps its state under another number
    BORN = "born"  # begins without state
    REBUILT = "rebuilt"  # is born with the state that former rows have made of it
    DROPPED = "dropped"  # its state stays with the former query


@dataclass(frozen=True, slots=True)
class Line:
    """One operator of the plan, or a pair. One of both is None for a born or dropped operator."""

    fate: Fate
    old: Operator | None
    new: Operator | None


@dataclass(frozen=True, slots=True)
class Choices:
    """A person's choices: `pairs` of old and new operators by number, and old operators with state to give up."""

    pairs: Mapping[int, int] = field(default_factory=dict)
    drop: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Alignment:
    """All operators of both plans. Those of the new one come first, by number."""

    lines: tuple[Line, ...]

    @property
    def kept(self) -> dict[int, int]:
        """New operators that keep state, with the number of the old one."""
        return {line.new.number: line.old.number for line in self.lines if line.new and line.old}

    @property
    def born(self) -> tuple[Operator, ...]:
        return tuple(line.new for line in self.lines if line.new and not line.old)

    @property
    def changes(self) -> bool:
        return any(line.fate is not Fate.SAME for line in self.lines)


def align(
    old: Sequence[Operator], new: Sequence[Operator], choices: Choices = Choices(), *, rebuilt: bool = False
) -> Alignment:
    """Pairs the operators. `old` and `new` are by number, as `choices` names them.

    `rebuilt`: born operators have rebuilt state. Raises InvalidRequestError for choices that name no operator, or one
    twice. Raises PreconditionError, with both lists and the way out, when a pair is uncertain, when state does not fit,
    and when there is no state at all.
    """
    _check_choices(old, new, choices)
    pairs = dict(choices.pairs)
    for before, after in pairs.items():
        if reason := misfit(old[before], new[after]):
            raise PreconditionError(f"--pair {before}={after}: {reason}\n{both(old, new)}")
    if not choices.pairs and not choices.drop and [*map(_likeness, old)] == [*map(_likeness, new)]:
        pairs = {operator.number: operator.number for operator in old}  # also if some are alike: nothing has changed
    left_old = [o for o in old if o.number not in pairs and o.number not in choices.drop]
    left_new = [n for n in new if n.number not in pairs.values()]
    pairs |= _pair_alike(left_old, left_new, old, new)
    _check_rest([o for o in left_old if o.number not in pairs], left_new, pairs, (old, new))
    _check_partitions(old, new)
    if not pairs and not rebuilt:
        raise PreconditionError(
            f"no operator keeps its state; start the new code from a new checkpoint\n{both(old, new)}"
        )
    return Alignment(tuple(_lines(old, new, pairs, Fate.REBUILT if rebuilt else Fate.BORN)))


def misfit(old: Operator, new: Operator) -> str:
    """Returns the reason against state of `old` for `new`. Empty: it fits."""
    if old.kind != new.kind:
        return f"{old.kind} is another kind of operator than {new.kind}"
    if [s.name for s in old.stores] != [s.name for s in new.stores]:
        return f"the stores differ: {', '.join(s.name for s in old.stores)} and {', '.join(s.name for s in new.stores)}"
    if old.variables != new.variables:
        return (
            f"the state variables were {_listed(old.variables)}, and are {_listed(new.variables)} in the new operator"
        )
    if old.modes != new.modes:
        return f"the modes were {_modes(old)}, and are {_modes(new)} in the new operator"
    for before, after in zip(old.stores, new.stores, strict=True):
        if reason := _families_differ(before.families, after.families) or _columns_differ("", before, after):
            return reason
        if before.prefix_columns != after.prefix_columns:
            return "the prefix of the key differs"
    return ""


def _columns_differ(of: str, before: Store | Family, after: Store | Family) -> str:
    for what, stored, planned in (("key", before.key, after.key), ("value", before.value, after.value)):
        if not fits(stored, planned):
            return f"the {what} {of}in the state is ({shown(stored)}), and the new operator wants ({shown(planned)})"
    return ""


def _families_differ(before: Sequence[Family], after: Sequence[Family]) -> str:
    stored, planned = ({family.name: family for family in families} for families in (before, after))
    if stored.keys() != planned.keys():
        return f"the column families in the state are {_listed(stored)}, and the new operator wants {_listed(planned)}"
    for name, family in stored.items():
        if reason := _columns_differ(f"of {name} ", family, planned[name]):
            return reason
        if family.encoder != planned[name].encoder or not fits(family.user_key, planned[name].user_key):
            return f"the keys of {name} are stored in another form"
    return ""


def _listed(things: Iterable[object]) -> str:
    return ", ".join(map(str, things)) or "none"


def _modes(operator: Operator) -> str:
    return _listed(f"{name} {value}" for name, value in operator.modes)


def both(old: Sequence[Operator], new: Sequence[Operator]) -> str:
    """Returns both lists for people."""
    return "\n".join(["former operators:", *(f"  {o}" for o in old), "new operators:", *(f"  {n}" for n in new)])


def _likeness(operator: Operator) -> tuple[object, ...]:
    """Operators of one likeness can be told apart by nobody but a person."""
    stores = tuple((s.name, s.prefix_columns, s.key, s.value, s.families) for s in operator.stores)
    return operator.kind, operator.variables, operator.modes, stores


def _check_choices(old: Sequence[Operator], new: Sequence[Operator], choices: Choices) -> None:
    for what, named, there in (
        ("former", [*choices.pairs, *choices.drop], old),
        ("new", [*choices.pairs.values()], new),
    ):
        for number in named:
            if not 0 <= number < len(there):
                raise InvalidRequestError(f"there is no {what} operator {number}\n{both(old, new)}")
            if named.count(number) > 1:
                raise InvalidRequestError(f"the {what} operator {number} is named twice")


def _pair_alike(
    left_old: Collection[Operator], left_new: Collection[Operator], old: Sequence[Operator], new: Sequence[Operator]
) -> dict[int, int]:
    """Pairs of like operators. Raises PreconditionError if there is more than one way to pair them."""
    pairs = {}
    for likeness in {_likeness(o): None for o in left_old}:
        olds = [o.number for o in left_old if _likeness(o) == likeness]
        news = [n.number for n in left_new if _likeness(n) == likeness]
        if len(olds) == len(news) == 1:
            pairs[olds[0]] = news[0]
        elif news:
            raise PreconditionError(
                f"the former operators {_numbers(olds)} and the new operators {_numbers(news)} are alike, and only you "
                f"know which is which: say so with --pair {olds[0]}={news[0]}, for example, or give up state with "
                f"--drop {olds[-1]}\n{both(old, new)}"
            )
    return pairs


def _check_rest(
    rest: Collection[Operator],
    left_new: Collection[Operator],
    pairs: Mapping[int, int],
    plans: tuple[Sequence[Operator], Sequence[Operator]],
) -> None:
    """Raises PreconditionError for an unpaired former and new operator of one kind: one was changed?"""
    born = [n for n in left_new if n.number not in pairs.values()]
    for before, after in ((o, n) for o in rest for n in born if o.kind == n.kind):
        reason = misfit(before, after)
        ways = f"--drop {before.number} gives up its state"
        if not reason:
            reason = "only names of columns differ"
            ways = f"--pair {before.number}={after.number} keeps its state, {ways}"
        raise PreconditionError(
            f"is the new operator {after.number} the former operator {before.number}, changed? {reason}; {ways}\n"
            f"{both(*plans)}"
        )


def _check_partitions(old: Sequence[Operator], new: Sequence[Operator]) -> None:
    counts = {store.partitions for operator in old for store in operator.stores}
    planned = {store.partitions for operator in new for store in operator.stores}
    if counts != planned or len(counts) != 1:
        raise PreconditionError(
            f"the state has {_numbers(counts)} partitions, and the new plan {_numbers(planned)}: state cannot be "
            "divided anew. Plan the new code with the same spark.sql.shuffle.partitions"
        )


def _lines(old: Sequence[Operator], new: Sequence[Operator], pairs: Mapping[int, int], born: Fate) -> Iterator[Line]:
    former = {after: before for before, after in pairs.items()}
    for operator in new:
        before = old[former[operator.number]] if operator.number in former else None
        kept = Fate.SAME if before and before.number == operator.number else Fate.MOVED
        yield Line(kept if before else born, before, operator)
    for operator in old:
        if operator.number not in pairs:
            yield Line(Fate.DROPPED, operator, None)


def _numbers(numbers: Collection[int]) -> str:
    return " and ".join(map(str, sorted(numbers)))
