"""The answers of a review, kept in a file, so that a review that was stopped goes on where it stopped.

The file is JSON: `{"migrate-pallas-session": 1, "rules": [...], "files": {PATH: {"sha256": ..., "answers": [...]}}}`,
with paths relative to its own directory. An answer is known again by what the change makes of which lines, not by
where these stand, so lines that move take their answers with them.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from enum import Enum
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

from .changes import Change
from .edits import Edits
from .hunks import excerpt

_VERSION = 1
_FORMAT = "migrate-pallas-session"


class Verdict(str, Enum):
    """What was answered of a change."""

    ACCEPTED = "accepted"
    DECLINED = "declined"


@dataclass(frozen=True)
class Key:
    """What a change is known by: its rule, the lines it touches, what they become, and how many alike are before it."""

    code: str
    lines: str
    becomes: str
    repeat: int = 0


@dataclass(frozen=True)
class Kept:
    """An answer; `text` is what the lines of the change became where the user edited them."""

    verdict: Verdict
    text: str | None = None


@dataclass(frozen=True)
class Standing:
    """An answer for every later change of the rule `code`, in a review `to` and by `strategy`."""

    code: str
    to: str
    strategy: str


class Damaged(Exception):
    """A session file is not what this program writes."""


def keys(text: str, changes: Sequence[Change], made: Edits = ()) -> list[Key]:
    """The keys of `changes`, in order, in `text` after the edits `made`."""
    seen: Counter[Key] = Counter()
    found = []
    for change in changes:
        first = Key(change.code, *excerpt(text, change.edits, made))
        found.append(Key(first.code, first.lines, first.becomes, seen[first]))
        seen[first] += 1
    return found


class Session:
    """The answers of a review. With no path they are kept nowhere."""

    def __init__(self, path: Path | None = None) -> None:
        """Load the answers in the file at `path`, or begin it.

        Raises Damaged where the file is no session, and OSError where it can't be read or made.
        """
        self.path = path
        self.rules: list[Standing] = []
        self._files: dict[str, dict[str, Any]] = {}
        self._saved = ""
        if path is not None:
            if path.exists():
                self._load(path)
            self.save()

    def _load(self, path: Path) -> None:
        try:
            text = path.read_text(encoding="utf-8")
            loaded = json.loads(text)
            version = loaded[_FORMAT]
            if version == _VERSION:
                self.rules = [_record(Standing, rule) for rule in loaded["rules"]]
                self._files = {name: _checked(file) for name, file in loaded["files"].items()}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise Damaged("it is damaged, or not a session of migrate-pallas") from error
        if version != _VERSION:
            raise Damaged(f"it has version {version!a}; this program writes and reads {_VERSION}")
        self._saved = text

    def save(self) -> None:
        """Put the answers on disk, in one step; raises OSError where that can't be done."""
        if self.path is None:
            return
        rules = [asdict(rule) for rule in self.rules]
        content = {_FORMAT: _VERSION, "rules": rules, "files": self._files}
        text = json.dumps(content, indent=1) + "\n"
        if text != self._saved:
            _replace(Path(os.path.realpath(self.path)), text)
            self._saved = text

    def answers(self, path: Path, raw: bytes) -> dict[Key, Kept]:
        """What was answered of the file at `path`, whose bytes are `raw` now.

        What was accepted, but not written, counts only while the file is the same: else it may have been written.
        """
        file = self._files.get(self._name(path))
        if file is None:
            return {}
        same = file["sha256"] == sha256(raw).hexdigest()
        found = (_answer(record) for record in file["answers"])
        return {k: kept for k, kept in found if same or kept.verdict is Verdict.DECLINED}

    def keep(self, path: Path, raw: bytes, answers: Mapping[Key, Kept]) -> None:
        """Remember `answers`, in place of all others, of the file at `path`, whose bytes are `raw`."""
        if self.path is None:
            return
        name = self._name(path)
        self._files.pop(name, None)
        if answers:
            self._files[name] = {
                "sha256": sha256(raw).hexdigest(),
                "answers": [_as_record(*item) for item in answers.items()],
            }

    def _name(self, path: Path) -> str:
        if self.path is None:
            return ""
        own = self.path.resolve().parent
        return Path(os.path.relpath(os.path.realpath(path), own)).as_posix()


def _as_record(key: Key, kept: Kept) -> dict[str, Any]:
    edited = {} if kept.text is None else {"text": kept.text}
    return {**asdict(key), "answer": kept.verdict.value, **edited}


def _answer(record: Mapping[str, Any]) -> tuple[Key, Kept]:
    """The answer that a record of the file holds; raises KeyError, TypeError or ValueError where it holds none."""
    key = _record(Key, {name: record[name] for name in ("code", "lines", "becomes", "repeat")})
    text = record.get("text")
    if not isinstance(text, str | None):
        raise TypeError(text)
    return key, Kept(Verdict(record["answer"]), text)


def _checked(file: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(file["sha256"], str):
        raise TypeError(file)
    for record in file["answers"]:
        _answer(record)
    return {"sha256": file["sha256"], "answers": list(file["answers"])}


_Record = TypeVar("_Record", Key, Standing)


def _record(kind: type[_Record], values: Mapping[str, Any]) -> _Record:
    """A record of that kind; raises TypeError where a value is missing, of another type, or one too many."""
    made = kind(**values)
    for field in fields(made):
        if type(getattr(made, field.name)).__name__ != field.type:
            raise TypeError(field.name)
    return made


def _replace(path: Path, text: str) -> None:
    """Make `text` the content of the file at `path`, in one step."""
    new = path.with_name(f".{path.name}.{os.urandom(8).hex()}.tmp")
    try:
        with new.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            new.unlink()
        raise
