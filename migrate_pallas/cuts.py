"""Where a source text can be cut at its top-level statements, told by a scan that is ten times as fast as parsing.

The scan knows strings, comments, brackets and line ends; what it can't tell exactly it leaves whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from keyword import iskeyword

from .parsing import ANY_WORD, NEWLINE, PLAIN_STRING, FaultAt, formatted_end

# What goes by is code, plain strings, comments, and the ends of lines that something indented follows. The scan stops
# at a bracket, at a line that begins with code, and at a quote that may open an f-string: where those end only the
# tokenizer knows (PEP 701).
_PLAIN = rf"(?<![fFtT])(?<![fFtT][rR]){PLAIN_STRING}"
_CODE = r"""[^"'\#()\[\]{}\\\r\n]*"""
_PASSED = rf"""{_PLAIN} | \#[^\r\n]* | \\{NEWLINE} | {NEWLINE}(?=[ \t\r\n\#]|\Z)"""
_next_stop = re.compile(
    rf"{_CODE}(?:(?:{_PASSED}){_CODE})*(?:([(\[{{])|([)\]}}])|({NEWLINE})|(?=['\"])|\Z)",
    re.VERBOSE | re.DOTALL,
).match
_OPENS, _CLOSES, _LINE = 1, 2, 3
_next_text = re.compile(
    rf"""[^"'\#]*(?:({_PLAIN}|\#[^\r\n]*)|(?=["'])|\Z)""", re.VERBOSE | re.DOTALL
).match
_plain_string = re.compile(PLAIN_STRING, re.VERBOSE | re.DOTALL).match
_format_prefix = re.compile(r"(?<!\w)(?:[fFtT][rR]?|[rR][fFtT])\Z").search

# How a line without indentation begins. A call of a soft keyword may be a statement: `match(x):`.
_head = re.compile(
    rf"(?P<decorator>@) | (?:async[ \t]+)?(?:def|class)[ \t]+(?P<definition>{ANY_WORD}) |"
    r"(?P<clause>(?:else|elif|except|finally)\b) |"
    rf"(?P<assigned>{ANY_WORD})[ \t]*=(?!=) | (?P<called>{ANY_WORD})[.(]",
    re.VERBOSE,
).match
_global = re.compile(rf"[\r\n;:][ \t]*global(?=[ \t\\])((?:[^\r\n;\\#]|\\{NEWLINE})*)").finditer
_names = re.compile(ANY_WORD).findall
_equals = re.compile(r"(?<![=!<>])=(?!=)").search


@dataclass
class Cut:
    """A part that begins at `start`: a function or class of that `name`, another statement, or several.

    `binds` are the names that it binds at module level; None where that is not known. `head` is where the `def` or
    `class` stands, or the statement.
    """

    start: int
    head: int
    name: str = ""
    binds: tuple[str, ...] | None = None


def cuts(text: str) -> list[Cut]:
    """Where the parts of `text` begin, the first of them at 0; one, where that can't be told exactly."""
    # A form feed moves what is indented, and a comment may tell to skip what follows: those are for the whole tree.
    if any(odd in text for odd in ("\f", "\0", "migrate-pallas")):
        return [Cut(0, 0)]
    found = _grouped(text, _lines(text))
    if not found:
        return [Cut(0, 0)]
    found[0].start = 0
    for cut, end in zip(found, [*(cut.start for cut in found[1:]), len(text)], strict=True):
        if cut.binds is not None:
            cut.binds = _binds(text, cut, end)
    return found


def string_spans(text: str, first: int, last: int) -> Iterator[tuple[int, int]]:
    """Where the strings and comments of `text[first:last]` stand, which begins and ends outside of any.

    Raises `FaultAt` where one does not end.
    """
    at = first
    while at < last and (found := _next_text(text, at, last)):
        at = found.end()
        if found[1]:
            yield found.span(1)
        elif at < last:
            begin, at = at, _string_end(text, at)
            yield begin, at


def _grouped(text: str, lines: list[int]) -> list[Cut]:
    """One cut for each definition with its decorators and each simple statement, and one for others in a row.

    [] where the lines, which have no indentation, are not what they seem to be.
    """
    found: list[Cut] = []
    decorated = False
    for at in lines:
        head = _head(text, at)
        kind = head.lastgroup if head else None
        if text[at] == "\\" or (decorated and kind not in ("decorator", "definition")):
            return []
        if kind in ("decorator", "definition") and not decorated:
            found.append(Cut(at, at))
        if head and kind == "definition":
            name = head["definition"]
            found[-1].head, found[-1].name, found[-1].binds = at, name, (name,)
        elif head and kind == "assigned":
            found.append(Cut(at, at, binds=(head["assigned"],)))
        elif head and kind == "called" and not _is_keyword(head["called"]):
            found.append(Cut(at, at, binds=()))
        elif kind == "clause" and found:
            found[-1].name, found[-1].binds = "", None
        elif kind != "decorator" and not (found and found[-1].binds is None):
            found.append(Cut(at, at))
        decorated = kind == "decorator"
    return [] if decorated else found


def _is_keyword(word: str) -> bool:
    """Whether `word(...)` may begin another statement than a call."""
    return iskeyword(word) or word in ("match", "case")


def _binds(text: str, cut: Cut, end: int) -> tuple[str, ...] | None:
    """The names of the module that the definition or statement at `cut` binds; None where that may be any."""
    if text.find(":=", cut.start, end if not cut.name else _header_end(text, cut.head)) >= 0:
        return None  # in a default or a decorator, too, it binds a name of the module (PEP 572)
    if not cut.name:
        return cut.binds if _is_simple(text, cut, end) else None
    if text.find("global", cut.start, end) < 0:
        return (cut.name,)
    found = {name for one in _global(text, cut.start, end) for name in _names(one[1])}
    return None if cut.name in found else tuple(sorted({cut.name, *found}))


def _header_end(text: str, at: int) -> int:
    """Where the first line ends, brackets and all, of the definition that begins at `at`."""
    for first, last, depth in _stretches(text, at):
        if not depth and text.find(":", first, last) >= 0:
            return last
    return len(text)


def _is_simple(text: str, cut: Cut, end: int) -> bool:
    """Whether the statement at `cut` is all up to `end`, and no more is assigned than its head shows."""
    if text.find(";", cut.start, end) >= 0:
        return False
    head = _head(text, cut.head)
    begin = head.end() if head and head["assigned"] else cut.head
    if not _equals(text, begin, end):
        return True
    stretches = takewhile(lambda stretch: stretch[0] < end, _stretches(text, begin))
    return not any(
        not depth and _equals(text, first, min(last, end)) for first, last, depth in stretches
    )


def _stretches(text: str, at: int) -> Iterator[tuple[int, int, int]]:
    """The text from `at` on, where no bracket is open, as stretches from one stop to the next, and how deep each is."""
    depth = 0
    while at < len(text) and (stop := _next_stop(text, at)):
        yield at, stop.end(), depth
        at, kind = stop.end(), stop.lastindex
        if kind == _OPENS:
            depth += 1
        elif kind == _CLOSES:
            depth -= 1
        elif kind is None and at < len(text):
            at = _string_end(text, at)


def _lines(text: str) -> list[int]:
    """Where the lines begin that have no indentation and continue nothing; [] where that can't be told."""
    found = [] if text[:1] in ("", " ", "\t", "#", "\r", "\n") else [0]
    at = depth = 0
    try:
        while stop := _next_stop(text, at):
            at, kind = stop.end(), stop.lastindex
            if kind == _OPENS:
                depth += 1
            elif kind == _CLOSES:
                depth -= 1
                if depth < 0:
                    return []
            elif kind == _LINE:
                if not depth:
                    found.append(at)
            elif at == len(text):
                return [] if depth else found
            else:
                at = _string_end(text, at)
    except FaultAt:
        pass
    return []


def _string_end(text: str, at: int) -> int:
    """Where the string ends whose quote stands at `at`. Raises `FaultAt` if it does not end."""
    prefix = _format_prefix(text, max(at - 3, 0), at)
    plain = _plain_string(text, at)
    if prefix is None or (plain is not None and "{" not in plain.group()):
        if plain is None:
            raise FaultAt("unterminated string literal", at)
        return plain.end()
    quote = text[at] * 3 if text.startswith(text[at] * 3, at) else text[at]
    return formatted_end(text, prefix.group() + quote, at + len(quote))
