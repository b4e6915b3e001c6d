"""Texts for people: safe to print, and durations."""

from __future__ import annotations

import unicodedata

_UNSEEN = {"Cc", "Cs", "Zl", "Zp"}  # control characters (C0, C1, delete), lone surrogates, line separators
_TURNING = {chr(code) for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C)}


def legible(text: str) -> str:
    """Returns the text on one line. Terminal control characters and bidirectional controls are escaped, as `\\x1b`."""
    if text.isprintable() or not any(map(_commands, text)):
        return text
    return "".join(_escaped(character) if _commands(character) else character for character in text)


def duration(seconds: float) -> str:
    """Returns a time span in its two largest units, rounded down: "23 h 59 min", "59 s"."""
    whole = int(seconds)
    days, hours, minutes = whole // 86400, whole // 3600 % 24, whole // 60 % 60
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {whole % 60} s" if minutes else f"{whole} s"


def query_handle(name: str, job: str) -> str:
    """Returns a name for one of several queries of the same name, valid for `--job`: "counts@1f0c2a9b"."""
    return f"{name}@{job[:8]}"


def count(number: int, one: str, more: str = "") -> str:
    """Returns "1 step", "2 steps". `more`: the plural, if it is not `one` with an s."""
    return f"{number} {one if number == 1 else more or one + 's'}"


def _commands(character: str) -> bool:
    return character in _TURNING or unicodedata.category(character) in _UNSEEN


def _escaped(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
