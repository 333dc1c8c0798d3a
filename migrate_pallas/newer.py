"""Whether the running Python's word on a text counts: it refuses a syntax that is newer than it, too."""

from __future__ import annotations

import ast
import re
import sys
import warnings

from fissix.pgen2 import token
from fissix.pytree import Leaf, Node

from .parsing import SyntaxFault, symbols

# What came after Python 3.10: the Python that has all of it, and a text in which it can be tried alone.
_NEWER = {
    symbols.type_stmt: ((3, 12), "{}"),  # PEP 695
    symbols.typeparams: ((3, 13), "def f{}(): pass"),  # PEP 695, PEP 696
    symbols.except_clause: ((3, 14), "try: pass\n{}: pass"),  # PEP 654, PEP 758
    symbols.subscript: ((3, 11), "a[{}]"),  # PEP 646
}
_F_STRING, _T_STRING = ((3, 12), "{}"), ((3, 14), "{}")  # PEP 701, PEP 750
_PREFIX = re.compile(r"[A-Za-z]*")


def require_python(text: str, tree: Node) -> None:
    """Raise `SyntaxFault` where the running Python refuses `text` for another reason than its own age.

    `tree` is what `parsing.parse` made of `text`: our grammar leaves it to Python to judge the order of arguments,
    what may be assigned to, and the like.
    """
    error = _refusal(text.removeprefix("\ufeff"))
    if error is not None and not has_newer_syntax(tree):
        raise SyntaxFault(error.msg, error.lineno or 1, max(error.offset or 1, 1))


def has_newer_syntax(tree: Node) -> bool:
    """Whether any part of `tree` that may be of a newer syntax is refused by the running Python when alone."""
    for node in tree.pre_order():
        since, alone = _newer(node) or ((0, 0), "")
        if sys.version_info < since and _refusal(alone.format(_source(node))) is not None:
            return True
    return False


def _newer(node: Node | Leaf) -> tuple[tuple[int, int], str] | None:
    """The entry of the table above for `node`."""
    if node.type != token.STRING:
        return _NEWER.get(node.type)
    found = _PREFIX.match(node.value)
    prefix = found.group().lower() if found else ""
    return _F_STRING if "f" in prefix else _T_STRING if "t" in prefix else None


def _source(node: Node | Leaf) -> str:
    """The text of `node`, without what stands before it."""
    return str(node)[len(node.prefix) :]


def _refusal(text: str) -> SyntaxError | None:
    """Why the running Python can't parse `text`, if it says so."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            ast.parse(text)
        except SyntaxError as error:
            return error
        except (ValueError, RecursionError, MemoryError):  # too deep for it
            return None
    return None
