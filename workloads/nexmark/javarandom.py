"""java.util.Random over columns, in numpy, with one generator per row."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
_MULTIPLIER = np.uint64(0x5DEECE66D)
_ADDEND = np.uint64(11)
_MASK = np.uint64((1 << 48) - 1)


class Randoms:
    """Row i is `new Random(seeds[i])`. `where` selects the rows that draw. The others keep their state and get 0."""

    def __init__(self, seeds: Ints) -> None:
        self._state: NDArray[np.uint64] = (seeds.astype(np.uint64) ^ _MULTIPLIER) & _MASK

    def next_int(self, bound: Ints | int, where: Bools | None = None) -> Ints:
        bounds = np.broadcast_to(np.asarray(bound, dtype=np.int64), self._state.shape)
        drawing = np.ones(self._state.shape, dtype=bool) if where is None else where
        bits = self._bits(31, drawing)
        power = (bounds & (bounds - 1)) == 0
        while (again := drawing & ~power & (bits - bits % bounds + bounds - 1 > 2**31 - 1)).any():
            bits = np.where(again, self._bits(31, again), bits)
        return np.where(drawing, np.where(power, bounds * bits >> 31, bits % bounds), 0)

    def next_price(self) -> Ints:
        """Returns round(10^(6 * nextDouble) * 100)."""
        everywhere = np.ones(self._state.shape, dtype=bool)
        high, low = self._bits(26, everywhere), self._bits(27, everywhere)
        exponents = ((high << 27) + low) / float(1 << 53) * 6.0
        # math.pow rounds more exactly than numpy's vector function.
        return np.array([math.floor(math.pow(10.0, e) * 100.0 + 0.5) for e in exponents.tolist()], dtype=np.int64)

    def next_48_bits(self) -> Ints:
        """Advances by one step and returns the whole state."""
        return self._bits(48, np.ones(self._state.shape, dtype=bool))

    def next_string(self, longest: int) -> list[str]:
        """Returns texts of 3 to `longest` - 1 letters and spaces, trimmed."""
        lengths = 3 + self.next_int(longest - 3)
        letters = np.full((len(lengths), longest), ord(" "), dtype=np.uint8)
        for place in range(int(lengths.max(initial=0))):
            drawing = lengths > place
            letter = drawing & (self.next_int(13, drawing) != 0)
            letters[:, place] = np.where(letter, ord("a") + self.next_int(26, letter), ord(" "))
        return [row.tobytes().decode().strip() for row in letters]

    def _bits(self, count: int, where: Bools) -> Ints:
        stepped: Any = (self._state * _MULTIPLIER + _ADDEND) & _MASK
        self._state = np.where(where, stepped, self._state)
        return (self._state >> np.uint64(48 - count)).astype(np.int64)
