"""Texts for people: safe to print, and durations."""

from __future__ import annotations

import unicodedata

# Control characters (C0, C1, delete), format characters, lone surrogates, line separators
_UNSEEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
_MARKS, _CARRIERS = {"Mn", "Me"}, "LNSM"  # marks stand on letters, numbers, symbols and spacing marks
MARKS_MAX = 2  # on one letter; scripts of people need no more
JOINER = "\u200d"  # within letters of some scripts


def legible(text: str) -> str:
    """Returns the text on one line.

    Escaped as `\\x1b` are control characters, unseen format characters, and marks without a letter of their own or
    beyond MARKS_MAX of it: these would cover other lines.
    """
    if text.isascii() and text.isprintable():
        return text
    shown, marks = [], MARKS_MAX
    for character in text:
        category = unicodedata.category(character)
        if category in _MARKS:
            marks += 1
        else:
            marks = 0 if category[0] in _CARRIERS else MARKS_MAX
        hidden = marks > MARKS_MAX or (category in _UNSEEN and character != JOINER)
        shown.append(_escaped(character) if hidden else character)
    return "".join(shown)


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


def _escaped(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
