"""Damaged files: refused at a line, or migrated with the damage where it was; never a crash."""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
import warnings
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from migrate_pallas.files import decode
from migrate_pallas.newer import has_newer_syntax
from migrate_pallas.parsing import parse
from migrate_pallas.run import Outcome, Task, piped
from migrate_pallas.settings import CPU, GATE, Settings
from properties.examples import examples

FIXTURES = sorted(Path(__file__).parents[2].joinpath("fixtures").glob("MP1*/*/before.py"))
TEXTS = [path.read_bytes() for path in FIXTURES]
TASKS = st.sampled_from(
    [Task(Settings(), write=False), Task(Settings(to=CPU, strategy=GATE), write=False)]
)
BYTES = st.sampled_from(
    [
        *(bytes([byte]) for byte in b"()[]{}'\"\\#:,=*@;.\n\r\t\f\0 0a"),
        b"\xff",
        b"\xc3\xa9",
        b"\xef\xbb\xbf",
    ]
)
WORDS = st.sampled_from(
    [
        *("(", ")", "[", "]", ",", "=", "*", "**", ":", ":=", "f'{'", "None", "pl", "class", "def"),
        *("if", "else", "lambda", "not", "yield", "await", "import", "interpret"),
    ]
)


@st.composite
def damaged_bytes(draw: st.DrawFn) -> bytes:
    """A fixture in which bytes are gone, come, or have changed places."""
    raw = draw(st.sampled_from(TEXTS))
    for _ in range(draw(st.integers(1, 3))):
        at, size = draw(st.integers(0, len(raw))), draw(st.integers(0, 4))
        kind = draw(st.integers(0, 2))
        if kind == 0:
            raw = raw[:at] + raw[at + size :]
        elif kind == 1:
            raw = raw[:at] + draw(BYTES) + raw[at:]
        else:
            raw = (
                raw[:at]
                + raw[at + size : at + 2 * size]
                + raw[at : at + size]
                + raw[at + 2 * size :]
            )
    return raw


def spans(text: str) -> list[tuple[int, int]]:
    """Where the tokens of a text stand."""
    lines = text.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    tokens = tokenize.generate_tokens(io.StringIO(text, newline="").readline)
    found = [
        (starts[a[0] - 1] + a[1], starts[b[0] - 1] + b[1]) for _, _, a, b, _ in tokens if a < b
    ]
    return [span for span in found if span[1] <= len(text)]


def of_ascii(raw: bytes) -> bool:
    return raw.isascii() and b"\f" not in raw and b"\r" not in raw


@st.composite
def damaged_tokens(draw: st.DrawFn) -> bytes:
    """A fixture in which tokens are gone, come, or have changed places."""
    text = draw(st.sampled_from([raw for raw in TEXTS if of_ascii(raw)])).decode()
    try:
        places = spans(text)
    except (tokenize.TokenError, SyntaxError):
        places = [(0, len(text))]
    for _ in range(draw(st.integers(1, 3))):
        index = draw(st.integers(0, len(places) - 2)) if len(places) > 1 else 0
        begin, end = places[index]
        kind = draw(st.integers(0, 2))
        if kind == 0:
            text = text[:begin] + " " * (end - begin) + text[end:]
        elif kind == 1:
            text = text[:begin] + draw(WORDS)[: max(end - begin, 1)].ljust(end - begin) + text[end:]
        elif len(places) > index + 1:
            other, stop = places[index + 1]
            swapped = text[other:stop] + text[end:other] + text[begin:end]
            text = text[:begin] + swapped + text[stop:]
    return text.encode()


def parses(raw: bytes) -> bool:
    """Whether the running Python takes `raw`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            ast.parse(raw)
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            return False
    return True


def mixed(raw: bytes) -> bool:
    """Whether lines end in several ways."""
    return len(set(re.findall(rb"\r\n|\r|\n", raw))) > 1


def holds(raw: bytes, outcome: Outcome) -> None:
    """Whether the outcome is one that a damaged file may have."""
    fault = outcome.fault
    if fault:
        assert fault.code in ("MP901", "MP902", "MP905"), fault
        assert "internal error" not in fault.message
        assert 1 <= fault.line <= len(raw.splitlines()) + 1
        assert outcome.result in (b"", raw)
        # A newer Python refuses more; and what this one takes may be more than can be proven.
        assert fault.code == "MP902" or sys.version_info < (3, 12) or not parses(raw) or mixed(raw)
    elif parses(raw):
        assert parses(outcome.result)
    elif outcome.changes:  # then the damage has made it Python, of a newer one than runs this
        assert has_newer_syntax(parse(decode(raw).text))


@given(damaged_bytes(), TASKS)
@examples(150)
def test_damaged_bytes_are_refused_or_migrated_but_never_a_crash(raw: bytes, task: Task) -> None:
    holds(raw, piped(raw, task))


@given(damaged_tokens(), TASKS)
@examples(150)
def test_damaged_tokens_are_refused_or_migrated_but_never_a_crash(raw: bytes, task: Task) -> None:
    holds(raw, piped(raw, task))
