"""Makes text from other processes and users safe to print."""

from __future__ import annotations

import unicodedata

_UNSEEN = {"Cc", "Cs", "Zl", "Zp"}  # control characters (C0, C1, delete), lone surrogates, line separators
_TURNING = {chr(code) for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C)}


def legible(text: str) -> str:
    """Returns the text on one line. Terminal control characters and bidirectional controls are escaped, as `\\x1b`."""
    if text.isprintable() or not any(map(_commands, text)):
        return text
    return "".join(_escaped(character) if _commands(character) else character for character in text)


def _commands(character: str) -> bool:
    return character in _TURNING or unicodedata.category(character) in _UNSEEN


def _escaped(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
