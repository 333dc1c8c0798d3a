"""Unified diffs that `git apply` takes, whatever the encoding, line endings and name of a file."""

from __future__ import annotations

import difflib
import os

_QUOTED = {
    0x07: b"\\a",
    0x08: b"\\b",
    0x09: b"\\t",
    0x0A: b"\\n",
    0x0B: b"\\v",
    0x0C: b"\\f",
    0x0D: b"\\r",
}


def unified(path: str, before: bytes, after: bytes) -> bytes:
    """The diff from `before` to `after`, headed by `a/path` and `b/path`; empty where they are equal."""
    if before == after:
        return b""
    old, new = (_header(side, path) for side in ("a", "b"))
    lines = difflib.diff_bytes(difflib.unified_diff, _lines(before), _lines(after), old, new)
    return b"".join(
        line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n"
        for line in lines
    )


def _lines(raw: bytes) -> list[bytes]:
    """Lines as git counts them: only a line feed ends one."""
    return [line + b"\n" for line in raw.split(b"\n")[:-1]] + [
        last for last in raw.split(b"\n")[-1:] if last
    ]


def _header(side: str, path: str) -> bytes:
    """A file name in a diff's header, quoted as git's `core.quotePath` does it."""
    name = f"{side}/".encode() + os.fsencode(path.replace(os.sep, "/"))
    if any(byte < 0x20 or byte >= 0x7F or byte in b'"\\' for byte in name):
        return b'"' + b"".join(_quoted(byte) for byte in name) + b'"'
    return name + b"\t" if b" " in name else name


def _quoted(byte: int) -> bytes:
    if byte in b'"\\':
        return b"\\" + bytes([byte])
    if byte in _QUOTED:
        return _QUOTED[byte]
    return bytes([byte]) if 0x20 <= byte < 0x7F else b"\\%03o" % byte
