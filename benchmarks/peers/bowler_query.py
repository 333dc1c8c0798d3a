"""Stock Bowler with the query that comes nearest: `bowler_query.py PATH...` prints each call it finds, as JSON.

It rewrites the trees, as a codemod would, and writes no file.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from bowler import Query
from fissix.pgen2 import token
from fissix.pytree import Leaf, Node

CALL = """
(
    power< '{name}' call=trailer< '(' any* ')' > any* >
|
    power< any+ trailer< '.' '{name}' > call=trailer< '(' any* ')' > any* >
)
"""


def keyword(call: Node, name: str) -> Node | None:
    """The argument `name=...` of the call whose brackets are `call`."""
    inner = call.children[1]
    for argument in (inner, *inner.children):
        if len(argument.children) == 3 and str(argument.children[0]).strip() == name:
            return argument
    return None


def has_axes(node: Node, capture: dict[str, Any], filename: str) -> bool:
    """Whether the call passes `collective_axes`."""
    return keyword(capture["call"], "collective_axes") is not None


def gate_axes(node: Node, capture: dict[str, Any], filename: str) -> None:
    """Pass axes on TPU only."""
    print(json.dumps({"file": filename, "ruleId": "run_scoped"}))
    value = keyword(capture["call"], "collective_axes").children[2]
    value.replace(Leaf(token.NAME, f"{value} if on_tpu() else ()"))


def interpret(node: Node, capture: dict[str, Any], filename: str) -> None:
    """Interpret the kernel where there is no TPU."""
    print(json.dumps({"file": filename, "ruleId": "pallas_call"}))
    call = capture["call"]
    if keyword(call, "interpret") is None:
        *_, last, _ = call.leaves()
        comma = "" if last.type in (token.COMMA, token.LPAR) else ", "
        call.insert_child(-1, Leaf(token.NAME, f"{comma}interpret=not on_tpu()"))


if __name__ == "__main__":
    query = Query(sys.argv[1:])
    query.select(CALL.format(name="run_scoped")).filter(has_axes).modify(gate_axes)
    query.select(CALL.format(name="pallas_call")).modify(interpret)
    query.execute(write=False, silent=True, interactive=False)
