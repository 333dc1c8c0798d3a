"""The last proof before a file is replaced: the result is the original but for what was accepted.

It imports nothing of this package, so that a mistake in the rules or in the editing of trees is not repeated here.
Python's own parser and tokenizer read both texts. Both trees are walked side by side; where they differ, the
difference must be one of FORMS, and yields the spans of text that may differ. All other text is then compared
character by character.

What the running Python cannot parse (a newer syntax) is proved from its tokens: a logical line that is the same in
both texts is replaced by a stand-in before parsing, so only changed lines must be of this Python. Weaker there: the
result is not compiled, a name is looked up among imports alone, and the gate's name may stand for nothing but the
gate anywhere in the file.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
import warnings
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import zip_longest
from typing import Any, TypeGuard

AXES, EMPTY, INTERPRET, CORES, SPLAT, ANYWHERE, WRAPPED, CONDITION = (
    "collective_axes",
    "empty axes",
    "interpret",
    "num_cores",
    "splat",
    "anywhere",
    "wrapped",
    "condition",
)
# The latter from JAX 0.7.0 on.
_SIMULATORS = (
    'P.InterpretParams(dma_execution_mode="eager")',
    'P.InterpretParams(dma_execution_mode="eager", out_of_bounds_reads="uninitialized")',
)
_CLASSES = ("InterpretParams", "TPUInterpretParams")
_NOT_NATIVE = ("not GATE()", 'JAX.default_backend() == "cpu"')
_CHIP_INFO = "{0}.get_tpu_info_for_chip({0}.ChipVersion.CHIP, 1)"
_NEWLINE = re.compile(r"\r\n|\r|\n")
_OPENING, _CLOSING = ("(", "[", "{"), (")", "]", "}")


@dataclass(frozen=True)
class Accepted:
    """A change that was accepted: its rule, and where the edited keyword, entry, value or call stands.

    `line` counts from 1, `column` from 0, in characters, both in the original text.
    """

    code: str
    line: int
    column: int


@dataclass(frozen=True)
class Permit:
    """What a result may name.

    `gate` is the gate's name in this file, `gate_import` the module it is imported from and its name there, None
    where it is defined. `chip` is the member of `ChipVersion` and `device_kind` the text of `Device.device_kind` of
    the chip whose figures stand in (jax/_src/pallas/mosaic/tpu_info.py, 0.10.2). `removes` is whether axes may go.
    """

    gate: str = "on_tpu"
    gate_import: tuple[str, str] | None = None
    chip: str = "TPU_V6E"
    device_kind: str = "TPU v6 lite"
    removes: bool = True


class Refused(Exception):
    """The result could not be proved; `line` is of the original, counted from 1."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message, line)
        self.message = message
        self.line = line

    def __str__(self) -> str:
        return f"line {self.line}: {self.message}"


def prove(before: str, after: str, accepted: Sequence[Accepted], permit: Permit) -> bool:
    """Whether the running Python could parse `after`, which is `before` with exactly the changes `accepted`.

    Raises Refused where it is not. Both texts are as decoded, with their own line endings and any byte order mark.
    Where this Python can parse them it has compiled what is new in the result, too, if it compiles the original.
    """
    _same_frame(before, after)
    mark = before[:1] == "\ufeff"
    old, new = _Text(before[mark:]), _Text(after[mark:])
    try:
        trees = _parsed(old, new)
        unguards = any(one.code == "MP207" for one in accepted)
        proof = _Proof(old, new, permit, trees is not None, unguards)
        if trees is None:
            old.tokenize()
            new.tokenize()
            trees = _parsed_in_part(old, new, accepted, permit)
        proof.module(*trees)
        _Text.compare(old, new, proof.regions)
        _match(old, proof.changes, accepted)
        _Bindings(trees[1], proof, permit).check()
    except (RecursionError, MemoryError):  # the latter is what Python 3.11's parser raises
        raise Refused("the code is nested too deeply to be proved", 1) from None
    return proof.is_whole


def _same_frame(before: str, after: str) -> None:
    """What frames a file: byte order mark, interpreter line and encoding cookie (PEP 263), the end of the last line."""
    if before.startswith("\ufeff") != after.startswith("\ufeff"):
        raise Refused("a byte order mark was added or lost", 1)
    for number, (old, new) in enumerate(
        zip(_lines(before)[:2], _lines(after)[:2], strict=False), 1
    ):
        is_frame = old.startswith("#!") or re.match(r"[ \t\f]*#.*?coding[:=]", old)
        if is_frame and old != new:
            raise Refused(
                "the interpreter line or encoding cookie is no longer in its place", number
            )
    if before.endswith(("\n", "\r")) != after.endswith(("\n", "\r")):
        raise Refused("the newline at the end was added or lost", len(_lines(before)))


def _lines(text: str) -> list[str]:
    """`text` in lines with their endings; form feeds and the like end no line."""
    return re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", text)


# -- forms: what an edited value may become --


@dataclass(frozen=True)
class Form:
    """One permitted rewrite of what stands in `slot`: `before` (empty where nothing stood there) becomes `after`.

    Both are expressions in which these names stand for an expression: X any, T any that is no constant and no
    simulator parameters, V and W any whose own None may have become (), E a reference without calls, K and N a name,
    P and Q a dotted name, JAX and CONTEXTLIB the modules, MANAGER the context manager that gives figures. GATE, CHIP
    and KIND are what the Permit says.
    """

    codes: tuple[str, ...]
    slot: str
    before: str
    after: str


def _interpret_forms() -> Iterator[tuple[str, str]]:
    for nothing in ("", "False", "None", "0"):
        yield nothing, "True"
        yield from ((nothing, native) for native in _NOT_NATIVE)
        yield from (
            (nothing, f"{sim} if {native} else False")
            for sim in _SIMULATORS
            for native in _NOT_NATIVE
        )
    for former in ("", "False", "None", "0", "True", "1", "T"):
        yield from ((former, sim) for sim in _SIMULATORS)
    yield "T", "True"
    yield from (("T", f"T or {new}") for new in ("True", *_NOT_NATIVE))
    for sim in _SIMULATORS:
        yield "T", f"{sim} if T else False"
        kept = f"E if isinstance(E, P.InterpretParams) else {sim}"
        yield "E", kept
        yield from (("E", f"{kept} if E or {native} else False") for native in _NOT_NATIVE)


FORMS: tuple[Form, ...] = (
    Form(("MP101", "MP102"), AXES, "V", "V if GATE() else ()"),
    Form(("MP101", "MP102"), AXES, "V", "V"),
    Form(("MP101", "MP102"), EMPTY, "None", "()"),
    Form(("MP101", "MP102"), EMPTY, "V if X else W", "V if X else W"),
    *(Form(("MP110",), INTERPRET, before, after) for before, after in _interpret_forms()),
    *(
        Form(("MP110",), SPLAT, "K", f'{{**K, "interpret": K.get("interpret") or {new}}}')
        for new in ("True", *_NOT_NATIVE)
    ),
    *(
        Form(("MP120",), ANYWHERE, call, after)
        for call, path in (("Q.get_tpu_info()", "Q"), ("Q.get_tpu_info()", "P"), ("N()", "P"))
        for after in (_CHIP_INFO.format(path), f"{call} if GATE() else {_CHIP_INFO.format(path)}")
    ),
    Form(("MP121",), ANYWHERE, "X.device_kind", "KIND"),
    Form(("MP121",), ANYWHERE, "X.device_kind", "X.device_kind if GATE() else KIND"),
    Form(("MP130",), CORES, "", "1"),
    Form(("MP130",), CORES, "", "None if GATE() else 1"),
    Form(("MP130",), WRAPPED, "X", "MANAGER()(X)"),
)
# Arguments that may go, and that may come.
_REMOVABLE, _ADDABLE = (AXES,), (INTERPRET, CORES)
_ROLES = {
    "P": "tpu",
    "JAX": "jax",
    "CONTEXTLIB": "contextlib",
    "GATE": "gate",
    "MANAGER": "manager",
}
_VARIABLES = frozenset({"X", "T", "V", "W", "E", "K", "N", "Q", *_ROLES} - {"GATE"})
# Modules that may be imported: the usual name, the statement; the name may be _NAME or _NAME_2 and so on.
_IMPORTS = (
    ("contextlib", ast.Import, None, "contextlib"),
    ("jax", ast.Import, None, "jax"),
    ("pltpu", ast.ImportFrom, "jax.experimental.pallas", "tpu"),
)


# Functions that may be defined, without their docstrings; NAME is the gate's name, or that of a context manager.
_GATE = """\
def NAME() -> bool:
    return JAX.default_backend() == "tpu"
"""
_MANAGER = """\
@CONTEXTLIB.contextmanager
def NAME():{}
    device = JAX.sharding.AbstractDevice(device_kind=KIND, num_cores=1{})
    with JAX.sharding.use_abstract_mesh(JAX.sharding.AbstractMesh((), (), abstract_device=device)):
        yield
"""
_MANAGERS = tuple(
    _MANAGER.format(gated, platform)
    for gated in ("", "\n    if GATE():\n        yield\n        return")
    for platform in ("", ', platform="tpu"')  # a parameter from JAX 0.10.1 on
)
# What a call may be of, for a rewrite that is of its kind: what it makes is handed to the context manager, or itself;
# it skips a test where its condition holds, or where that does not.
_CALLED = {
    "pipeline": ("emit_pipeline",),
    "mesh": ("TensorCoreMesh", "ScalarSubcoreMesh", "VectorSubcoreMesh", "get_sparse_core_info"),
    "guard": ("skipif", "skipIf"),
    "demand": ("skipUnless",),
}
_MANAGER_NAME = re.compile(r"tpu_figures|_tpu_figures(_\d+)?")


@dataclass(frozen=True)
class _Pattern:
    """A Form whose CHIP and KIND are filled in, parsed."""

    form: Form
    before: ast.expr | None
    after: ast.expr

    @property
    def rewrites(self) -> bool:
        """Whether the form itself changes anything, or only what stands in it may."""
        return self.form.before != self.form.after


@cache
def _patterns(chip: str, device_kind: str) -> dict[str, list[_Pattern]]:
    words = {"CHIP": chip, "KIND": repr(device_kind)}

    def parsed(text: str) -> ast.expr:
        return ast.parse(re.sub(r"CHIP|KIND", lambda m: words[m.group()], text), mode="eval").body

    by_slot: dict[str, list[_Pattern]] = {}
    for form in FORMS:
        pattern = _Pattern(form, parsed(form.before) if form.before else None, parsed(form.after))
        by_slot.setdefault(form.slot, []).append(pattern)
    return by_slot


@cache
def _definitions(permit: Permit) -> list[tuple[str, ast.FunctionDef]]:
    """The functions that may be added to a module, each with its text: gates first."""
    texts = [] if permit.gate_import else [_GATE.replace("NAME", permit.gate)]
    texts += (text.replace("KIND", repr(permit.device_kind)) for text in _MANAGERS)
    found = []
    for text in texts:
        [definition] = ast.parse(text).body
        assert isinstance(definition, ast.FunctionDef)
        found.append((text, definition))
    return found


_Occurrences = list[tuple[str, ast.expr]]
_Pair = tuple[ast.expr, ast.expr]


def _fits(variable: str, node: ast.expr) -> bool:
    """Whether `node` is something that `variable` of a Form may stand for."""
    if variable == "MANAGER":
        return isinstance(node, ast.Name) and _MANAGER_NAME.fullmatch(node.id) is not None
    if variable in ("K", "N", "JAX", "CONTEXTLIB"):
        return isinstance(node, ast.Name)
    if variable in ("P", "Q"):
        return _dotted(node) is not None
    if variable == "E":
        costly = (ast.Call, ast.Await, ast.NamedExpr, ast.Yield, ast.YieldFrom)
        return isinstance(node, ast.Name | ast.Attribute) and not any(
            isinstance(n, costly) for n in ast.walk(node)
        )
    if variable == "T":
        return not isinstance(node, ast.Constant) and not _is_simulator(node)
    return True


def _is_simulator(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and (_dotted(node.func) or "").split(".")[-1] in _CLASSES


def _dotted(node: ast.AST) -> str | None:
    """`a.b.c` for a name or dotted name, else None."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else None


def _root(node: ast.AST) -> ast.Name:
    while isinstance(node, ast.Attribute):
        node = node.value
    assert isinstance(node, ast.Name)
    return node


def _occurrences(pattern: object, node: object, gate: str) -> _Occurrences | None:
    """What each variable of `pattern` (and the gate) stands for in `node`, in order; None where they differ."""
    if isinstance(pattern, ast.Name) and isinstance(node, ast.expr):
        if pattern.id in _VARIABLES:
            return [(pattern.id, node)] if _fits(pattern.id, node) else None
        if pattern.id == "GATE":
            return [("GATE", node)] if isinstance(node, ast.Name) and node.id == gate else None
    if type(pattern) is not type(node):
        return None
    if isinstance(pattern, list) and isinstance(node, list):
        pairs = list(zip_longest(pattern, node))
    elif isinstance(pattern, ast.AST):
        pairs = [
            (getattr(pattern, name, None), getattr(node, name, None)) for name in pattern._fields
        ]
    else:
        return [] if pattern == node else None
    found: _Occurrences = []
    for one, other in pairs:
        inner = _occurrences(one, other, gate)
        if inner is None:
            return None
        found += inner
    return found


def _same(one: object, other: object) -> bool:
    """Whether two trees are the same, wherever they stand."""
    todo = [(one, other)]
    while todo:
        old, new = todo.pop()
        if type(old) is not type(new):
            return False
        if isinstance(old, ast.AST):
            todo += [(getattr(old, name, None), getattr(new, name, None)) for name in old._fields]
        elif isinstance(old, list) and isinstance(new, list):
            if len(old) != len(new):
                return False
            todo += zip(old, new, strict=True)
        elif old != new and repr(old) != repr(new):
            return False
    return True


# -- text: tokens, comments and what may differ --


@dataclass(frozen=True)
class _Region:
    """Where the texts may differ: offsets of the original and of the result."""

    before: tuple[int, int]
    after: tuple[int, int]


@dataclass(frozen=True)
class _Splice:
    """Arguments or statements that stand in one text only, from token to token.

    `order` is about where they are in the original, `tokens` the (first, last) tokens of each, `added` whether they
    are in the result, `statements` whether they are such.
    """

    order: tuple[int, int]
    tokens: tuple[tuple[int, int], ...]
    added: bool
    statements: bool = False


# The line and column of a token, and the offset at which what it stands for begins.
_StandsFor = dict[tuple[int, int], int]


@dataclass(frozen=True)
class _Comment:
    start: int
    text: str
    own_line: bool


class _Text:
    """One text: its tokens (without comments, line ends and indents), its comments and its logical lines."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.is_ascii = text.isascii()
        self.lines = _lines(text)
        self.line_starts = [0]
        for line in self.lines:
            self.line_starts.append(self.line_starts[-1] + len(line))
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.comments: list[_Comment] = []
        self.logical: list[tuple[int, int]] = []
        self.newlines = set(_NEWLINE.findall(text))

    def tokenize(self, kept: Sequence[ast.stmt] = ()) -> None:
        """Find the tokens and comments; each of the statements `kept`, in order, counts as one, without comments.

        Raises Refused where the running Python finds none.
        """
        try:
            self._tokenize(*self._without(kept))
        except (tokenize.TokenError, SyntaxError) as error:
            message = f"Python {sys.version_info.major}.{sys.version_info.minor} cannot split this into tokens: {error}"
            raise Refused(message, 1) from None

    def _without(self, kept: Sequence[ast.stmt]) -> tuple[list[str], list[int], _StandsFor]:
        """The lines to be split, the number of each, and the offset of what the name at a place stands for."""
        lines: list[str] = []
        numbers: list[int] = []
        stands_for: _StandsFor = {}
        done = 0
        for node in kept:
            start, end = self.span(node)
            first, last = self.line(start), self.line(end - 1)
            before = self.text[self.line_starts[first - 1] : start]
            indent = before.rstrip("@")
            width = end - self.line_starts[last - 1]
            if first <= done or indent.strip(" \t\f") or width <= len(indent):
                continue  # it shares a line with another
            lines += self.lines[done : first - 1]
            numbers += range(done + 1, first)
            lines.append(indent.ljust(width, "_") + self.lines[last - 1][width:])
            numbers.append(last)
            stands_for[last, len(indent)] = start - len(before) + len(indent)
            done = last
        lines += self.lines[done:]
        numbers += range(done + 1, len(self.lines) + 2)
        return lines, numbers, stands_for

    def _tokenize(self, lines: list[str], numbers: list[int], stands_for: _StandsFor) -> None:
        source = io.StringIO("".join(line.rstrip("\r\n") + "\n" for line in lines))
        inside = first = 0  # depth of f-strings; index of the logical line's first token
        skipped = (tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
        for kind, string, begin, stop, _ in tokenize.generate_tokens(source.readline):
            name = tokenize.tok_name[kind]
            number, column = numbers[begin[0] - 1], begin[1]
            start = self.line_starts[number - 1] + column
            if name in ("FSTRING_START", "TSTRING_START"):
                inside += 1
                if inside > 1:
                    continue
            elif inside:
                inside -= name in ("FSTRING_END", "TSTRING_END")
                if not inside:
                    self.ends.append(self.line_starts[numbers[stop[0] - 1] - 1] + stop[1])
                continue
            elif kind == tokenize.COMMENT:
                alone = not lines[begin[0] - 1][:column].strip()
                self.comments.append(_Comment(start, string, alone))
                continue
            elif kind == tokenize.NEWLINE:
                self.logical.append((first, len(self.starts) - 1))
                first = len(self.starts)
                continue
            elif kind in skipped:
                continue
            self.starts.append(stands_for.get((number, column), start))
            if not inside:
                self.ends.append(self.line_starts[numbers[stop[0] - 1] - 1] + stop[1])

    @cached_property
    def partner(self) -> dict[int, int]:
        """Index of the token that closes, or opens, what the token at an index opens or closes."""
        found: dict[int, int] = {}
        open_ones: list[int] = []
        for index in range(len(self.starts)):
            string = self.token(index)
            if string in _OPENING:
                open_ones.append(index)
            elif string in _CLOSING and open_ones:
                opening = open_ones.pop()
                found[opening], found[index] = index, opening
        return found

    @cached_property
    def _comment_starts(self) -> list[int]:
        return [comment.start for comment in self.comments]

    def token(self, index: int) -> str:
        """The text of a token; empty before the first and after the last."""
        return (
            self.text[self.starts[index] : self.ends[index]]
            if 0 <= index < len(self.starts)
            else ""
        )

    def first(self, offset: int) -> int:
        """Index of the first token at or after `offset`."""
        return bisect_left(self.starts, offset)

    def offset(self, line: int, column: int) -> int:
        """Offset of a place in a tree, whose columns count bytes of UTF-8."""
        text = self.lines[line - 1] if line <= len(self.lines) else ""
        if not self.is_ascii and not text.isascii():
            column = len(
                text.encode("utf-8", "surrogatepass")[:column].decode("utf-8", "surrogatepass")
            )
        return self.line_starts[line - 1] + column

    def place(self, offset: int) -> tuple[int, int]:
        """The line and column, as trees count them, of `offset`."""
        line = bisect_right(self.line_starts, offset)
        return line, len(
            self.text[self.line_starts[line - 1] : offset].encode("utf-8", "surrogatepass")
        )

    def line(self, offset: int) -> int:
        """Number of the line that holds `offset`, from 1."""
        return max(1, min(bisect_right(self.line_starts, offset), len(self.lines)))

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Where a node begins and ends, a statement without the first @ of its decorators."""
        place: Any = node
        first: Any = (getattr(node, "decorator_list", None) or [node])[0]
        return self.offset(first.lineno, first.col_offset), self.offset(
            place.end_lineno, place.end_col_offset
        )

    def source(self, node: ast.AST) -> str:
        """The text of a node."""
        return self.text[slice(*self.span(node))]

    def tokens(self, node: ast.AST) -> tuple[int, int]:
        """First and last token of a node."""
        start, end = self.span(node)
        return self.first(start), self.first(end) - 1

    def parentheses(self, first: int, last: int) -> int:
        """How many pairs of parentheses stand directly around the tokens from `first` to `last`."""
        pairs = 0
        while (
            self.token(first - pairs - 1) == "("
            and self.partner.get(first - pairs - 1) == last + pairs + 1
        ):
            pairs += 1
        return pairs

    def between(self, start: int, end: int) -> list[_Comment]:
        """The comments in a span."""
        return self.comments[
            bisect_left(self._comment_starts, start) : bisect_left(self._comment_starts, end)
        ]

    def gap(self, tokens: tuple[tuple[int, int], ...]) -> tuple[int, int, int | None, int | None]:
        """From the end of the token before `tokens` to the start of that after them, past a comma on either side.

        Also where these commas are.
        """
        left, right = tokens[0][0] - 1, tokens[-1][1] + 1
        commas = [self.starts[i] if self.token(i) == "," else None for i in (left, right)]
        left -= commas[0] is not None
        right += commas[1] is not None
        return (
            self.ends[left] if left >= 0 else 0,
            self.starts[right] if right < len(self.starts) else len(self.text),
            commas[0],
            commas[1],
        )

    @staticmethod
    def compare(old: _Text, new: _Text, regions: Sequence[_Region | _Splice]) -> None:
        """Raise Refused unless the texts are equal but in `regions`, and those are as they may be."""
        done_old = done_new = 0
        for region in sorted(
            regions, key=lambda r: r.before if isinstance(r, _Region) else r.order
        ):
            if isinstance(region, _Splice):
                region = _spliced(old, new, region, done_new - done_old)
            _equal(old, new, (done_old, region.before[0]), (done_new, region.after[0]))
            _line_ends(old, new, region)
            done_old, done_new = region.before[1], region.after[1]
        _equal(old, new, (done_old, len(old.text)), (done_new, len(new.text)))


def _equal(old: _Text, new: _Text, kept: tuple[int, int], now: tuple[int, int]) -> None:
    one, other = old.text[slice(*kept)], new.text[slice(*now)]
    if one == other and kept[0] <= kept[1] and now[0] <= now[1]:
        return
    shared = _common(one, other)
    place = old.line(min(kept[0] + shared, max(len(old.text) - 1, 0)))
    was, became = one[shared : shared + 20], other[shared : shared + 20]
    raise Refused(f"text differs outside the accepted changes: {was!r} became {became!r}", place)


def _line_ends(old: _Text, new: _Text, region: _Region) -> None:
    if old.newlines and not set(_NEWLINE.findall(new.text, *region.after)) <= old.newlines:
        raise Refused(
            "a line was added with another line ending than the file's", old.line(region.before[0])
        )


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """Length of the common beginning."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))


def _is_cut(
    short: Sequence[str], left: Sequence[str], inner: Sequence[str], right: Sequence[str]
) -> bool:
    """Whether `short` is a beginning of `left`, an end of `right`, and between them only pieces of `inner`."""
    begin = _common(left, short)
    end = min(_common(right[::-1], short[::-1]), len(short) - begin)
    pieces = iter(inner)
    return all(piece in pieces for piece in short[begin : len(short) - end])


def _spliced(old: _Text, new: _Text, splice: _Splice, shift: int) -> _Region:
    """The region of `splice`, proved to be nothing but its arguments or statements and what joins them.

    `shift` is how far the text before it has moved.
    """
    long, short = (new, old) if splice.added else (old, new)
    start, end, comma_before, comma_after = long.gap(splice.tokens)
    begin = start + (-shift if splice.added else shift)
    following = short.first(max(begin, 0))
    has_comma = not splice.statements and short.token(following) == ","
    following += has_comma
    stop = short.starts[following] if following < len(short.starts) else len(short.text)
    one, other = (start, end), (begin, stop)
    region = _Region(other, one) if splice.added else _Region(one, other)
    place = old.line(region.before[0])
    first, last = long.starts[splice.tokens[0][0]], long.ends[splice.tokens[-1][1]]
    gap, left, right = short.text[begin:stop], long.text[start:first], long.text[last:end]
    if splice.statements:
        _whole_lines(gap, left, right, place)
    else:
        is_last = short.token(following) in _CLOSING
        is_only = is_last and short.partner.get(following) == following - has_comma - 1
        if is_last and not is_only and has_comma != (comma_after is not None):
            raise Refused("a trailing comma was added or lost", place)
        inner = "".join(
            long.text[long.ends[a[1]] : long.starts[b[0]]]
            for a, b in zip(splice.tokens, splice.tokens[1:], strict=False)
        )
        lefts = {left, _without(left, comma_before, start)}
        rights = {right, _without(right, comma_after, last)}
        indents = {_indent(side) for side in (*lefts, *rights)}
        if _indent(gap) not in {None, *indents} or not any(
            _is_cut(gap, one, inner, other) for one in lefts for other in rights
        ):
            raise Refused("the text around an argument that was added or removed differs", place)
    _same_comments(old, new, region, None if splice.added else (old.line(first), old.line(last)))
    return region


def _without(text: str, comma: int | None, start: int) -> str:
    return text if comma is None else text[: comma - start] + text[comma - start + 1 :]


def _indent(text: str) -> str | None:
    """What stands after the last line end of `text`."""
    last = max(text.rfind("\n"), text.rfind("\r"))
    return text[last + 1 :] if last >= 0 else None


def _whole_lines(gap: str, left: str, right: str, place: int) -> None:
    rest = _NEWLINE.match(right)
    starts_line = not left or left[-1] in "\r\n"
    if not starts_line or (right and not rest):
        raise Refused("what was added to the module shares a line with something else", place)
    below = right[rest.end() :] if rest else ""
    if not _is_cut(_lines(gap), _lines(left), [], _lines(below)):
        raise Refused("lines around what was added to the module differ", place)


def _same_comments(
    old: _Text, new: _Text, region: _Region, removed: tuple[int, int] | None
) -> None:
    """Comments in `region` are the same; those on the `removed` lines (first, last) may be gone."""
    left = new.between(*region.after)
    for comment in old.between(*region.before):
        line = old.line(comment.start)
        may_go = removed is not None and removed[0] <= line <= removed[1]
        here = left[0] if left else None
        # A comment beside a comma that leads its line is alone there once that comma is gone.
        beside = old.lines[line - 1].strip(" \t\f").startswith(",")
        as_before = here and (here.own_line == comment.own_line or (here.own_line and beside))
        if here and here.text == comment.text and (may_go or as_before):
            left = left[1:]
        elif not may_go:
            raise Refused(f"a comment was lost or moved: {comment.text}", line)
    if left:
        raise Refused(f"a comment was added or moved: {left[0].text}", old.line(region.before[0]))


# -- trees --


@dataclass(frozen=True)
class _Change:
    """A difference that was found: which codes may have made it, where their change may say it stands, what it is.

    `places` are spans of the original, both ends included. `removed` is the span that is gone, if it is one.
    """

    codes: tuple[str, ...]
    places: tuple[tuple[int, int], ...]
    line: int
    what: str
    removed: tuple[int, int] | None = None


@dataclass(frozen=True)
class _Use:
    """A name in the result that a rewrite has put there, or hands on: of a function or module, in `path` if dotted.

    `line` is of the original.
    """

    name: ast.Name
    role: str
    line: int
    path: str = ""


# An argument, or the key of an entry, and its value.
_Removed = tuple[ast.keyword | ast.expr, ast.expr]


class _Differs(Exception):
    """Two trees differ in a way that no form permits."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.message = message
        self.line = line


@dataclass
class _Proof:
    """Walks both trees and notes the permitted differences; any other raises."""

    old: _Text
    new: _Text
    permit: Permit
    is_whole: bool  # whether the trees are of the texts themselves, not of stand-ins
    unguards: bool  # whether changes of guards were accepted
    indents: set[str] = field(default_factory=set)
    changes: list[_Change] = field(default_factory=list)
    regions: list[_Region | _Splice] = field(default_factory=list)
    uses: list[_Use] = field(default_factory=list)
    additions: list[ast.stmt] = field(default_factory=list)

    def module(self, old: ast.Module, new: ast.Module) -> None:
        """Compare two modules. Raises Refused."""
        self.indents = set(_indents(self.old, old))
        pairs = [*self._aligned(old, new)]
        if self.is_whole:
            same = [*self._unchanged(pairs)]
            self.old.tokenize([one for one, _ in same])
            self.new.tokenize([other for _, other in same])
        index, run = 0, []
        try:
            for counterpart, statement in pairs:
                if counterpart is None:
                    run.append(statement)
                    continue
                self._insert(run, old, index)
                run = []
                self.walk(counterpart, statement)
                index += 1
            self._insert(run, old, index)
            if index < len(old.body):
                raise _Differs("a statement was lost", old.body[index].lineno)
        except _Differs as differs:
            raise Refused(differs.message, differs.line) from None

    def _aligned(
        self, old: ast.Module, new: ast.Module
    ) -> Iterator[tuple[ast.stmt | None, ast.stmt]]:
        """Each statement of the result with that of the original that it was, None for one that may be added.

        Raises Refused where there are too many.
        """
        index = 0
        for statement in new.body:
            counterpart = old.body[index] if index < len(old.body) else None
            is_same = counterpart is not None and self._same_text(counterpart, statement)
            is_addition = not is_same and self._is_addition(statement)
            if is_addition and not (counterpart and _same(counterpart, statement)):
                yield None, statement
                continue
            if counterpart is None:
                raise Refused("a statement was added at the end", max(len(self.old.lines), 1))
            yield counterpart, statement
            index += 1

    def _unchanged(
        self, pairs: Iterable[tuple[ast.stmt | None, ast.stmt]]
    ) -> Iterator[tuple[ast.stmt, ast.stmt]]:
        """The statements that are written alike, alone or in others that are not, in order."""
        for old, new in pairs:
            if old is None:
                continue
            if self._same_text(old, new):
                yield old, new
                continue
            for name in ("body", "orelse", "finalbody"):
                one, other = getattr(old, name, []), getattr(new, name, [])
                if len(one) == len(other):
                    yield from self._unchanged(zip(one, other, strict=True))

    def _same_text(self, old: ast.stmt, new: object) -> bool:
        """Whether two statements are written alike, and so are the same tree."""
        if not (self.is_whole and isinstance(new, ast.stmt)):
            return False
        return self.old.source(old) == self.new.source(new)

    def walk(self, old: object, new: object, line: int = 1) -> None:
        """Compare two trees. Raises _Differs."""
        todo: list[tuple[Any, Any, int]] = [(old, new, line)]
        while todo:
            one, other, line = todo.pop()
            line = getattr(one, "lineno", line)
            if isinstance(one, ast.expr) and self._expression(one, other):
                continue
            if isinstance(one, ast.stmt) and self._same_text(one, other):
                continue
            if type(one) is not type(other):
                raise _Differs(f"{_kind(one)} became {_kind(other)}", line)
            if isinstance(one, ast.JoinedStr) or type(one).__name__ == "TemplateStr":
                if not _same(one, other):
                    raise _Differs("an f-string was touched", line)
            elif isinstance(one, ast.Call):
                done = self._is_unguarded_call(one, other)
                todo.append((one.func, other.func, line))
                todo.append((one.args[done:], other.args[done:], line))
                self._keywords(one, other)
            elif isinstance(one, ast.If) and self._is_unguarded_if(one, other):
                todo.append((one.body, other.body, line))
                todo.append((one.orelse, other.orelse, line))
            elif isinstance(one, ast.Dict):
                self._entries(one, other)
            elif isinstance(one, ast.AST):
                todo += [
                    (getattr(one, name, None), getattr(other, name, None), line)
                    for name in one._fields
                ]
            elif isinstance(one, list):
                if len(one) != len(other):
                    raise _Differs(f"{len(one)} items became {len(other)}: {_kinds(one)}", line)
                todo += [(a, b, line) for a, b in zip(one, other, strict=True)]
            elif one != other and repr(one) != repr(other):
                raise _Differs(f"{one!r} became {other!r}", line)

    # -- values --

    def _expression(self, old: ast.expr, new: object) -> bool:
        """Whether `old` is rewritten by a form that serves anywhere, or is handed to a context manager."""
        if not isinstance(new, ast.expr):
            return False
        handed = _handed(new)
        if handed is not None:
            start = self.old.span(old)[0]
            if self._value(WRAPPED, old, new, ((start, start),)):
                self._note_handed(handed, old.lineno)
                return True
        figures = isinstance(old, ast.Call) and not (old.args or old.keywords)
        kind = isinstance(old, ast.Attribute) and old.attr == "device_kind"
        return (figures or kind) and self._value(ANYWHERE, old, new)

    def _note_handed(self, node: ast.expr, line: int) -> None:
        """Note what is handed to the context manager, which must be a pipeline or what makes a mesh."""
        role, callee = ("pipeline", node.func) if isinstance(node, ast.Call) else ("mesh", node)
        path = _dotted(callee)
        if path is None:
            raise _Differs(f"{_kind(node)} was handed to a context manager", line)
        self.uses.append(_Use(_root(callee), role, line, path))

    def _value(
        self, slot: str, old: ast.expr, new: ast.expr, places: tuple[tuple[int, int], ...] = ()
    ) -> bool:
        """Whether a form of `slot` makes `new` of `old`; if so, the change is noted (not for a part of a value)."""
        if _same(old, new):
            return False
        for pattern in self._patterns(slot):
            state = len(self.changes), len(self.regions), len(self.uses)
            try:
                rewritten = self._rewritten(pattern, old, new)
            except _Differs:
                rewritten = False
            if rewritten:
                if slot != EMPTY:
                    line, what = old.lineno, f"{ast.unparse(old)} became {ast.unparse(new)}"
                    self.changes.append(
                        _Change(pattern.form.codes, places or (self.old.span(old),), line, what)
                    )
                return True
            del self.changes[state[0] :], self.regions[state[1] :], self.uses[state[2] :]
        return False

    def _patterns(self, slot: str) -> list[_Pattern]:
        return _patterns(self.permit.chip, self.permit.device_kind)[slot]

    def _rewritten(self, pattern: _Pattern, old: ast.expr, new: ast.expr) -> bool:
        """Whether `pattern` makes `new` of `old`. Raises _Differs where a part that should be the same is not."""
        if pattern.before is None:
            return False
        known = _occurrences(pattern.before, old, self.permit.gate)
        if known is None:
            return False
        found = _occurrences(pattern.after, self._grouped(pattern.after, new), self.permit.gate)
        if found is None:
            return False
        parts = dict(known)
        kept: list[_Pair] = []
        changed = pattern.rewrites
        for variable, node in found:
            part = parts.get(variable)
            if part is None or any(part is one for one, _ in kept):
                continue
            kept.append((part, node))
            if variable in ("V", "W") and self._value(EMPTY, part, node):
                changed = True
            else:
                self.walk(part, node)
        if changed and self._named(found, parts, old.lineno):
            self._mark(old, new, kept, pattern.rewrites)
            return True
        return False

    def _grouped(self, pattern: ast.expr, new: ast.expr) -> ast.expr:
        """`a or b or c` as `(a or b) or c`, which means the same, where `pattern` is `T or c`."""
        if not (
            isinstance(pattern, ast.BoolOp) and isinstance(new, ast.BoolOp) and len(new.values) > 2
        ):
            return new
        operator = self.new.tokens(new.values[-1])[0] - 1
        while self.new.token(operator) == "(":
            operator -= 1
        end = self.new.place(self.new.ends[operator - 1])
        inner = ast.BoolOp(new.op, new.values[:-1])
        inner.lineno, inner.col_offset = new.lineno, new.col_offset
        inner.end_lineno, inner.end_col_offset = end
        return ast.copy_location(ast.BoolOp(new.op, [inner, new.values[-1]]), new)

    def _named(self, found: _Occurrences, parts: dict[str, ast.expr], line: int) -> bool:
        """Whether each variable stands for one thing throughout; names that the rewrite brings are noted."""
        known = dict(parts)
        for variable, node in found:
            if variable not in ("X", "T", "V", "W") and not _same(
                known.setdefault(variable, node), node
            ):
                return False
            if variable in parts:
                continue
            self.uses.append(_Use(_root(node), _ROLES[variable], line, _dotted(node) or ""))
        return True

    def _mark(self, old: ast.expr, new: ast.expr, kept: list[_Pair], may_wrap: bool) -> None:
        """Note as regions what of `old` and `new` is around the parts that were kept.

        `may_wrap` says whether the form may have put parentheses around the whole, or taken them away.
        """
        (start, stop), (first, last) = self.old.tokens(old), self.new.tokens(new)
        more = self.new.parentheses(first, last) - self.old.parentheses(start, stop)
        fewer, more = max(-more, 0) * may_wrap, max(more, 0) * may_wrap
        before = self.old.starts[start - fewer], self.old.ends[stop + fewer]
        after = self.new.starts[first - more], self.new.ends[last + more]
        done, now = before[0], after[0]
        for one, other in sorted(kept, key=lambda pair: self.old.span(pair[0])):
            was, became = self.old.span(one), self.new.span(other)
            self._region((done, was[0]), (now, became[0]))
            done, now = was[1], became[1]
        self._region((done, before[1]), (now, after[1]))

    def _region(self, before: tuple[int, int], after: tuple[int, int]) -> None:
        region = _Region(before, after)
        _same_comments(self.old, self.new, region, None)
        if before[0] < before[1] or after[0] < after[1]:
            self.regions.append(region)

    # -- conditions of guards --

    def _is_unguarded_if(self, old: ast.If, new: ast.If) -> bool:
        place = self.old.span(old)[0], self.old.span(old.test)[0]
        return self._is_unguarded(None, old.test, new.test, place)

    def _is_unguarded_call(self, old: ast.Call, new: ast.Call) -> bool:
        """Whether the first of the arguments is a condition that was rewritten."""
        if not (self.unguards and old.args and new.args):
            return False
        place = self._head(old)[1], self.old.span(old.args[0])[0]
        return self._is_unguarded(new, old.args[0], new.args[0], place)

    def _is_unguarded(
        self, call: ast.Call | None, old: ast.expr, new: ast.expr, place: tuple[int, int]
    ) -> bool:
        """Whether parts of a condition, of `call` in the result or of an `if`, are now what keeps it from skipping."""
        path = _dotted(call.func) if call else ""
        if not self.unguards or path is None or _same(old, new):
            return False
        for role in ("guard", "demand") if call else ("guard",):
            state = len(self.changes), len(self.regions), len(self.uses)
            try:
                is_rewritten = self._condition(old, new, role == "guard")
            except _Differs:
                is_rewritten = False
            if is_rewritten:
                what = f"{ast.unparse(old)} became {ast.unparse(new)}"
                self.changes.append(_Change(("MP207",), (place,), old.lineno, what))
                if call:
                    self.uses.append(_Use(_root(call.func), role, old.lineno, path))
                return True
            del self.changes[state[0] :], self.regions[state[1] :], self.uses[state[2] :]
        return False

    def _condition(self, old: ast.expr, new: ast.expr, skips_on: bool) -> bool:
        """Whether parts of a condition are now constants; `skips_on` is what it is where it skips.

        Raises _Differs where anything else differs.
        """
        if _same(old, new):
            return False
        if isinstance(new, ast.Constant) and new.value is (not skips_on):
            binds = (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)
            if isinstance(old, ast.Constant) or any(isinstance(n, binds) for n in ast.walk(old)):
                raise _Differs(f"{_kind(old)} became {_kind(new)}", old.lineno)
            self._mark(old, new, [], may_wrap=False)
            return True
        if _is_not(old) and _is_not(new):
            return self._condition(old.operand, new.operand, not skips_on)
        parts = _operands(old, new)
        if not parts:
            self.walk(old, new, old.lineno)
        rewritten = [self._condition(one, other, skips_on) for one, other in parts]
        return True in rewritten

    # -- arguments and entries --

    def _keywords(self, old: ast.Call, new: ast.Call) -> None:
        """Compare the keyword arguments of two calls."""
        before, after = old.keywords, new.keywords
        index = other = 0
        removed: list[_Removed] = []
        while index < len(before) or other < len(after):
            one = before[index] if index < len(before) else None
            two = after[other] if other < len(after) else None
            if one and self._is_removed(one, two):
                removed.append((one, _sole_entry(one.value) or one.value))
                index += 1
                continue
            self._remove(removed, [self.old.tokens(item) for item, _ in removed])
            removed = []
            if two and two.arg in _ADDABLE and (one is None or one.arg != two.arg):
                self._add(old, new, two, ([*old.args, *before[:index]] or [old.func])[-1])
                other += 1
                continue
            if one is None or two is None or one.arg != two.arg:
                what = f"argument {_argument(one)} became {_argument(two)}"
                raise _Differs(what, one.lineno if one else old.lineno)
            self._keyword(old, new, one, two)
            index, other = index + 1, other + 1
        self._remove(removed, [self.old.tokens(item) for item, _ in removed])

    def _keyword(self, call: ast.Call, made: ast.Call, old: ast.keyword, new: ast.keyword) -> None:
        """Compare one keyword argument of `call`, which is `made` in the result."""
        start = self.old.span(old)[0]
        places: tuple[tuple[int, int], ...] = ((start, self.old.span(old.value)[0]),)
        slot = SPLAT if old.arg is None else old.arg
        if slot in (INTERPRET, SPLAT):
            places = (*places, self._head(call))
        if slot == CONDITION and self._is_unguarded(made, old.value, new.value, places[0]):
            return
        if slot not in (AXES, INTERPRET, SPLAT) or not self._value(
            slot, old.value, new.value, places
        ):
            self.walk(old.value, new.value, old.lineno)

    def _is_removed(self, old: ast.keyword, new: ast.keyword | None) -> bool:
        if not self.permit.removes:
            return False
        if old.arg is not None:
            return old.arg in _REMOVABLE and (new is None or new.arg != old.arg)
        if _sole_entry(old.value) is None:
            return False
        # It is still there if it has become empty, or its entry is still there.
        return not (new and new.arg is None and (_sole_entry(new.value) or _is_empty(new.value)))

    def _remove(self, items: Sequence[_Removed], tokens: list[tuple[int, int]]) -> None:
        """Note that neighbouring arguments or entries, each with its value, are gone."""
        for (_, value), (first, last) in zip(items, tokens, strict=True):
            start, end = self.old.starts[first], self.old.ends[last]
            place = (start, self.old.span(value)[0])
            what = f"{self.old.text[start:end]} is gone"
            codes = ("MP101", "MP102")
            self.changes.append(_Change(codes, (place,), self.old.line(start), what, (start, end)))
        if items:
            order = self.old.starts[tokens[0][0]], 0
            self.regions.append(_Splice(order, tuple(tokens), added=False))

    def _add(self, call: ast.Call, new: ast.Call, keyword: ast.keyword, last: ast.AST) -> None:
        """Note that `keyword` has come to `call`, after its argument `last`."""
        assert keyword.arg is not None
        if _dotted(call.func) is None:
            raise _Differs(
                f"argument {keyword.arg} was added to the result of another call", call.lineno
            )
        for pattern in self._patterns(keyword.arg):
            found = _occurrences(pattern.after, keyword.value, self.permit.gate)
            if pattern.before is None and found is not None and self._named(found, {}, call.lineno):
                what = f"{keyword.arg}={ast.unparse(keyword.value)} was added"
                self.changes.append(
                    _Change(pattern.form.codes, (self._head(call),), call.lineno, what)
                )
                order = self.old.span(last)[1], sys.maxsize
                self.regions.append(_Splice(order, (self.new.tokens(keyword),), added=True))
                return
        raise _Differs(
            f"{keyword.arg}={ast.unparse(keyword.value)} is no form that may be added", call.lineno
        )

    def _head(self, call: ast.Call) -> tuple[int, int]:
        """Where a call begins, up to its opening parenthesis, with the @ of a decorator."""
        first, last = self.old.tokens(call)
        opening = self.old.partner.get(last, first)
        first -= self.old.token(first - 1) == "@"
        return self.old.starts[first], self.old.starts[opening]

    def _entries(self, old: ast.Dict, new: ast.Dict) -> None:
        """Compare two dict displays."""
        other = 0
        removed: list[tuple[ast.expr, ast.expr]] = []
        for key, value in zip(old.keys, old.values, strict=True):
            there = new.keys[other] if other < len(new.keys) else None
            is_there = other < len(new.keys) and _is_axes(there)
            if self.permit.removes and _is_axes(key) and not is_there:
                assert key is not None
                removed.append((key, value))
                continue
            if other == len(new.keys):
                raise _Differs("a dict entry was lost", value.lineno)
            self.walk(key, there, value.lineno)
            self._entry(key, value, new.values[other])
            other += 1
        if other < len(new.keys):
            raise _Differs("a dict entry was added", old.lineno)
        for key, value in removed:
            self._remove([(key, value)], [self._entry_tokens(key, value)])

    def _entry(self, key: ast.expr | None, old: ast.expr, new: ast.expr) -> None:
        places = ((self.old.span(key)[0], self.old.span(old)[0]),) if key else ()
        if _key(key) not in (AXES, INTERPRET) or not self._value(_key(key), old, new, places):
            self.walk(old, new, old.lineno)

    def _entry_tokens(self, key: ast.expr, value: ast.expr) -> tuple[int, int]:
        """First and last token of an entry, with parentheses around its value."""
        first, last = self.old.tokens(key)[0], self.old.tokens(value)[1]
        while self.old.partner.get(last + 1, -1) > first:
            last += 1
        return first, last

    # -- what is added to the module --

    def _is_addition(self, node: ast.stmt) -> bool:
        return (
            _bound_import(node, self.permit) is not None
            or _definition(node, self.permit) is not None
        )

    def _insert(self, run: list[ast.stmt], old: ast.Module, index: int) -> None:
        """Note that the statements `run` were put before the statement `index` of the original."""
        if not run:
            return
        line = old.body[index].lineno if index < len(old.body) else len(self.old.lines)
        if index == 0 and ast.get_docstring(old, clean=False) is not None:
            raise _Differs("something was put before the module's docstring", line)
        if any(
            isinstance(node, ast.ImportFrom) and node.module == "__future__"
            for node in old.body[index:]
        ):
            raise _Differs("something was put before from __future__", line)
        for number, node in enumerate(run):
            earlier = [*old.body[:index], *self.additions, *run[:number]]
            if any(_same(node, one) for one in earlier):
                raise _Differs(f"{ast.unparse(node).splitlines()[0]} stands there twice", line)
        self.additions += run
        for node in run:
            if isinstance(node, ast.FunctionDef):
                self._define(node, line)
        after = self.old.span(old.body[index - 1])[1] if index else 0
        tokens = self.new.first(self._start(run[0])), self.new.tokens(run[-1])[1]
        self.regions.append(_Splice((after, sys.maxsize), (tokens,), added=True, statements=True))

    def _start(self, node: ast.stmt) -> int:
        """Where a statement of the result begins, with the @ of its decorators."""
        if isinstance(node, ast.FunctionDef) and node.decorator_list:
            return self.new.starts[self.new.tokens(node.decorator_list[0])[0] - 1]
        return self.new.span(node)[0]

    def _define(self, node: ast.FunctionDef, line: int) -> None:
        """Note what the function `node` uses, which is added; it must be laid out as we write it."""
        definition = _definition(node, self.permit)
        assert definition is not None
        text, found = definition
        if not self._named(found, {}, line):
            raise _Differs(f"in {node.name} one module has several names", line)
        head, body = text.split(":\n", 1)
        wanted = [*f"{head}:\n    DOCSTRING\n{body}".splitlines()]
        lines = self.new.lines[self.new.line(self._start(node)) - 1 : node.end_lineno]
        unit = _indent_of(self.new.lines[node.lineno])
        depths = [len(_indent_of(one)) // len("    ") for one in wanted]
        if [_indent_of(one) for one in lines] != [unit * depth for depth in depths]:
            raise _Differs(f"the definition of {node.name} is laid out in another way", line)
        if self.indents and unit not in self.indents:
            message = f"the definition of {node.name} is indented as nothing else in the file"
            raise _Differs(message, line)


def _indents(text: _Text, tree: ast.Module) -> Iterator[str]:
    """The indentation of each block of the module."""
    for statement in tree.body:
        if isinstance(statement, ast.Match):
            inner: ast.AST | None = statement.cases[0].pattern
        else:
            inner = next(iter(getattr(statement, "body", [])), None)
        if inner is not None:
            start = text.span(inner)[0]
            before = text.text[text.line_starts[text.line(start) - 1] : start]
            if before.isspace():
                yield before


def _indent_of(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def _kind(node: object) -> str:
    """What to call a part of a tree in a message."""
    if isinstance(node, ast.stmt):
        return f"the statement {ast.unparse(node).splitlines()[0]!r}"
    return repr(ast.unparse(node)) if isinstance(node, ast.expr) else repr(node)


def _kinds(nodes: list[Any]) -> str:
    return ", ".join(_kind(node) for node in nodes[:3]) + (", ..." if len(nodes) > 3 else "")


def _argument(keyword: ast.keyword | None) -> str:
    return "none" if keyword is None else repr(ast.unparse(keyword))


def _key(key: ast.expr | None) -> str:
    """The text of a dict entry's key; empty where it is none."""
    return key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else ""


def _is_axes(key: ast.expr | None) -> bool:
    return _key(key) == AXES


def _is_dict_call(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "dict"
        and not node.args
    )


def _sole_entry(node: ast.expr) -> ast.expr | None:
    """The axes, where they are all that a dict display or call holds."""
    if isinstance(node, ast.Dict) and len(node.keys) == 1 and _is_axes(node.keys[0]):
        return node.values[0]
    if (
        isinstance(node, ast.Call)
        and _is_dict_call(node)
        and [k.arg for k in node.keywords] == [AXES]
    ):
        return node.keywords[0].value
    return None


def _is_empty(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        return _is_dict_call(node) and not node.keywords
    return isinstance(node, ast.Dict) and not node.keys


def _bound_import(node: ast.stmt, permit: Permit) -> str | None:
    """The name that an import binds which may be added to a module; None where `node` is no such import."""
    if not isinstance(node, ast.Import | ast.ImportFrom) or len(node.names) != 1:
        return None
    alias = node.names[0]
    bound = alias.asname or alias.name
    module = "." * node.level + (node.module or "") if isinstance(node, ast.ImportFrom) else None
    for usual, kind, package, name in _IMPORTS:
        if type(node) is kind and (module, alias.name) == (package, name):
            return bound if re.fullmatch(rf"{usual}|_{usual}(_\d+)?", bound) else None
    wanted = permit.gate_import
    return (
        bound
        if wanted is not None and (module, alias.name, bound) == (*wanted, permit.gate)
        else None
    )


def _definition(node: ast.stmt, permit: Permit) -> tuple[str, _Occurrences] | None:
    """Which function that may be added `node` defines: its text, and what the text's names stand for."""
    if not isinstance(node, ast.FunctionDef) or not 2 <= len(node.body) <= 4:
        return None
    if not ast.get_docstring(node, clean=False):
        return None
    fields = {**dict(ast.iter_fields(node)), "body": node.body[1:]}
    for text, pattern in _definitions(permit):
        is_manager = pattern.name == "NAME"
        if is_manager and not _MANAGER_NAME.fullmatch(node.name):
            continue
        name = pattern.name if is_manager else node.name
        found = _occurrences(pattern, ast.FunctionDef(**{**fields, "name": name}), permit.gate)
        if found is not None:
            return text, found
    return None


def _is_not(node: ast.expr) -> TypeGuard[ast.UnaryOp]:
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)


def _operands(old: ast.expr, new: ast.expr) -> list[_Pair]:
    """The operands of two expressions, if both are joined by `and`, or both by `or`, and are as many."""
    if isinstance(old, ast.BoolOp) and isinstance(new, ast.BoolOp):
        is_same = type(old.op) is type(new.op) and len(old.values) == len(new.values)
        return list(zip(old.values, new.values, strict=True)) if is_same else []
    return []


def _handed(node: ast.expr) -> ast.expr | None:
    """X where `node` is `MANAGER()(X)`; None where it is not."""
    if (
        isinstance(node, ast.Call)
        and len(node.args) == 1
        and isinstance(node.func, ast.Call)
        and isinstance(node.func.func, ast.Name)
        and _fits("MANAGER", node.func.func)
    ):
        return node.args[0]
    return None


def _match(old: _Text, changes: Sequence[_Change], accepted: Sequence[Accepted]) -> None:
    """Raise Refused unless each change was accepted, once, and each accepted one was made."""
    waiting: dict[int, list[Accepted]] = {}
    for one in accepted:
        if not 1 <= one.line <= max(len(old.lines), 1):
            raise Refused(f"an accepted change of {one.code} stands outside the file", 1)
        waiting.setdefault(old.line_starts[one.line - 1] + one.column, []).append(one)
    offsets = sorted(waiting)
    for change in sorted(changes, key=lambda c: c.places):
        within = (
            (offset, one)
            for start, end in change.places
            for offset in offsets[bisect_left(offsets, start) : bisect_right(offsets, end)]
            for one in waiting[offset]
            if one.code in change.codes
        )
        offset, taken = next(within, (0, None))
        if taken is None:
            raise Refused(f"this was not accepted: {change.what}", change.line)
        waiting[offset].remove(taken)
    # A change inside an argument that is gone has gone with it.
    gone = [change.removed for change in changes if change.removed]
    for offset, left in waiting.items():
        if left and not any(start < offset < end for start, end in gone):
            raise Refused(f"an accepted change of {left[0].code} was not made", left[0].line)


# -- names: what the rewrites use is bound where it stands --


@dataclass(frozen=True)
class _Binding:
    """How a name is bound: `path` is what an import binds it to; `runs` is false where importing does not come to it.

    That is, under `if TYPE_CHECKING:` or `if __name__ == "__main__":`.
    """

    node: ast.AST
    path: str = ""
    runs: bool = True


@dataclass
class _Scope:
    """A scope; `is_late` where what it holds does not run while the module is imported."""

    parent: _Scope | None
    is_class: bool = False
    is_late: bool = False
    is_comprehension: bool = False
    bound: dict[str, list[_Binding]] = field(default_factory=dict)
    declared_global: set[str] = field(default_factory=set)

    def lookup(self, name: str) -> _Scope | None:
        """The scope whose binding of `name` is seen from here; a class body is not seen from functions in it."""
        scope: _Scope | None = self
        while scope is not None:
            if name in scope.bound and (scope is self or not scope.is_class):
                return scope
            scope = scope.parent
        return None


class _Bindings:
    """Where the names are bound that a proof has found in use, in the whole result."""

    def __init__(self, tree: ast.Module, proof: _Proof, permit: Permit) -> None:
        self.tree = tree
        self.proof = proof
        self.permit = permit
        self.names = {use.name.id for use in proof.uses} | {permit.gate}
        self.wanted = {id(use.name) for use in proof.uses}
        self.scope_of: dict[int, _Scope] = {}
        self.lines = sorted(use.name.lineno for use in proof.uses)
        self.words = re.compile(rf"\b(?:{'|'.join(map(re.escape, sorted(self.names)))})\b")
        self.module = _Scope(None)
        self._right: dict[tuple[str, str], bool] = {}
        self._first: dict[str, int | None] = {}
        if proof.uses or proof.additions:
            self._collect(tree)

    def check(self) -> None:
        """Raise Refused if a name is not bound to what it should be, or something was added that nothing uses."""
        functions = {use.name.id for use in self.proof.uses if use.role in ("gate", "manager")}
        used = {use.name.id for use in self.proof.uses}
        for node in self.proof.additions:
            if isinstance(node, ast.FunctionDef):
                bound: str | None = node.name
            else:
                bound = _bound_import(node, self.permit)
            is_called = isinstance(node, ast.FunctionDef) or bound == self.permit.gate
            if bound not in (functions if is_called else used):
                raise Refused(f"{bound} was added, but nothing that was changed uses it", 1)
        for use in self.proof.uses:
            if use.role in ("gate", "manager"):
                self._check_function(use)
            elif use.role in _CALLED:
                self._check_called(use)
            else:
                self._check_module(use)

    def _check_function(self, use: _Use) -> None:
        name, scope = use.name.id, self.scope_of[id(use.name)]
        found = scope.lookup(name)
        if found is None:
            raise Refused(f"{name}() is not defined", use.line)
        if found is not self.module:
            raise Refused(f"{name} means a local name here", use.line)
        bindings = self.module.bound[name]
        if not self._are_right(use.role, name):
            raise Refused(f"{name} is bound to something else too", use.line)
        added = [one for one in bindings if one.node in self.proof.additions]
        if added and len(bindings) > 1:
            raise Refused(f"{name} is defined twice", use.line)
        self._check_order(use, bindings)

    def _check_called(self, use: _Use) -> None:
        """A dotted name tells by its last part, a name by what is imported or assigned under it anywhere."""
        paths = {use.path} if "." in use.path else self._paths(use.path)
        if not any(path.rpartition(".")[2] in _CALLED[use.role] for path in paths):
            raise Refused(f"{use.path} is no {use.role} that such a change is for", use.line)

    def _paths(self, name: str) -> set[str]:
        paths, todo = set(), {name}
        while todo:
            paths |= todo
            found = {path for one in todo for path in self._named.get(one, ())}
            todo = found - paths
        return paths - {name}

    @cached_property
    def _named(self) -> dict[str, set[str]]:
        """The dotted names that are imported as, or assigned to, each name."""
        named: dict[str, set[str]] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                for name, path in _bound(node):
                    named.setdefault(name, set()).add(path)
            elif isinstance(node, ast.Assign):
                path = _dotted(node.value) or ""
                for target in node.targets:
                    named.setdefault(_dotted(target) or "", set()).add(path)
        return named

    def _are_right(self, role: str, name: str) -> bool:
        """Whether all that binds `name` in the module may be called for `role`."""
        if (role, name) not in self._right:
            is_right = _is_manager if role == "manager" else _may_be_gate
            self._right[role, name] = all(map(is_right, self.module.bound[name]))
        return self._right[role, name]

    def _check_module(self, use: _Use) -> None:
        name = use.name.id
        found = self.scope_of[id(use.name)].lookup(name)
        bindings = found.bound[name] if found else []
        rest = use.path.partition(".")[2]
        good = [one for one in bindings if one.runs and _is_module(one, use.role, rest)]
        if not good:
            raise Refused(f"{name} is not bound to the module that is meant", use.line)
        if found is self.module:
            self._check_order(use, good)

    def _check_order(self, use: _Use, bindings: Sequence[_Binding]) -> None:
        """What runs at import may use only what is bound before it."""
        before = self._first_at_import(use)
        ends = [getattr(one.node, "end_lineno", 0) for one in bindings if one.runs]
        if not ends or (before is not None and min(ends) > before):
            raise Refused(f"{use.name.id} is used at import before it is bound", use.line)

    def _first_at_import(self, use: _Use) -> int | None:
        """The first line of the result at which importing the module may come to `use`; None where that is not known.

        An added function may be called as soon as it is there: what its module may run is not followed.
        """
        if not self.scope_of[id(use.name)].is_late:
            return use.name.lineno
        for node in self.proof.additions:
            if isinstance(node, ast.FunctionDef) and _holds(node, use.name):
                is_function = use.role in ("gate", "manager")
                return self._first_call(node.name) if is_function else node.lineno
        return None

    def _first_call(self, function: str) -> int | None:
        if function not in self._first:
            calls = (self._first_at_import(u) for u in self.proof.uses if u.name.id == function)
            self._first[function] = min((line for line in calls if line is not None), default=None)
        return self._first[function]

    # -- scopes --

    def _collect(self, tree: ast.Module) -> None:
        todo: list[tuple[ast.AST, _Scope, bool]] = [(tree, self.module, True)]
        scopes = [self.module]
        while todo:
            node, scope, runs = todo.pop()
            told = ""
            if isinstance(node, ast.stmt) and not self._is_used_in(node):
                told = self.proof.new.source(node)
                if told.isascii() and not self.words.search(told):
                    continue
            if id(node) in self.wanted:
                self.scope_of[id(node)] = scope
            self._bind(node, scope, runs)
            outside, inside, inner = _parts(node, scope)
            todo += [(child, scope, runs) for child in outside]
            if inner is not scope:
                if told and "global" not in told:
                    continue  # what it binds is seen in there alone, where nothing is asked
                scopes.append(inner)
            never = isinstance(node, ast.If) and _is_never_imported(node.test)
            todo += [(child, inner, runs and not never) for child in inside]
        for scope in scopes:
            for name in scope.declared_global & scope.bound.keys():
                self.module.bound.setdefault(name, []).extend(scope.bound.pop(name))

    def _is_used_in(self, node: ast.stmt) -> bool:
        """Whether one of the names that were found stands in `node`, as far as its lines tell."""
        if not self.proof.is_whole:
            return True
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        return bisect_left(self.lines, first) < bisect_right(self.lines, node.end_lineno or first)

    def _bind(self, node: ast.AST, scope: _Scope, runs: bool) -> None:
        if isinstance(node, ast.Global):
            scope.declared_global.update(node.names)
        for name, path in _bound(node):
            if name not in self.names:
                continue
            while isinstance(node, ast.NamedExpr) and scope.is_comprehension and scope.parent:
                scope = scope.parent
            scope.bound.setdefault(name, []).append(_Binding(node, path, runs))


def _bound(node: ast.AST) -> Iterator[tuple[str, str]]:
    """The names that a node itself binds, each with the path of what an import binds it to."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield (alias.asname, alias.name) if alias.asname else (alias.name.split(".")[0],) * 2
    elif isinstance(node, ast.ImportFrom):
        package = "." * node.level + (f"{node.module}." if node.module else "")
        for alias in node.names:
            yield alias.asname or alias.name, package + alias.name
    elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        yield node.id, ""
    elif isinstance(node, ast.NamedExpr):
        yield node.target.id, ""
    elif isinstance(node, ast.arg):
        yield node.arg, ""
    elif isinstance(node, ast.MatchMapping):
        yield node.rest or "", ""
    elif not isinstance(node, ast.alias):
        yield getattr(node, "name", None) or "", ""


def _parts(node: ast.AST, scope: _Scope) -> tuple[list[ast.AST], list[ast.AST], _Scope]:
    """What of a node is evaluated in `scope`, what in a scope of its own, and that scope."""
    children = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        arguments = node.args
        body: list[ast.AST] = [*node.body] if isinstance(node.body, list) else [node.body]
        taken = [*body, *_parameters(arguments), *getattr(node, "type_params", [])]
        defaults = [*arguments.defaults, *(one for one in arguments.kw_defaults if one)]
        inner = {*taken, arguments}
        outside = [child for child in children if child not in inner]
        return [*outside, *defaults], taken, _Scope(scope, is_late=True)
    if isinstance(node, ast.ClassDef):
        held = set(node.body)
        outside = [child for child in children if child not in held]
        return outside, [*node.body], _Scope(scope, True, scope.is_late)
    if isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
        first = node.generators[0]
        rest = [first.target, *first.ifs, *(child for child in children if child is not first)]
        return [first.iter], rest, _Scope(scope, is_late=scope.is_late, is_comprehension=True)
    if isinstance(node, ast.If):
        return [node.test, *node.orelse], [*node.body], scope
    if isinstance(node, ast.NamedExpr):
        return [node.value], [], scope
    return children, [], scope


def _parameters(arguments: ast.arguments) -> list[ast.AST]:
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return [*named, *(one for one in (arguments.vararg, arguments.kwarg) if one)]


def _is_never_imported(test: ast.expr) -> bool:
    """Whether what an `if` with `test` holds is not run where the module is imported."""
    if isinstance(test, ast.Compare):
        return isinstance(test.ops[0], ast.Eq) and _dotted(test.left) == "__name__"
    return (_dotted(test) or "").split(".")[-1] == "TYPE_CHECKING"


def _is_callable(node: ast.AST) -> bool:
    """Whether a function may be called without arguments, and answers at once."""
    if not isinstance(node, ast.FunctionDef):
        return False
    taken = node.args
    return (
        len(taken.defaults) == len([*taken.posonlyargs, *taken.args])
        and None not in taken.kw_defaults
    )


def _may_be_gate(binding: _Binding) -> bool:
    return _is_callable(binding.node) or bool(binding.path)


def _is_manager(binding: _Binding) -> bool:
    """Whether it is a function that enters an abstract mesh."""
    names = (getattr(node, "attr", getattr(node, "id", "")) for node in ast.walk(binding.node))
    return _is_callable(binding.node) and "use_abstract_mesh" in names


def _holds(function: ast.FunctionDef, name: ast.Name) -> bool:
    return function.lineno <= name.lineno <= (function.end_lineno or 0)


def _is_module(binding: _Binding, role: str, rest: str) -> bool:
    if role in ("jax", "contextlib"):
        return binding.path == role
    path = f"{binding.path}.{rest}" if rest else binding.path
    return path.endswith(".pallas.tpu") or (
        not binding.path and isinstance(binding.node, ast.Name)  # assigned, to what is not asked
    )


# -- parsing --

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def _parsed(old: _Text, new: _Text) -> tuple[ast.Module, ast.Module] | None:
    """Both trees; None where this Python cannot parse the original."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a warning about the user's source is not ours to give
        try:
            before = ast.parse(old.text)
        except (SyntaxError, ValueError):
            return None
        try:
            after = ast.parse(new.text)
        except (SyntaxError, ValueError) as error:
            raise _uncompiled(error, old) from None
        try:
            compile(_not_as_before(old, before, new, after), "<result>", "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as error:
            if _compiles(before):
                raise _uncompiled(error, old) from None
        return before, after


def _not_as_before(old: _Text, before: ast.Module, new: _Text, after: ast.Module) -> ast.Module:
    """`after` without the functions and classes at its top level that are the same in `before`.

    What Python finds wrong only when it compiles, it finds in each of them by itself.
    """
    kept = {old.source(node) for node in before.body if isinstance(node, _DEFINITIONS)}
    body = [
        node
        for node in after.body
        if not isinstance(node, _DEFINITIONS) or new.source(node) not in kept
    ]
    return ast.Module(body, after.type_ignores)


def _uncompiled(error: Exception, old: _Text) -> Refused:
    line = min(getattr(error, "lineno", None) or 1, max(len(old.lines), 1))
    return Refused(f"the result does not compile: {error}", line)


def _compiles(tree: ast.Module) -> bool:
    try:
        compile(tree, "<original>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return True


# What stands in for a logical line that is the same in both texts, by its first word.
_STAND_INS = {
    "@": "@_",
    "def": "def _():",
    "async": "def _():",
    "class": "class _:",
    "elif": "elif 1:",
    "else": "else:",
    "try": "try:",
    "except": "except Exception:",
    "finally": "finally:",
    **dict.fromkeys(("if", "while", "for", "with"), "if 1:"),
}


def _parsed_in_part(
    old: _Text, new: _Text, accepted: Sequence[Accepted], permit: Permit
) -> tuple[ast.Module, ast.Module]:
    _gate_means_one_thing(new, permit)
    lines = {one.line for one in accepted}
    kept_old, kept_new = _changed_lines(old, new, lines)
    try:
        return ast.parse(_with_stand_ins(old, kept_old)), ast.parse(_with_stand_ins(new, kept_new))
    except (SyntaxError, ValueError) as error:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        message = f"Python {version} cannot parse a changed line, so it cannot be proved: {error}"
        raise Refused(
            message, min(getattr(error, "lineno", None) or 1, max(len(old.lines), 1))
        ) from None


def _changed_lines(old: _Text, new: _Text, accepted: set[int]) -> tuple[set[int], set[int]]:
    """Indices of the logical lines that hold an accepted change, or are in the result only."""
    kept_old: set[int] = set()
    kept_new: set[int] = set()
    index = 0
    for other in range(len(new.logical)):
        if index < len(old.logical):
            first, last = (old.line(place) for place in _extent(old, index))
            if any(first <= line <= last for line in accepted):
                kept_old.add(index)
                kept_new.add(other)
                index += 1
                continue
            if old.text[slice(*_extent(old, index))] == new.text[slice(*_extent(new, other))]:
                index += 1
                continue
        kept_new.add(other)
    if index < len(old.logical):
        raise Refused("this line was lost or changed", old.line(_extent(old, index)[0]))
    return kept_old, kept_new


def _extent(text: _Text, index: int) -> tuple[int, int]:
    """Where a logical line begins and ends."""
    first, last = text.logical[index]
    return text.starts[first], text.ends[last]


def _with_stand_ins(text: _Text, kept: set[int]) -> str:
    """The text with every logical line but `kept` replaced, each line still in its place."""
    parts: list[str] = []
    done = 0
    for index, (first, last) in enumerate(text.logical):
        start, end = _extent(text, index)
        word = text.token(first)
        if index in kept or word in ("import", "from"):
            continue
        stand_in = "pass" if first != last or word[-1] not in "\"'" else '""'
        if word in _STAND_INS:
            is_inline = word != "@" and text.token(last) != ":"
            stand_in = _STAND_INS[word] + (" pass" if is_inline else "")
        elif text.token(last) == ":":  # the soft keywords match and case
            stand_in = "if 1:"
        parts += text.text[done:start], stand_in, "".join(_NEWLINE.findall(text.text, start, end))
        done = end
    return "".join([*parts, text.text[done:]])


def _gate_means_one_thing(new: _Text, permit: Permit) -> None:
    """Without a tree of the whole, the gate's name may only be imported, defined, or called without arguments."""
    imports = {first for first, _ in new.logical if new.token(first) in ("import", "from")}
    firsts = [first for first, _ in new.logical]
    for index in range(len(new.starts)):
        if new.token(index) != permit.gate or new.token(index - 1) == ".":
            continue
        called = [new.token(index + 1), new.token(index + 2)] == ["(", ")"]
        if not called and firsts[bisect_right(firsts, index) - 1] not in imports:
            raise Refused(f"{permit.gate} may mean something else than the gate", 1)
