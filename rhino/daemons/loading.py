"""Loads the settings of a daemon: flags first, then environment variables, then the config file, then the defaults."""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from rhino_core.errors import InvalidSettingError
from rhino_core.setting import BadSettingError, Declared, declared
from rhino_core.settings import ManagerSettings, SidecarSettings

S = TypeVar("S", SidecarSettings, ManagerSettings)


@dataclass(frozen=True, slots=True)
class Given:
    """A value, its place, and both as the user wrote them, such as `--lease-s 0` or `RHINO_MANAGER_LEASE_S=0`."""

    value: Any
    place: str
    written: str


@dataclass(frozen=True, slots=True)
class Loaded(Generic[S]):
    """`sources` has the origin of each field's value. `unknown` are variables without a setting."""

    settings: S
    sources: Mapping[str, str]
    unknown: tuple[str, ...]

    def lines(self) -> Iterator[str]:
        """A config file with the settings in force, each with its source. Settings for one start are comments."""
        for one in declared(type(self.settings)):
            value = getattr(self.settings, one.field)
            text = one.shown(value) if one.kind in (bool, int, float) else _quoted(str(value))
            start = "# " if one.about.one_start else ""
            yield f"{f'{start}{one.key} = {text}':<40}  # {self.sources[one.field]}"


def load(
    kind: type[S],
    flags: Mapping[str, str | bool],
    environment: Mapping[str, str],
    file: Path | None = None,
    *,
    host_name: str | None = None,
) -> Loaded[S]:
    """Returns the settings. `flags` are by field, without those not given.

    Raises InvalidSettingError with the flag, variable or key, its value and the allowed values.
    """
    every = declared(kind)
    given = _of_file(file, every) if file else {}
    given |= {one.field: found for one in every if (found := _of_environment(one, environment))}
    given |= {one.field: _of_flag(one, flags[one.field]) for one in every if one.field in flags}
    values: dict[str, Any] = {field: found.value for field, found in given.items()}
    for one in every:
        if one.default is None and not one.about.unset and one.field not in given:
            raise InvalidSettingError(
                f"{one.flag} is missing: give it, or {one.variable}, or {one.key} in the file of --config "
                f"({one.about.help})"
            )
    try:
        settings = kind(**kind.complete(values, environment, host_name or os.uname().nodename))
    except BadSettingError as error:
        bad = error.declared
        default = f"{bad.flag} {bad.shown(error.value)!r} (its default)"
        written = given[bad.field].written if bad.field in given else default
        raise InvalidSettingError(f"{written}: must be {error.allowed}") from None
    sources = {one.field: given[one.field].place if one.field in given else "default" for one in every}
    return Loaded(settings, sources, _unknown(kind, environment))


def _unknown(kind: type[S], environment: Mapping[str, str]) -> tuple[str, ...]:
    prefix = f"RHINO_{kind.DAEMON.upper()}_"
    known = {one.variable for one in declared(kind)} | {f"{prefix}CONFIG"}
    return tuple(sorted(name for name in environment if name.startswith(prefix) and name not in known))


def _of_flag(one: Declared, value: str | bool) -> Given:
    if isinstance(value, bool):
        flag = one.flag if value else f"--no-{one.flag[2:]}"
        return Given(value, flag, flag)
    written = f"{one.flag} {value if one.kind in (int, float) else repr(value)}"
    return Given(_parsed(one, value, written), one.flag, written)


def _of_environment(one: Declared, environment: Mapping[str, str]) -> Given | None:
    """The value of the variable. An empty one is not given: a service manager may set it so."""
    for name in (one.variable, one.about.also):
        if value := environment.get(name, ""):
            written = f"{name}={value if one.kind in (bool, int, float) else repr(value)}"
            return Given(_parsed(one, value, written), name, written)
    return None


def _parsed(one: Declared, text: str, written: str) -> Any:
    try:
        return one.parse(text)
    except ValueError as error:
        raise InvalidSettingError(f"{written}: must be {error}") from None


def _of_file(file: Path, every: tuple[Declared, ...]) -> dict[str, Given]:
    by_key = {one.key: one for one in every}
    given = {}
    for key, value in _read(file).items():
        written = f"{file}: {key} = {_quoted(value) if isinstance(value, str) else str(value).lower()}"
        if key not in by_key:
            near = difflib.get_close_matches(key, by_key, 1)
            hint = f"; did you mean {near[0]}?" if near else f": it has {', '.join(by_key)}"
            raise InvalidSettingError(f"{file}: {key} is no setting of `rhino {every[0].daemon}`{hint}")
        one = by_key[key]
        if one.about.one_start:
            raise InvalidSettingError(f"{written}: is for one start only: give {one.flag}, or {one.variable}=true")
        try:
            given[one.field] = Given(one.convert(value), str(file), written)
        except ValueError as error:
            raise InvalidSettingError(f"{written}: must be {error}") from None
    return given


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text())
    except OSError as error:
        raise InvalidSettingError(f"--config {str(file)!r}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidSettingError(f"--config {str(file)!r}: must be a TOML file: {error}") from None


def _quoted(text: str) -> str:
    """A basic string of TOML."""
    escaped = "".join(c if c.isprintable() and c not in '"\\' else f"\\U{ord(c):08x}" for c in text)
    return f'"{escaped}"'
