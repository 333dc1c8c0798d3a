"""Settings that stand in a project's files: `[tool.migrate-pallas]` of pyproject.toml, `[migrate-pallas]` of setup.cfg.

A key is the name of an option without its dashes, but for `wrappers`. What a value must look like beyond its type is
for the command line to say, which takes it as if it had been given there.
"""

from __future__ import annotations

import configparser
import difflib
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TEXT, FLAG, NUMBER, LIST = "a string", "true or false", "a whole number", "a list of strings"
KEYS = {
    "to": TEXT,
    "strategy": TEXT,
    "gate": TEXT,
    "gate-import": TEXT,
    "gate-at-import": FLAG,
    "unguard": FLAG,
    "interpreter": TEXT,
    "tpu": TEXT,
    "jax": TEXT,
    "select": LIST,
    "ignore": LIST,
    "exclude": LIST,
    "no-gitignore": FLAG,
    "jobs": NUMBER,
    "format": TEXT,
    "strict": FLAG,
    "wrappers": LIST,
}
_FLAGS = configparser.ConfigParser.BOOLEAN_STATES


class BadSettings(Exception):
    """A file's settings can't be used; the message names the file, and the key or line."""


@dataclass(frozen=True)
class Configuration:
    """The settings of one file, by key; `path` is relative to the working directory."""

    path: str
    values: dict[str, Any]


@dataclass(frozen=True)
class _Section:
    """A section as it was read; `header` is the line that begins it."""

    path: Path
    header: str
    text: str
    values: dict[str, Any]


def configuration(paths: Sequence[str]) -> Configuration | None:
    """The settings nearest to the first of `paths`, or to the working directory; None where there are none.

    They are looked for upwards, to the root of the repository. Raises `BadSettings` where they can't be used, and
    where both files of one directory have some.
    """
    first = Path(paths[0] if paths and paths[0] != "-" else os.curdir).absolute()
    for directory in _upwards(first if first.is_dir() else first.parent):
        sections = [
            section
            for section in (
                _in_toml(directory / "pyproject.toml"),
                _in_cfg(directory / "setup.cfg"),
            )
            if section is not None
        ]
        if len(sections) > 1:
            both = " and ".join(_shown(section.path) for section in sections)
            raise BadSettings(f"both {both} have settings of migrate-pallas: keep those of one")
        if sections:
            return Configuration(_shown(sections[0].path), _checked(sections[0]))
    return None


def _upwards(directory: Path) -> Iterator[Path]:
    """`directory` and those above it, up to the root of a repository."""
    for one in (directory, *directory.parents):
        yield one
        if (one / ".git").exists() or (one / ".hg").exists():
            return


def _in_toml(path: Path) -> _Section | None:
    text = _read(path)
    if text is None:
        return None
    if sys.version_info >= (3, 11):  # here, as most runs need neither
        import tomllib
    else:
        import tomli as tomllib
    try:
        tool = tomllib.loads(text).get("tool", {})
    except tomllib.TOMLDecodeError as error:
        raise BadSettings(f"{_shown(path)}: {error}") from error
    values = tool.get("migrate-pallas") if isinstance(tool, dict) else None
    if values is None:
        return None
    header = "[tool.migrate-pallas]"
    if not isinstance(values, dict):
        raise BadSettings(f"{_shown(path)}: tool.migrate-pallas is no table: write {header}")
    return _Section(path, header, text, values)


def _in_cfg(path: Path) -> _Section | None:
    text = _read(path)
    if text is None:
        return None
    parser = configparser.ConfigParser(interpolation=None, default_section="")
    try:
        parser.read_string(text, _shown(path))
    except configparser.Error as error:
        raise BadSettings(" ".join(str(error).split())) from error
    if not parser.has_section("migrate-pallas"):
        return None
    values = {key: _of_cfg(key, value) for key, value in parser["migrate-pallas"].items()}
    return _Section(path, "[migrate-pallas]", text, values)


def _of_cfg(key: str, text: str) -> Any:
    """The value that `text` is, as TOML would give it; the text itself where it is none of the key's kind."""
    kind = KEYS.get(key)
    if kind == LIST:
        return [item for part in re.split(r"[,\n]", text) if (item := part.strip())]
    if kind == FLAG:
        return _FLAGS.get(text.lower(), text)
    if kind == NUMBER and text.isdecimal():
        return int(text)
    return text


def _read(path: Path) -> str | None:
    """The text of a file that may have settings of ours, or None."""
    try:
        raw = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    except OSError as error:
        raise BadSettings(f"{_shown(path)}: {error.strerror}") from error
    if b"migrate-pallas" not in raw:
        return None
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadSettings(f"{_shown(path)}: not UTF-8: {error.reason}") from error


def _checked(section: _Section) -> dict[str, Any]:
    """The values, if each key is one of ours and each value is of its kind."""
    wrong = [
        f"{_place(section, key)}: {complaint}"
        for key, value in section.values.items()
        if (complaint := _complaint(section, key, value))
    ]
    if wrong:
        raise BadSettings("\n".join(wrong))
    return section.values


def _complaint(section: _Section, key: str, value: Any) -> str:
    """What is wrong with a key or its value; '' for nothing."""
    kind = KEYS.get(key)
    if kind is None:
        close = difflib.get_close_matches(key.replace("_", "-"), KEYS, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else f"; there are {', '.join(KEYS)}"
        return f"unknown key {key!r} in {section.header}{hint}"
    fits = {
        TEXT: isinstance(value, str),
        FLAG: isinstance(value, bool),
        NUMBER: isinstance(value, int) and not isinstance(value, bool),
        LIST: isinstance(value, list) and all(isinstance(one, str) for one in value),
    }
    return "" if fits[kind] else f"{key!r} must be {kind}, not {value!r}"


def _place(section: _Section, key: str) -> str:
    """The file, and the line of `key` where that can be told."""
    inside = False
    for number, line in enumerate(section.text.splitlines(), 1):
        if line.lstrip().startswith("["):
            inside = line.strip().startswith(section.header)
        elif inside and re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*[=:]", line):
            return f"{_shown(section.path)}:{number}"
    return _shown(section.path)


def _shown(path: Path) -> str:
    return os.path.relpath(path)
