"""java.util.Random in Spark SQL: columns are drawn one by one from the column `seed`, the generator's state."""

from __future__ import annotations

from pyspark.sql import DataFrame

_MULTIPLIER = 0x5DEECE66D
_MASK = (1 << 48) - 1
_INT_MAX = 2147483647


def seed(number: str) -> str:
    """Returns the state of `new Random(number)`."""
    return f"({number} ^ {_MULTIPLIER}) & {_MASK}"


def next_int(rows: DataFrame, name: str, bound: str, when: str = "true") -> DataFrame:
    """Adds column `name` = nextInt(bound), for a bound from 1 to 2^31 - 1. Advances `seed` where `when` is true.

    A rejected draw is repeated only once, while java.util.Random repeats without limit. For small bounds a second
    rejection has a probability of about 1e-13.
    """
    rest = [c for c in rows.columns if c != "seed"]
    drawn = rows.selectExpr(*rows.columns, f"cast({bound} as bigint) as b", f"{step('seed')} as s1")
    drawn = drawn.selectExpr("*", "shiftright(s1, 17) as u1", "(b & (b - 1)) = 0 as power")
    again = f"not power and u1 - u1 % b + b - 1 > {_INT_MAX}"
    drawn = drawn.selectExpr("*", f"if({again}, {step('s1')}, s1) as s2")
    value = "if(power, shiftright(b * u1, 31), shiftright(s2, 17) % b)"
    return drawn.selectExpr(*rest, f"{value} as {name}", f"if({when}, s2, seed) as seed")


def next_price(rows: DataFrame, name: str) -> DataFrame:
    """Adds column `name` = round(10^(6 * nextDouble) * 100) and advances `seed`."""
    rest = [c for c in rows.columns if c != "seed"]
    drawn = rows.selectExpr(*rest, f"{step('seed')} as s1")
    drawn = drawn.selectExpr("*", f"{step('s1')} as s2")
    fraction = f"(shiftleft(shiftright(s1, 22), 27) + shiftright(s2, 21)) * {2.0**-53!r}D"
    price = f"cast(floor(pow(10D, {fraction} * 6D) * 100D + 0.5D) as bigint)"
    return drawn.selectExpr(*rest, f"{price} as {name}", "s2 as seed")


def next_string(rows: DataFrame, name: str, longest: int) -> DataFrame:
    """Adds column `name`, a text of 3 to `longest` - 1 letters and spaces, trimmed, and advances `seed`.

    Every letter costs one or two draws in a loop within the row, so this is much slower than the other draws.
    """
    rows = next_int(rows, "letters", str(longest - 3))
    rest = [c for c in rows.columns if c not in ("seed", "letters")]
    start = "named_struct('seed', seed, 'text', '')"
    letter = "named_struct('seed', t, 'text', concat(a.text, char(97 + shiftright(t, 17) % 26)))"
    space = "named_struct('seed', s, 'text', concat(a.text, ' '))"
    either = f"if(shiftright(s, 17) % 13 = 0, {space}, {_let('t', _drawn('s', 26), letter)})"
    step = _let("s", _drawn("a.seed", 13), either)
    drawn = rows.selectExpr(*rest, f"aggregate(sequence(1, cast(letters + 3 as int)), {start}, (a, i) -> {step}) as d")
    return drawn.selectExpr(*rest, f"trim(d.text) as {name}", "d.seed as seed")


def step(seed: str) -> str:
    """Returns the next 48-bit state, in 64-bit arithmetic without overflow."""
    low = f"({seed} & 16777215) * {_MULTIPLIER} + 11"
    high = f"((shiftright({seed}, 24) & 16777215) * {_MULTIPLIER} & 16777215) * 16777216"
    return f"(({low}) + {high}) & {_MASK}"


def _drawn(seed: str, bound: int) -> str:
    """Returns the state whose upper bits give nextInt(bound), for a bound that is not a power of two."""
    again = f"shiftright(v, 17) - shiftright(v, 17) % {bound} + {bound - 1} > {_INT_MAX}"
    return _let("v", step(seed), f"if({again}, {step('v')}, v)")


def _let(name: str, value: str, expression: str) -> str:
    """Binds a local name, which SQL lacks. A repeated expression would be evaluated again each time."""
    return f"transform(array({value}), {name} -> {expression})[0]"
