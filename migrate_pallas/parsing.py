"""From source text to a fissix tree, for every Python up to 3.14, whichever Python runs us.

fissix's grammar stops at Python 3.9, so a parser is built from its ``Grammar.txt`` with the rules
below amended. Node types keep fissix's own numbers, so that patterns compiled by Bowler match.
The tokens come from one regular expression instead of fissix's tokenizer, which knows no nested
f-strings (PEP 701), and the tables are flattened, because parsing is most of what a run costs.
"""

import re
import sys
from bisect import bisect_right
from collections.abc import Iterator
from functools import cache
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unicodedata import category

from fissix import pygram
from fissix.pgen2 import token
from fissix.pgen2.grammar import opmap
from fissix.pgen2.pgen import ParserGenerator
from fissix.pytree import Leaf, Node


class SyntaxFault(Exception):
    """The text is not Python; ``line`` and ``column`` (both from 1) say where."""

    def __init__(self, message: str, line: int, column: int) -> None:
        super().__init__(message, line, column)
        self.message = message
        self.line = line
        self.column = column

    def __str__(self) -> str:
        return f"{self.line}:{self.column}: {self.message}"


class FaultAt(Exception):
    """A fault at an offset, before it is known on which line that is."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message, offset)
        self.message = message
        self.offset = offset


# --- Grammar ----------------------------------------------------------------------------------

# fissix's own str(), clone() and == recurse, with up to five calls for each level of a tree: deeper
# texts are refused, and there is room for those that are not. Python 3.12 has a limit of its own,
# about 300 levels, that cannot be raised. The standard library's deepest file has 32 levels.
_MAX_DEPTH = 250
sys.setrecursionlimit(max(sys.getrecursionlimit(), 5 * _MAX_DEPTH + 1000))

# (rule, what stands in fissix's grammar, what stands in ours)
_AMENDMENTS = (
    # PEP 614
    ("decorator", "dotted_name [ '(' [arglist] ')' ]", "namedexpr_test"),
    # PEP 695, PEP 696
    ("funcdef", "NAME parameters", "NAME [typeparams] parameters"),
    ("classdef", "NAME [", "NAME [typeparams] ["),
    # PEP 646: *args: *Ts
    ("tname", "[':' test]", "[':' (test | star_expr)]"),
    # No print and exec statements, and one more kind of small statement.
    ("small_stmt", "| print_stmt ", ""),
    ("small_stmt", "| exec_stmt", "| type_stmt"),
    ("annassign", "['=' test]", "['=' (yield_expr | testlist_star_expr)]"),
    ("raise_stmt", " | ',' test [',' test]", ""),
    ("compound_stmt", "| async_stmt", "| async_stmt | match_stmt"),
    # "with (a as b, c as d):" is an atom to an LL(1) parser; so that atom may hold with_items.
    ("with_item", "test [", "namedexpr_test ["),
    ("testlist_gexp", "namedexpr_test", "with_item"),
    # PEP 654 and PEP 758
    (
        "except_clause",
        "[test [(',' | 'as') test]]",
        "['*'] [test ['as' NAME | ',' [test (',' test)* [',']]]]",
    ),
    ("comp_op", "|'<>'", ""),
    # PEP 646: x[*a], where "*a or b" is one item as in a call
    ("subscript", "test |", "namedexpr_test | '*' test |"),
    ("subscript", "[test] ':'", "[namedexpr_test] ':'"),
    # for x in *a, b
    ("testlist", "test (',' test)*", "(test | star_expr) (',' (test | star_expr))*"),
    # {a := 1, *b}
    ("dictsetmaker", "(test ':'", "(namedexpr_test ':'"),
    ("dictsetmaker", "(test | star_expr)", "(namedexpr_test | star_expr)"),
    ("argument", "test ':=' test |", "test ':=' test [comp_for] |"),
    ("comp_for", "testlist_safe", "or_test"),
    ("comp_if", "old_test", "or_test"),
)

# Rules that Python 3 has no use for, or that are written anew below.
_DROPPED = (
    "print_stmt",
    "exec_stmt",
    "typedargslist",
    "tfpdef",
    "tfplist",
    "varargslist",
    "vfpdef",
    "vfplist",
    "testlist_safe",
    "old_test",
    "old_lambdef",
)

# Parameters may stand in any order here: the order is for compile() to judge, and trees of valid
# lists look as fissix's do.
_NEW_RULES = """
typedargslist: typed_item (',' typed_item)* [',']
varargslist: bare_item (',' bare_item)* [',']

typeparams: '[' typeparam (',' typeparam)* [','] ']'
typeparam: NAME [':' test] ['=' test] | '*' NAME ['=' (test | star_expr)] | '**' NAME ['=' test]
type_stmt: 'type' NAME [typeparams] '=' test

match_stmt: 'match' subject ':' NEWLINE INDENT case_block+ DEDENT
subject: (namedexpr_test | star_expr) (',' (namedexpr_test | star_expr))* [',']
case_block: 'case' patterns [guard] ':' suite
guard: 'if' namedexpr_test
patterns: (as_pattern | star_pattern) (',' (as_pattern | star_pattern))* [',']
star_pattern: '*' NAME
as_pattern: or_pattern ['as' NAME]
or_pattern: closed_pattern ('|' closed_pattern)*
closed_pattern: (['-'] NUMBER [('+' | '-') NUMBER] | STRING+ |
                 NAME ('.' NAME)* ['(' [pattern_args] ')'] |
                 '(' [patterns] ')' | '[' [patterns] ']' | '{' [mapping_items] '}')
pattern_args: pattern_arg (',' pattern_arg)* [',']
pattern_arg: as_pattern ['=' as_pattern]
mapping_items: mapping_item (',' mapping_item)* [',']
mapping_item: closed_pattern ':' as_pattern | '**' NAME
"""
# Inlined, for a parameter list is flat: its names, defaults and commas are its own children.
_INLINED = {
    "typed_item": "(tname ['=' test] | '*' [tname] | '**' tname | '/')",
    "bare_item": "(vname ['=' test] | '*' [vname] | '**' vname | '/')",
}

_SOFT_KEYWORDS = ("match", "case", "type")


def _rule(name: str) -> re.Pattern[str]:
    return re.compile(rf"^{name}:.*\n(?:[ \t]+.*\n)*", re.MULTILINE)


def _amended_grammar() -> str:
    """fissix's grammar with our amendments; RuntimeError if it is not the one they were made for."""
    grammar = Path(pygram.__file__).with_name("Grammar.txt").read_text("utf-8")
    for name in (*_DROPPED, *dict.fromkeys(rule for rule, _, _ in _AMENDMENTS)):
        if len(_rule(name).findall(grammar)) != 1:
            raise RuntimeError(f"this fissix's grammar has no single rule {name!r}")
    for name, old, new in _AMENDMENTS:
        found = _rule(name).search(grammar)
        if found is None or old not in found[0]:
            raise RuntimeError(f"this fissix's grammar has no {old!r} in rule {name!r}")
        grammar = grammar.replace(found[0], found[0].replace(old, new))
    for name in _DROPPED:
        grammar = _rule(name).sub("", grammar)
    grammar += _NEW_RULES
    for name, body in _INLINED.items():
        grammar = grammar.replace(name, body)
    return grammar


_tables = ParserGenerator("Grammar.txt", StringIO(_amended_grammar())).make_grammar()

_numbers: dict[str, int] = dict(vars(pygram.python_symbols))
for _name in _tables.symbol2number:
    _numbers.setdefault(_name, max(_numbers.values()) + 1)
_names = {number: name for name, number in _numbers.items()}

# The number of each grammar symbol by its name: fissix's own, then those that we added.
symbols = SimpleNamespace(**_numbers)


def name_of(type: int) -> str:
    """The name of a symbol or token number, for messages."""
    name: str = _names[type] if type in _names else token.tok_name[type]
    return name


# --- Parse tables -----------------------------------------------------------------------------

# What a state does with a token: the state that follows, and the symbols opened on the way, as the
# states they will be in once they have that token as their only child so far.
_Action = tuple[int, "_Chain"]


class _Chain(dict[int, "tuple[_Chain, int, int, _Chain] | None"]):
    """Open symbols, outermost first, each of which has one child so far or waits for its first.

    Nodes with one child are not kept in a tree, so nothing is built for these until one of them
    takes a second child. Asked for a token's label it says which one does: what is below that one,
    its type, its next state, and the chain opened above it; None if all end before that token.
    """

    def __init__(self, states: tuple[int, ...]) -> None:
        super().__init__()
        self.states = states

    def __missing__(self, label: int) -> "tuple[_Chain, int, int, _Chain] | None":
        step = None
        for index in reversed(range(len(self.states))):
            state = self.states[index]
            action = _actions[state].get(label)
            if action is not None:
                step = (_chain(self.states[:index]), _types[state], *action)
                break
            if not _ends[state]:
                raise KeyError(label)
        self[label] = step
        return step


@cache
def _chain(states: tuple[int, ...]) -> _Chain:
    return _Chain(states)


_first_state: dict[int, int] = {}  # by pgen's symbol number
_types: list[int] = []  # by state, as are the next two
_ends: list[bool] = []
_actions: list[dict[int, _Action]] = []
for _symbol, (_dfa, _first) in _tables.dfas.items():
    _first_state[_symbol] = len(_types)
    _types += [_numbers[_tables.number2symbol[_symbol]]] * len(_dfa)
    _ends += [(0, index) in arcs for index, arcs in enumerate(_dfa)]


@cache
def _opened(symbol: int, label: int) -> tuple[int, ...]:
    """The states of the chain that a token opens where a symbol is expected."""
    dfa, _ = _tables.dfas[symbol]
    for arc, following in dfa[0]:
        inner = _tables.labels[arc][0]
        if arc == label:
            return (_first_state[symbol] + following,)
        if inner >= token.NT_OFFSET and label in _tables.dfas[inner][1]:
            return (_first_state[symbol] + following, *_opened(inner, label))
    raise LookupError(f"{_tables.number2symbol[symbol]} cannot start with this token")


def _actions_of(symbol: int, arcs: list[tuple[int, int]]) -> dict[int, _Action]:
    """What a state of a symbol does with each token; pgen's label 0 only marks that it may end."""
    actions: dict[int, _Action] = {}
    for arc, following in arcs:
        inner = _tables.labels[arc][0]
        state = _first_state[symbol] + following
        if inner < token.NT_OFFSET and arc:
            actions.setdefault(arc, (state, _chain(())))
        elif arc:
            for label in _tables.dfas[inner][1]:
                actions.setdefault(label, (state, _chain(_opened(inner, label))))
    return actions


for _symbol, (_dfa, _first) in _tables.dfas.items():
    _actions += [_actions_of(_symbol, arcs) for arcs in _dfa]

_token_types = [type for type, _ in _tables.labels]
_LABELS: dict[int, int] = _tables.tokens
_NAME, _NUMBER, _STRING = (_LABELS[type] for type in (token.NAME, token.NUMBER, token.STRING))
_NEWLINE, _INDENT, _DEDENT = (_LABELS[type] for type in (token.NEWLINE, token.INDENT, token.DEDENT))
_END = _LABELS[token.ENDMARKER]
_MATCH, _CASE, _TYPE = (_tables.keywords.pop(word) for word in _SOFT_KEYWORDS)
_KEYWORDS: dict[str, int] = _tables.keywords
_KEYWORDS.update({"async": _LABELS[token.ASYNC], "await": _LABELS[token.AWAIT]})
# "type" is looked up with the keywords, so that it costs other names nothing.
_WORDS = {**_KEYWORDS, "type": _TYPE}
_OPERATORS = {op: _LABELS[type] for op, type in opmap.items() if type in _LABELS}
_OPERATORS["!"] = -1  # for f-strings only: no state has an action for it
_COLON = _OPERATORS[":"]


# --- Tokens -----------------------------------------------------------------------------------

NEWLINE = r"(?:\r?\n|\r(?!\n))"
_CONTINUED = rf"[ \t\f]*(?:\\{NEWLINE}[ \t\f]*)*"
_IN_BRACKETS_SPACE = rf"[ \t\f\r\n]*(?:(?:\#[^\r\n]*(?![^\r\n])|\\{NEWLINE})[ \t\f\r\n]*)*"
ANY_WORD = r"(?:[A-Za-z_]|[^\x00-\x7f])(?:\w|[^\x00-\x7f])*"
_DIGITS = r"[0-9](?:_?[0-9])*"

# A string without its prefix. That of an f-string ends elsewhere, if a quote stands in its braces (PEP 701).
PLAIN_STRING = r"""(?:
    '''[^'\\]*(?:(?:\\.|'(?!''))[^'\\]*)*'''
  | \"""[^"\\]*(?:(?:\\.|"(?!""))[^"\\]*)*\"""
  | '(?!'')[^'\\\r\n]*(?:\\(?:\r\n|.)[^'\\\r\n]*)*'
  | "(?!"")[^"\\\r\n]*(?:\\(?:\r\n|.)[^"\\\r\n]*)*")"""

# The kinds of token, as the numbers of the groups that match them.
_WORD, _OPERATOR, _OPEN, _CLOSE, _LITERAL, _DIGIT, _FORMATTED, _LINE_END, _ODD_WORD = range(1, 10)

_TOKEN = rf"""(?:
  ([A-Za-z_][A-Za-z0-9_]*(?![\w"'\x80-\U0010ffff]))
| (->|:=|(?:\*\*|//|>>|<<|[-+*/%&|^@<>=])=?|!=|[,:;~!]|\.(?![0-9]))
| ([(\[{{])
| ([)\]}}])
| ((?:[uU]|[rR][bB]?|[bB][rR]?)?{PLAIN_STRING})
| ((?:0[xX](?:_?[0-9a-fA-F])+ | 0[oO](?:_?[0-7])+ | 0[bB](?:_?[01])+
    | (?:{_DIGITS}\.(?:{_DIGITS})?|\.{_DIGITS})(?:[eE][-+]?{_DIGITS})?[jJ]?
    | {_DIGITS}[eE][-+]?{_DIGITS}[jJ]? | {_DIGITS}[jJ]
    | (?:0(?:_?0)*|[1-9](?:_?[0-9])*)(?!\.))
   (?:(?!\w)|(?=and|else|for|i[fns]|not|or)))
| ((?:[fFtT][rR]?|[rR][fFtT])(?:'''|\"""|'|"))
| (?:\#[^\r\n]*)?({NEWLINE}|\Z)
| ({ANY_WORD})
)"""
_in_line = re.compile(_CONTINUED + _TOKEN, re.VERBOSE | re.DOTALL).match
_in_brackets = re.compile(_IN_BRACKETS_SPACE + _TOKEN, re.VERBOSE | re.DOTALL).match
_continued = re.compile(_CONTINUED)
_space_in_brackets = re.compile(_IN_BRACKETS_SPACE)
# Blank lines, the indentation, and a look at whether a soft keyword follows. Continuations are as
# CPython takes them: the first white space that has a width is the indentation.
_line_start = re.compile(
    rf"(?:{_CONTINUED}(?:#[^\r\n]*)?{NEWLINE})*(?:(?:[ \t\f]*\f)?\\{NEWLINE})*"
    rf"([ \t\f]*)(?:\\{NEWLINE}[ \t\f]*)*"
    r"(?=((?:match|case)(?![\w\x80-\U0010ffff]))?)"
).match
_comment_lines = re.compile(rf"([ \t\f]*)#[^\r\n]*{NEWLINE}?").finditer
_NEWLINES = re.compile(NEWLINE)
_aliased_name = re.compile(rf"{_CONTINUED}({ANY_WORD})").match
_plain = re.compile(r"[^{}\\\r\n\"']*")


def _after(pattern: re.Pattern[str], text: str, at: int) -> int:
    """Where what the pattern matches here ends."""
    found = pattern.match(text, at)
    return found.end() if found else at


def _is_identifier(word: str) -> bool:
    """Whether a word is a name, also where it uses characters newer than this Python's Unicode."""
    return word.isidentifier() or (
        "".join("x" if category(char) == "Cn" else char for char in word).isidentifier()
    )


def _width(indent: str) -> int:
    """The column that white space leads to, as the language reference counts tabs and form feeds."""
    if "\t" in indent or "\f" in indent:
        indent = indent[indent.rfind("\f") + 1 :].expandtabs(8)
    return len(indent)


def _format_end(text: str, at: int, quote: str, raw: bool, spec: bool, level: int = 0) -> int:
    """The offset after the f-string (or, with ``spec``, the replacement field) that goes on here."""
    if level > 100:
        raise FaultAt("f-string nested too deeply", at)
    begin = at
    while True:
        at = _after(_plain, text, at)
        char = text[at : at + 1]
        if char == "{" and (spec or text[at + 1 : at + 2] != "{"):
            at = _field_end(text, at + 1, quote, raw, level + 1)
        elif char == "}" and spec:
            return at + 1
        elif char in ("{", "}"):
            if text[at + 1 : at + 2] != char:
                raise FaultAt("f-string: single '}' is not allowed", at)
            at += 2
        elif char == "\\":
            at = _escape_end(text, at, raw)
        elif text.startswith(quote, at):
            if spec:
                raise FaultAt("f-string: expecting '}'", at)
            return at + len(quote)
        elif not char or (char in "\r\n" and len(quote) == 1 and not spec):
            raise FaultAt("unterminated f-string literal", begin)
        else:
            at += 1


def _escape_end(text: str, at: int, raw: bool) -> int:
    if text[at + 1 : at + 2] in ("{", "}"):  # a backslash does not escape a brace
        return at + 1
    if text.startswith("\\N{", at) and not raw:
        return text.find("}", at) + 1 or len(text)
    return at + (3 if text.startswith("\\\r\n", at) else 2)


def _field_end(text: str, at: int, quote: str, raw: bool, level: int) -> int:
    """The offset after the replacement field whose expression starts here (PEP 701)."""
    begin, depth = at, 0
    while (found := _in_brackets(text, at)) and found.end() > at:
        at, kind = found.end(), found.lastindex
        if kind == _FORMATTED:
            at = formatted_end(text, found[_FORMATTED], at, level + 1)
        elif kind == _OPEN:
            depth += 1
        elif kind == _CLOSE:
            if depth == 0:
                break
            depth -= 1
        elif kind == _OPERATOR and depth == 0 and found[_OPERATOR] in (":", ":="):
            spec = found.start(_OPERATOR) + 1
            return _format_end(text, spec, quote, raw, True, level + 1)
    if not found or found[_CLOSE] != "}":
        raise FaultAt("f-string: expecting '}'", begin - 1)
    return at


def formatted_end(text: str, opening: str, at: int, level: int = 0) -> int:
    """The offset after the f-string or t-string of which ``opening`` is prefix and quote."""
    letters = opening.rstrip("'\"")
    return _format_end(text, at, opening[len(letters) :], "r" in letters.lower(), False, level)


_Token = tuple[int, str, int]  # label, value, offset


def _logical_line(text: str, at: int) -> Iterator[_Token]:
    """The tokens from here to the end of the logical line."""
    brackets: list[int] = []
    scan = _in_line
    words, operators, name = _WORDS, _OPERATORS, _NAME
    while True:
        found = scan(text, at)
        if found is None:
            raise _unknown(text, at, brackets)
        kind = found.lastindex or 0
        value = found[kind]
        at = found.end()
        start = at - len(value)
        if kind in (_WORD, _ODD_WORD):
            label = words.get(value, name)
            if label == _TYPE and not _starts_alias(text, at):
                label = name
            elif kind == _ODD_WORD and not _is_identifier(value):
                raise FaultAt(f"invalid name {value!r}", start)
        elif kind == _OPERATOR:
            label = operators[value]
        elif kind == _OPEN:
            label = operators[value]
            brackets.append(start)
            scan = _in_brackets
        elif kind == _CLOSE:
            label = operators[value]
            if not brackets:
                raise FaultAt(f"unmatched {value!r}", start)
            brackets.pop()
            if not brackets:
                scan = _in_line
        elif kind == _LITERAL:
            label = _STRING
        elif kind == _DIGIT:
            label = _NUMBER
        elif kind == _FORMATTED:
            label, at = _STRING, formatted_end(text, value, at)
            value = text[start:at]
        else:
            break
        yield label, value, start
    if brackets:
        raise FaultAt(f"{text[brackets[-1]]!r} was never closed", brackets[-1])
    yield _NEWLINE, value, start


def _unknown(text: str, at: int, brackets: list[int]) -> FaultAt:
    """Why no token starts here."""
    at = _after(_space_in_brackets if brackets else _continued, text, at)
    rest = text[at : at + 5]
    if rest[:1].isdigit() or rest[:1] == ".":
        return FaultAt("invalid number", at)
    if re.match(r"[A-Za-z]{0,2}[\"']", rest):
        return FaultAt("unterminated string literal", at)
    return FaultAt(f"invalid character {rest[:1]!r}", at)


def _starts_alias(text: str, at: int) -> bool:
    """Whether the word ``type`` that ends here starts a type statement (PEP 695)."""
    found = _aliased_name(text, at)
    return found is not None and found[1] not in _KEYWORDS


def _starts_match(text: str, at: int) -> bool:
    """Whether the word ``match`` that ends here starts a match statement (PEP 634)."""
    labels = [label for label, _, _ in _logical_line(text, at)]
    return len(labels) > 2 and labels[0] != _COLON and labels[-2] == _COLON


def _dedents(text: str, begin: int, end: int, width: int, indents: list[int]) -> Iterator[int]:
    """Where the blocks deeper than ``width`` end, between two logical lines.

    A comment belongs to the block that it is indented as, if only comments that do stand before it.
    """
    comments = [(_width(found[1]), found.end()) for found in _comment_lines(text, begin, end)]
    comments.reverse()
    place = begin
    while indents[-1] > width:
        while comments and comments[-1][0] >= indents[-1]:
            place = comments.pop()[1]
        indents.pop()
        yield place


def _tokens(text: str) -> Iterator[_Token]:
    """All tokens of a text; what lies between two of them is white space and comments."""
    indents = [0]
    in_match = [False]  # for each indentation, whether it is the block of a match statement
    opens_match = False
    at = 0
    while found := _line_start(text, at):
        begin, at, after = at, found.start(1), found.end()
        if after == len(text) or text[after] == "#":
            break
        indent, soft = found.groups()
        width = _width(indent)
        if width > indents[-1]:
            indents.append(width)
            in_match.append(opens_match)
            yield _INDENT, indent, at
        elif width < indents[-1]:
            for place in _dedents(text, begin, at, width, indents):
                in_match.pop()
                yield _DEDENT, "", place
            if width != indents[-1]:
                raise FaultAt("unindent matches no outer indentation level", after)
        at = after
        opens_match = soft == "match" and _starts_match(text, at + len(soft))
        if opens_match or (soft == "case" and in_match[-1]):
            yield (_MATCH if opens_match else _CASE), soft, at
            at += len(soft)
        for item in _logical_line(text, at):
            yield item
        at = item[2] + len(item[1])
    for place in _dedents(text, begin, len(text), 0, indents):
        yield _DEDENT, "", place
    yield _END, "", len(text)


# --- Trees ------------------------------------------------------------------------------------

_Frame = tuple[int, int, list[Any], _Chain]  # type, state, children, chain below


def parse(text: str) -> Node:
    """The tree of a whole source text.

    Returns a ``file_input`` node; ``str()`` of it is the text again. Each leaf has, besides
    fissix's ``lineno`` and ``column``, ``start`` and ``end``: ``text[start:end]`` is its value.
    Raises SyntaxFault if the text is not Python.
    """
    return parse_part(text, 0, len(text), 1)


def parse_part(text: str, start: int, end: int, line: int) -> Node:
    """The tree of those top-level statements of a source text that stand from start to end, from that line on.

    Both offsets must be where a top-level logical line (or blank space and comments before one)
    begins, or the end of the text. Offsets and line numbers are those in the whole text.
    Raises SyntaxFault if the part is not a sequence of statements.
    """
    part = text[start:end]
    lines = [0, *(found.end() for found in _NEWLINES.finditer(part))]
    try:
        if "\0" in part:
            raise FaultAt("source text cannot contain null bytes", part.index("\0"))
        return _tree(part, start, lines, line)
    except FaultAt as fault:
        index = bisect_right(lines, fault.offset) - 1
        column = fault.offset - lines[index] + 1
        raise SyntaxFault(fault.message, line + index, column) from None


def _tree(text: str, base: int, lines: list[int], first_line: int) -> Node:
    """Build the tree of a text that starts at offset ``base`` and in line ``first_line``.

    This is fissix's parser on flattened tables: ``state`` and ``children`` are those of the
    innermost node that has several children, ``chain`` the symbols opened in it since, and
    ``child`` their common content.
    """
    stack: list[_Frame] = []
    actions, ends, token_types, new = _actions, _ends, _token_types, object.__new__
    type, state = symbols.file_input, _first_state[_tables.start]
    chain = below = _chain(())
    children: list[Any] = []
    child: Any = None
    line, line_start, next_line = first_line - 1, 0, 0
    lines = [*lines, len(text) + 1]
    index = 0
    previous = 0
    for label, value, start in _tokens(text):
        while start >= next_line:
            line_start = next_line
            index += 1
            line += 1
            next_line = lines[index]
        try:
            while (step := chain[label]) is None:
                if child is not None:
                    children.append(child)
                action = actions[state].get(label)
                if action is not None:
                    state, chain = action
                    break
                if not ends[state]:
                    raise KeyError(label)
                child, chain = _node(type, children), below
                type, state, children, below = stack.pop()
            else:
                stack.append((type, state, children, below))
                below, type, state, chain = step
                children = [child]
                if len(stack) > _MAX_DEPTH:
                    raise FaultAt("nested too deeply", start)
        except KeyError:
            innermost = chain.states[-1] if chain.states else state
            raise FaultAt(_unexpected(label, value, innermost), start) from None
        child = leaf = new(Leaf)
        leaf.type = token_types[label]
        leaf.value = value
        leaf._prefix = text[previous:start]
        previous = start + len(value)
        leaf.lineno = line
        leaf.column = start - line_start
        leaf.start = base + start
        leaf.end = base + previous
        leaf.fixers_applied = ()  # where fissix keeps a list, and copies it
    children.append(child)
    return _node(type, children)


def _node(type: int, children: list[Any]) -> Node:
    """A node made without fissix's constructor, which checks each time what holds here anyway."""
    node = object.__new__(Node)
    node.type = type
    node.children = children
    node.fixers_applied = None
    for child in children:
        child.parent = node
    return node


_UNEXPECTED = {
    _INDENT: "unexpected indent",
    _DEDENT: "unexpected unindent",
    _NEWLINE: "unexpected end of line",
    _END: "unexpected end of file",
}


def _unexpected(label: int, value: str, state: int) -> str:
    """What is wrong with a token that does not fit in this state."""
    if label != _INDENT and _INDENT in _actions[state]:
        return "expected an indented block"
    return _UNEXPECTED.get(label, f"unexpected {value!r}")
