"""Backend tests: expressions that tell on which platform the program runs.

A test is judged by what it means, not by how it is spelled: it is evaluated, in three-valued logic, as if the program
ran on a platform. What depends on anything else (an environment variable, a configuration field) is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fissix.pgen2 import token
from fissix.pytree import Leaf, Node

from .calls import (
    Call,
    Tree,
    ancestry,
    as_call,
    call_at,
    literal_text,
    plain_text,
    start,
    unwrapped,
    written,
)
from .names import How, Meaning, Names
from .parsing import symbols
from .parts import Parted

Truth = bool | None

CPU, GPU, TPU = "cpu", "gpu", "tpu"
PLATFORMS = (CPU, GPU, TPU)

# What jax.default_backend() and Device.platform say (jax/_src/xla_bridge.py, 0.10.2); a GPU says any of three words.
_PLATFORM_WORDS = {CPU: ("cpu",), GPU: ("gpu", "cuda", "rocm"), TPU: ("tpu",)}
# How Device.device_kind begins: "TPU v5 lite" (jax/_src/pallas/mosaic/tpu_info.py, 0.10.2), "NVIDIA H100", "cpu".
_KIND_BEGINS = {CPU: ("cpu",), GPU: ("NVIDIA", "AMD"), TPU: ("TPU",)}
# Functions of JAX and of its test helpers that answer for a platform: (on which it is true, on which it may be).
_ANSWERS = {
    "is_tpu_device": (TPU,),
    "is_device_tpu": (TPU,),
    "is_cloud_tpu": (TPU,),
    "is_device_cuda": (GPU,),
    "is_device_rocm": (GPU,),
}
_PARTIAL_ANSWERS = {"is_device_tpu_at_least": (TPU,), "is_cuda_compute_capability_at_least": (GPU,)}
_DEVICE_LISTS = ("devices", "local_devices")
_CACHES = ("functools.cache", "functools.lru_cache", "jax.util.cache")
# What a caller must catch to have a fallback for what JAX raises: ValueError and NotImplementedError.
_CATCH_ALL = ("BaseException", "Exception", "NotImplementedError", "RuntimeError", "ValueError")


@dataclass(frozen=True)
class Word:
    """What a platform source says: the whole text, or how it begins."""

    text: str
    whole: bool = True

    def equals(self, other: str) -> Truth:
        """Whether the text is `other`."""
        if self.whole:
            return self.text == other
        return None if other.startswith(self.text) else False

    def holds(self, part: str) -> Truth:
        """Whether `part` stands in the text."""
        if part in self.text:
            return True
        if self.whole or any(part.lower() == w for w in ("cpu", "gpu", "tpu")):
            return False  # no kind of device names another platform
        return None

    def begins(self, part: str) -> Truth:
        """Whether the text begins with `part`."""
        if self.text.startswith(part):
            return True
        return None if not self.whole and part.startswith(self.text) else False


def gate_names(gate: str) -> str:
    """A pattern for what a gate is called that is to be called `gate`: that, or another name where it is taken."""
    return rf"(?:_?{gate}|_{gate}_\d+)"


def _both(values: Iterator[Truth] | list[Truth]) -> Truth:
    """Three-valued `all`."""
    listed = list(values)
    if any(value is False for value in listed):
        return False
    return True if all(listed) else None


def _agreed(values: list[Truth]) -> Truth:
    """The one value that all of them have, or unknown."""
    return values[0] if values and all(value is values[0] for value in values) else None


def _inverse(value: Truth) -> Truth:
    return None if value is None else not value


class Backends:
    """Answers, for one module, what an expression says of the platform and whether code is reached on it."""

    def __init__(self, names: Names, gate: str) -> None:
        """`gate` is the name under which an imported function is taken for a gate."""
        self.names = names
        self.gate = gate
        self._evaluating: set[int] = set()
        self._wording: set[int] = set()

    def is_test(self, node: Tree) -> bool:
        """Whether `node` is a backend test: what it is on CPU can be told, and it is not the same everywhere."""
        values = [self.truth(node, platform) for platform in PLATFORMS]
        return values[0] is not None and _agreed(values) is None

    def truth(self, node: Tree, platform: str) -> Truth:
        """Whether `node` is true where the default backend is `platform`; None where that can't be told."""
        node = unwrapped(node)
        if id(node) in self._evaluating:
            return None
        self._evaluating.add(id(node))
        try:
            return self._truth(node, platform)
        finally:
            self._evaluating.discard(id(node))

    def _truth(self, node: Tree, platform: str) -> Truth:
        if isinstance(node, Leaf):
            return self._leaf(node, platform)
        kids = node.children
        if node.type == symbols.not_test:
            return _inverse(self.truth(kids[1], platform))
        if node.type == symbols.and_test:
            return _both([self.truth(kid, platform) for kid in kids[::2]])
        if node.type == symbols.or_test:
            return _inverse(_both([_inverse(self.truth(kid, platform)) for kid in kids[::2]]))
        if node.type == symbols.test:
            return self._conditional(kids, platform)
        if node.type == symbols.comparison and len(kids) == 3:
            operator = [leaf.value for leaf in kids[1].leaves()]
            return self._comparison(kids[0], operator, kids[2], platform)
        if node.type == symbols.namedexpr_test:
            return self.truth(kids[2], platform)
        call = as_call(node)
        return self._call(call, platform) if call else None

    def _leaf(self, leaf: Leaf, platform: str) -> Truth:
        constants = {"True": True, "False": False, "None": False, "0": False, "1": True}
        if leaf.value in constants:
            return constants[leaf.value]
        value = self.names.assigned(leaf)
        return self.truth(value, platform) if value is not None else None

    def _conditional(self, kids: list[Tree], platform: str) -> Truth:
        chosen = self.truth(kids[2], platform)
        if chosen is None:
            return _agreed([self.truth(kids[0], platform), self.truth(kids[4], platform)])
        return self.truth(kids[0] if chosen else kids[4], platform)

    # -- comparisons --

    def _comparison(self, left: Tree, operator: list[str], right: Tree, platform: str) -> Truth:
        negated = operator in (["!="], ["not", "in"], ["is", "not"])
        if operator in (["=="], ["!="], ["is"], ["is", "not"]):
            value = self._equal(left, right, platform)
        elif operator in (["in"], ["not", "in"]):
            value = self._contained(left, right, platform)
        else:
            value = None
        return _inverse(value) if negated else value

    def _equal(self, left: Tree, right: Tree, platform: str) -> Truth:
        for one, other in ((left, right), (right, left)):
            word = self._literal(other)
            words = self.words(one, platform)
            if word is not None and words:
                return _agreed([w.equals(word) for w in words])
            if isinstance(other, Leaf) and other.value in ("True", "False"):
                value = self.truth(one, platform)
                return value if other.value == "True" else _inverse(value)
        return None

    def _contained(self, left: Tree, right: Tree, platform: str) -> Truth:
        word, words = self._literal(left), self.words(right, platform)
        if word is not None and words:
            return _agreed([w.holds(word) for w in words])
        words, choices = self.words(left, platform), self._literals(right)
        if words and choices:
            return _agreed([_any([w.equals(choice) for choice in choices]) for w in words])
        return None

    def _literal(self, node: Tree) -> str | None:
        value = self.names.assigned(unwrapped(node))
        return literal_text(node if value is None else value)

    def _literals(self, node: Tree) -> list[str]:
        """The strings of a tuple, list or set of string literals; [] for anything else."""
        value = self.names.assigned(node)
        node = node if value is None else value
        if node.type != symbols.atom or len(node.children) != 3:
            return []
        inner = node.children[1]
        elements = inner.children[::2] if isinstance(inner, Node) else [inner]
        texts = [literal_text(element) for element in elements]
        return [text for text in texts if text is not None] if None not in texts else []

    # -- platform sources --

    def words(self, node: Tree, platform: str) -> list[Word]:
        """What the platform source `node` may say on `platform`; [] where it is none."""
        node = unwrapped(node)
        if id(node) in self._wording:
            return []
        self._wording.add(id(node))
        try:
            return self._words(node, platform)
        finally:
            self._wording.discard(id(node))

    def _words(self, node: Tree, platform: str) -> list[Word]:
        if isinstance(node, Leaf):
            value = self.names.assigned(node)
            return self.words(value, platform) if value is not None else []
        if node.type == symbols.namedexpr_test:
            return self.words(node.children[2], platform)
        if node.type != symbols.power:
            return []
        return self._power_words(node, len(node.children), platform)

    def _power_words(self, node: Node, length: int, platform: str) -> list[Word]:
        last = node.children[length - 1]
        if length < 2 or last.type != symbols.trailer:
            return self.words(node.children[0], platform) if length == 1 else []
        if last.children[0].value == ".":
            return self._attribute_words(node, length, last.children[1].value, platform)
        call = call_at(last)
        if call is None:
            return []
        before = node.children[length - 2]
        if before.type == symbols.trailer and before.children[0].value == ".":
            change = _TEXT_METHODS.get(before.children[1].value)
            words = self._power_words(node, length - 2, platform) if change else []
            if change and words:
                return [Word(change(word.text), word.whole) for word in words]
        return self._call_words(call, platform)

    def _attribute_words(
        self, node: Node, length: int, attribute: str, platform: str
    ) -> list[Word]:
        if attribute == "platform" and self._is_device(node, length - 1):
            return [Word(text) for text in _PLATFORM_WORDS[platform]]
        if attribute == "device_kind" and self._is_device(node, length - 1):
            return [Word(text, platform == CPU) for text in _KIND_BEGINS[platform]]
        return []

    def _call_words(self, call: Call, platform: str) -> list[Word]:
        meaning = self.names.callee(call)
        name = _jax_name(meaning.path)
        if name in ("default_backend", "device_under_test"):
            return [Word(text) for text in _PLATFORM_WORDS[platform]]
        callee = call.power.children[0]
        first = call.positional(0)
        if isinstance(callee, Leaf) and call.index == 1 and first is not None:
            attribute = call.positional(1)
            if callee.value == "str":
                return self.words(first, platform)
            if callee.value == "getattr" and attribute is not None and self.is_device(first):
                words = plain_text(attribute)
                if words == "platform":
                    return [Word(text) for text in _PLATFORM_WORDS[platform]]
                if words == "device_kind":
                    return [Word(text, platform == CPU) for text in _KIND_BEGINS[platform]]
        returned = self._returned(meaning.definition, call, platform)
        found = [self.words(node, platform) for node in returned] if returned else []
        return found[0] if found and all(words == found[0] for words in found) else []

    def is_device(self, node: Tree) -> bool:
        """Whether `node` is a device or devices: of `jax.devices()`, of a mesh, of a loop over those, of a client."""
        node = unwrapped(node)
        if isinstance(node, Leaf):
            return self._is_device_name(node)
        return node.type == symbols.power and self._is_device(node, len(node.children))

    def _is_device(self, node: Node, length: int) -> bool:
        for index in range(1, length):
            trailer = node.children[index]
            attribute = trailer.children[1].value if trailer.children[0].value == "." else ""
            if attribute in _DEVICE_LISTS:
                root = self.names.path(node.children[0])
                return not root or root.split(".")[0] == "jax"
            call = call_at(trailer)
            path = self.names.path(node, index) if call else ""
            if _jax_name(path) in (*_DEVICE_LISTS, "get_backend"):
                return True
            if call and index == 1 and call.positional(0) is not None:
                return written(node.children[0]) in ("next", "iter", "list") and self.is_device(
                    call.brackets.items[0].value
                )
        return isinstance(node.children[0], Leaf) and self._is_device_name(node.children[0])

    def _is_device_name(self, leaf: Leaf) -> bool:
        if leaf.type != token.NAME:
            return False
        value = self.names.assigned(leaf)
        if value is not None:
            return value is not leaf and not self._loops(leaf) and self.is_device(value)
        bindings = self.names.bindings(leaf)
        if len(bindings) != 1 or bindings[0].how is not How.OTHER:
            return False
        loop = bindings[0].node
        if loop.type not in (symbols.for_stmt, symbols.comp_for):
            return False
        kids = loop.children
        at = next(i for i, kid in enumerate(kids) if isinstance(kid, Leaf) and kid.value == "in")
        return self.is_device(kids[at + 1])

    def _loops(self, leaf: Leaf) -> bool:
        """Whether `leaf` is assigned something that refers to itself."""
        value = self.names.assigned(leaf)
        return value is not None and any(
            kid.value == leaf.value for kid in value.leaves() if kid.type == token.NAME
        )

    # -- calls --

    def _call(self, call: Call, platform: str) -> Truth:
        meaning = self.names.callee(call)
        name = _jax_name(meaning.path)
        if name in _ANSWERS:
            return platform in _ANSWERS[name]
        if name in _PARTIAL_ANSWERS:
            return None if platform in _PARTIAL_ANSWERS[name] else False
        if name == "test_device_matches":
            return self._matches(call, platform)
        if not call.brackets.items:
            if meaning.path and self._is_gate(meaning.path, call):
                return platform == TPU
            definitions = self._definitions(meaning, call)
            if definitions:
                return _agreed([self.answer(definition, platform) for definition in definitions])
        return self._builtin(call, platform)

    def _is_gate(self, path: str, call: Call) -> bool:
        """Whether an imported function bears the gate's name, where it is defined or here."""
        words = (path.rpartition(".")[2], written(call.power.children[0]))
        return any(re.fullmatch(gate_names(self.gate), word) for word in words)

    def _definitions(self, meaning: Meaning, call: Call) -> list[Tree]:
        """The functions of the module that `call` may call; [] where it may call anything else."""
        if meaning.definition is not None:
            return [meaning.definition]
        callee = call.power.children[0]
        bindings = (
            self.names.bindings(callee) if call.index == 1 and isinstance(callee, Leaf) else []
        )
        return [b.node for b in bindings] if all(b.how is How.FUNCTION for b in bindings) else []

    def answer(self, definition: Tree, platform: str) -> Truth:
        """What the function `definition`, called without arguments, answers on `platform`."""
        returned = self.returned(definition, platform) or []
        return _agreed([self.truth(node, platform) for node in returned])

    def _matches(self, call: Call, platform: str) -> Truth:
        first = call.positional(0)
        listed = self._literals(first) if first is not None else []
        if not listed:
            return None
        return any(word in listed for word in (*_PLATFORM_WORDS[platform], platform))

    def _builtin(self, call: Call, platform: str) -> Truth:
        """`bool(test)`, `any(test for ...)`, `all(...)`, and `text.startswith(word)`."""
        first, callee = call.positional(0), call.power.children[0]
        if first is None:
            return None
        if call.index == 1 and isinstance(callee, Leaf) and callee.value in ("bool", "any", "all"):
            element = _comprehended(first)
            if element is None and callee.value != "bool":
                return None
            return self.truth(first if element is None else element, platform)
        before = call.power.children[call.index - 1]
        if before.type == symbols.trailer and written(before) == ".startswith":
            words = self._power_words(call.power, call.index - 1, platform)
            literal = self._literal(first)
            starts = [literal] if literal is not None else self._literals(first)
            if words and starts:
                return _agreed([_any([w.begins(start) for start in starts]) for w in words])
        return None

    # -- functions that return a test --

    def _returned(self, definition: Tree | None, call: Call, platform: str) -> list[Tree] | None:
        """What a function of the module that is called without arguments may return; None where unknown."""
        if definition is None or call.brackets.items:
            return None
        return self.returned(definition, platform)

    def returned(self, definition: Tree, platform: str) -> list[Tree] | None:
        """The expressions that the function or lambda `definition` may return on `platform`; None where unknown."""
        if definition.type == symbols.lambdef:
            return [definition.children[-1]] if len(definition.children) == 3 else None
        if definition.type != symbols.funcdef or not self._is_plain(definition):
            return None
        found: list[Tree] = []
        return found if self._run(definition.children[-1], platform, found) is False else None

    def _is_plain(self, definition: Node) -> bool:
        """Whether calling the function runs its body: not async, no decorators but caches."""
        parent = definition.parent
        if parent is not None and parent.type in (symbols.async_stmt, symbols.async_funcdef):
            return False
        if parent is None or parent.type != symbols.decorated:
            return True
        decorators = parent.children[0]
        listed = decorators.children if decorators.type == symbols.decorators else [decorators]
        return all(self._is_cache(decorator.children[1]) for decorator in listed)

    def _is_cache(self, decorator: Tree) -> bool:
        call = as_call(decorator)
        path = self.names.callee(call).path if call else self.names.path(decorator)
        return path in _CACHES

    def _run(self, suite: Tree, platform: str, found: list[Tree]) -> Truth:
        """Walk statements, collecting what is returned. False: the end is not reached; None: unknown."""
        for statement in suite.children if suite.type == symbols.suite else [suite]:
            goes_on = self._step(statement, platform, found)
            if goes_on is not True:
                return goes_on
        return True

    def _step(self, statement: Tree, platform: str, found: list[Tree]) -> Truth:
        if isinstance(statement, Leaf):
            return True
        if statement.type == symbols.simple_stmt:
            small = statement.children[0]
            if small.type == symbols.return_stmt:
                found.append(small.children[1])
                return False
            if small.type in (symbols.raise_stmt,):
                return False
            return True if len(statement.children) == 2 else None
        if statement.type == symbols.if_stmt:
            return self._step_if(statement, platform, found)
        if statement.type == symbols.try_stmt:
            return self._run(statement.children[2], platform, found)
        return None

    def _step_if(self, statement: Node, platform: str, found: list[Tree]) -> Truth:
        ends: list[Truth] = []
        for test, suite in branches(statement):
            value = self.truth(test, platform) if test is not None else True
            if value is not False:
                ends.append(self._run(suite, platform, found))
            if value is True:
                break
        else:
            ends.append(True)
        return _agreed(ends)

    # -- code that is not reached --

    def unreached(self, node: Tree, platform: str = CPU) -> bool:
        """Whether backend tests around `node` keep it from running on `platform`."""
        for child, parent in ancestry(node):
            check = _GUARDS.get(parent.type)
            if check and check(self, child, parent, platform):
                return True
        return False

    def _if_excludes(self, child: Tree, parent: Node, platform: str) -> bool:
        for test, suite in branches(parent):
            if child is test:
                return False
            value = self.truth(test, platform) if test is not None else True
            if child is suite:
                return value is False
            if value is True:
                return True
        return False

    def _while_excludes(self, child: Tree, parent: Node, platform: str) -> bool:
        return child is parent.children[3] and self.truth(parent.children[1], platform) is False

    def _conditional_excludes(self, child: Tree, parent: Node, platform: str) -> bool:
        kids = parent.children
        value = self.truth(kids[2], platform) if child is not kids[2] else None
        return (child is kids[0] and value is False) or (child is kids[4] and value is True)

    def _operator_excludes(self, child: Tree, parent: Node, platform: str) -> bool:
        stops = parent.type == symbols.or_test
        for operand in parent.children[::2]:
            if operand is child:
                return False
            if self.truth(operand, platform) is stops:
                return True
        return False

    def _suite_excludes(self, child: Tree, parent: Node, platform: str) -> bool:
        """Whether an `if` before `child` in its suite has left it: `if not on_tpu(): return ...`."""
        for statement in parent.others if isinstance(parent, Parted) else parent.children:
            if start(statement) >= start(child):
                return False
            if statement.type == symbols.if_stmt:
                test, suite = next(branches(statement))
                if test is not None and leaves(suite) and self.truth(test, platform) is True:
                    return True
        return False

    def has_fallback(self, node: Tree) -> bool:
        """Whether `node` stands in a `try` whose handler catches what JAX raises and goes on."""
        return self.fallback(node) is not None

    def fallback(self, node: Tree) -> Tree | None:
        """The `except` clause that catches what JAX raises in `node`, and goes on; None where there is none."""
        for child, parent in ancestry(node):
            if parent.type in (symbols.funcdef, symbols.lambdef, symbols.classdef):
                return None
            if parent.type == symbols.try_stmt and child is parent.children[2]:
                for clause, suite in _handlers(parent):
                    if self._catches(clause) and not _reraises(suite):
                        return clause
        return None

    def _catches(self, clause: Tree) -> bool:
        if isinstance(clause, Leaf):
            return True
        caught = [leaf.value for leaf in clause.leaves() if leaf.type == token.NAME]
        return any(name in _CATCH_ALL for name in caught)


_GUARDS: dict[int, Callable[[Backends, Tree, Node, str], bool]] = {
    symbols.if_stmt: Backends._if_excludes,
    symbols.while_stmt: Backends._while_excludes,
    symbols.test: Backends._conditional_excludes,
    symbols.and_test: Backends._operator_excludes,
    symbols.or_test: Backends._operator_excludes,
    symbols.suite: Backends._suite_excludes,
    symbols.file_input: Backends._suite_excludes,
}
_TEXT_METHODS: dict[str, Callable[[str], str]] = {
    "lower": str.lower,
    "upper": str.upper,
    "casefold": str.casefold,
    "strip": str.strip,
}


def _jax_name(path: str) -> str:
    """The last part of a dotted path into JAX, else ''."""
    parts = path.split(".")
    return parts[-1] if parts[0] == "jax" else ""


def _comprehended(node: Tree) -> Tree | None:
    """The element of a generator expression or a list comprehension; None for anything else."""
    if node.type == symbols.atom and len(node.children) == 3 and node.children[0].value == "[":
        node = node.children[1]
    if isinstance(node, Leaf) or node.children[-1].type != symbols.comp_for:
        return None
    element: Tree = node.children[0]
    return element


def _any(values: list[Truth]) -> Truth:
    return _inverse(_both([_inverse(value) for value in values]))


def branches(statement: Node) -> Iterator[tuple[Tree | None, Tree]]:
    """The (test, suite) pairs of an `if` statement; the test of `else` is None."""
    kids = statement.children
    for index, kid in enumerate(kids):
        if isinstance(kid, Leaf) and kid.value in ("if", "elif"):
            yield kids[index + 1], kids[index + 3]
        elif isinstance(kid, Leaf) and kid.value == "else":
            yield None, kids[index + 2]


def _handlers(statement: Node) -> Iterator[tuple[Tree, Tree]]:
    kids = statement.children
    for index, kid in enumerate(kids):
        if kid.type == symbols.except_clause or (isinstance(kid, Leaf) and kid.value == "except"):
            yield kid, kids[index + 2]


def _last_statement(suite: Tree) -> Tree:
    if suite.type != symbols.suite:
        return suite
    return [kid for kid in suite.children if kid.type >= 256][-1]


def leaves(suite: Tree) -> bool:
    """Whether a suite ends by leaving its block."""
    last = _last_statement(suite)
    small = last.children[0] if last.type == symbols.simple_stmt else last
    word = small.value if isinstance(small, Leaf) else written(small.children[0])
    return word in ("return", "raise", "continue", "break")


def _reraises(suite: Tree) -> bool:
    last = _last_statement(suite)
    small = last.children[0] if last.type == symbols.simple_stmt else last
    return small.type == symbols.raise_stmt or (isinstance(small, Leaf) and small.value == "raise")
