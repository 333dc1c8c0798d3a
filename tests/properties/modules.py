"""A generator of Python modules that use Pallas in every shape that comes to mind.

All of them compile from Python 3.10 on, and run: against the stand-in, every target in them is reached.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from hypothesis import strategies as st

_T = TypeVar("_T")

# An import of Pallas, and what stands before the name of a function of it; "" where the names are bound themselves.
PALLAS = (
    ("from jax.experimental import pallas as pl", "pl."),
    ("from jax.experimental import pallas", "pallas."),
    ("import jax.experimental.pallas as pl", "pl."),
    ("import jax.experimental.pallas, os", "jax.experimental.pallas."),
    ("import jax\nimport jax.experimental.pallas", "jax . experimental.pallas."),
    ("from jax import experimental as jex", "jex.pallas."),
    ("from jax.experimental import (\n    pallas as pl,  # as usual\n)", "pl."),
    ("from jax.experimental \\\n    import pallas as pl", "pl."),
    (
        "try:\n    from jax.experimental import pallas as pl\nexcept ImportError:\n    pl = None",
        "pl.",
    ),
    (
        "if True:\n    from jax.experimental import pallas as pl\nelse:\n    import os as pl",
        "pl.",
    ),
    ("from jax.experimental.pallas import run_scoped, with_scoped, pallas_call", ""),
    ("from jax.experimental.pallas import *", ""),
    (
        "from jax._src.pallas.primitives import *\nfrom jax._src.pallas import pallas_call as P",
        "pl.",
    ),
    ("import os; from jax.experimental import pallas as π", "π."),
)
TPU = (
    ("from jax.experimental.pallas import tpu as pltpu", "pltpu."),
    ("import jax.experimental.pallas.tpu as mosaic", "mosaic."),
    ("import jax.experimental.pallas.tpu", "jax.experimental.pallas.tpu."),
    ("from jax.experimental.pallas.tpu import get_tpu_info, emit_pipeline", ""),
)
AXES = (
    '"x"',
    "'x'",
    '("x", "y")',
    "('x' 'y', # two\n 'z')",
    "()",
    "None",
    "AXES",
    '"x" if FLAG else None',
    'None if FLAG else "x"',
    'lambda: "x"',
    '(w := "x")',
    "f\"{'x'}{'y'!r:>{4}}\"",
    'AXES[0] if jax.default_backend() == "tpu" else ()',
    'AXES if not (jax.default_backend() != "tpu") else None',
    '{"k": ["x"]}["k"][0]',
    '"""x"""',
    "[a for a in AXES]",
    "AXES or ()",
    "not FLAG",
)
INTERPRETS = (
    None,
    "False",
    "True",
    "None",
    "FLAG",
    "CONFIG.debug",
    "FLAG and CONFIG.debug",
    'jax.default_backend() != "tpu"',
    "(FLAG)",
    "0",
    "(w := FLAG)",
    "not FLAG",
)
# Statements that hold no target; the names in them are bound before.
NOISE = (
    "x = 1; y = 2;",
    "x: 'int' = (1 +\n    2)  # {c}",
    "if (n := len('collective_axes')) > 3: pass",
    "match [1, 2]:\n    case [1, *rest] if rest:\n        x = 1  # {c}\n    case _: pass",
    "try:\n    x = 1\nexcept (ValueError, TypeError) as e:  # {c}\n    raise\nfinally:\n    pass",
    "with (open(__file__) if False else CONFIG) as a, CONFIG: pass",
    "x = f\"{'a' + 'b'!r:{1}0}\" 'c'  # {c}",
    'x = """\ncollective_axes="x" # no comment\n  """',
    "x = [a for a in AXES if a for _ in range(1)]",
    "x = {k: v for k, v in {'run_scoped': 1}.items()}",
    "async def _a():\n    return [a async for a in b if await a]",
    "x = 0; del x",
    "x = lambda *a, b=1, **k: (yield)",
    "for i, in [(1,)]:\n    continue\nelse:\n    i = 1",
    "x = not\\\n    1",
    "\f",
    "def _f(a, /, b: int = 1, *, collective_axes=None) -> 'int':\n    '''Own.'''\n    return a",
    "class _C(object, metaclass=type):\n    collective_axes = 1; pl = 2\n    run_scoped = pl",
    "while False: break",
    "# {c}",
    "\n\n  # {c} indented oddly",
    "x = (  # {c}\n    1)",
    "print('collective_axes', sep='', end='')",
)
WRAPPINGS = (
    "{e}",
    "x = {e}",
    "x = [{e} for _ in range(1)]",
    "x = {{'k': {e} for _ in 'a'}}",
    "(x := {e})",
    "x = (lambda: {e})()",
    "if {e}: pass",
    "assert {e} or True, 'run_scoped'",
    "x = {e}; x",
    "x = ({e}\n    )  # {c}",
    "x = \\\n    {e}",
    "match {e}:\n    case _: x = 1  # {c}",
    "x, *y = {e}, 1",
    "x = {e} if FLAG else 2",
    "with CONFIG as x: {e}",
    "print({e}, end='', sep='', file=CONFIG)",
    "global G; G = {e}",
)
BLOCKS = (
    "if FLAG:",
    "for i in range(1):  # {c}",
    "try:",
    "with CONFIG:",
    "if FLAG :\n    pass\nif 1:",
    "while FLAG:\n  break\nelse:",
    "match 1:\n  case 1:\n    x = 2\nif not False:",
)
HEADS = (
    '"""A module."""',
    "from __future__ import annotations",
    '"""A\nmodule."""\nfrom __future__ import (annotations)  # {c}',
    "#!/usr/bin/env python3",
    "# -*- coding: utf-8 -*-",
    "'one' ; 'two'",
)


class _Maker:
    """Makes one module; every choice is drawn, so that a failing one shrinks."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self._count = 0
        self.unit = self.pick(["    ", "  ", "\t", " "])

    def pick(self, options: Sequence[_T]) -> _T:
        return self._draw(st.sampled_from(options))

    def chance(self, one_in: int = 2) -> bool:
        return self._draw(st.integers(1, one_in)) == one_in

    def fresh(self, stem: str) -> str:
        self._count += 1
        return f"{stem}{self._count}"

    def filled(self, template: str, expression: str = "") -> list[str]:
        """The lines of a template, with a comment that no other line has."""
        text = template.replace("{c}", self.fresh("comment ").replace(" ", "-"))
        if "{e}" in text:
            text = text.replace("{{", "{").replace("}}", "}").replace("{e}", expression)
        return text.split("\n")

    def within(self, lines: Sequence[str]) -> list[str]:
        """A block of lines, one step further in."""
        return [self.unit + line if line.strip(" \t") else line for line in lines]

    def call(self, function: str, arguments: Sequence[str]) -> str:
        """A call in one of many layouts."""
        one, two, three = (self.fresh("#call-") for _ in range(3))
        layout = self.pick(range(10))
        commas = ", ".join(arguments)
        lines = ",\n    ".join(arguments)
        noted = arguments[0] + "".join(
            f",  {one}-{number}\n    {two}-{number}\n    {argument}"
            for number, argument in enumerate(arguments[1:])
        )
        leading = arguments[0] + "".join(
            f"\n    , {three}-{number}\n{argument}" for number, argument in enumerate(arguments[1:])
        )
        return (
            f"{function}({commas})",
            f"{function}( {' , '.join(arguments)} )",
            f"{function} ({','.join(arguments)},)",
            f"{function}(\n    {lines},\n)",
            f"{function}(\n    {noted}  {three}\n)",
            f"{function}({lines})",
            f"{function}(  {one}\n    {commas}\n  {two}\n)",
            f"{function}({commas}, \\\n    )",
            f"{function}(\n\n    {leading}\n    )",
            f"{function}(\n    {noted},  {three}\n    )",
        )[layout]

    def keyword(self, name: str, value: str) -> str:
        return self.pick([f"{name}={value}", f"{name} = {value}", f"{name}=({value})"])

    def shuffled(self, keywords: Sequence[str]) -> list[str]:
        return list(self._draw(st.permutations(keywords)))

    # -- sites: lines that come before, and an expression --

    def scoped(self, function: str) -> tuple[list[str], str]:
        """A call of `run_scoped` with axes."""
        keyword = self.keyword("collective_axes", self.pick(AXES))
        value = self.pick(AXES)
        shape = self.pick(range(8))
        if shape < 3:
            return [], self.call(function, ["BODY", *self.shuffled([keyword, "sem=SEM"])])
        if shape == 3:
            own = (
                self.pick(['**{"collective_axes": %s}', "**dict(collective_axes=%s)"])
                % f"({value})"
            )
            return [], self.call(function, ["BODY", own])
        if shape == 4:
            name = self.fresh("kw")
            display = f"{{'collective_axes': ({value}), 'sem': SEM}}"
            return [f"{name} = {display}"], self.call(function, ["BODY", f"**{name}"])
        if shape == 5:
            partial = self.call("functools.partial", [function, "BODY", keyword])
            return [], self.pick([f"{partial}(SEM)", f"({partial})()"])
        if shape == 6:
            name = self.fresh("alias")
            return [f"{name} = {function}"], self.call(name, ["BODY", keyword])
        inner = self.call(function, ["BODY", keyword])
        return [], self.call(
            function, [f"lambda *refs: {inner}", "SEM", f"collective_axes={value}"]
        )

    def interpreted(self, function: str) -> tuple[list[str], str]:
        """A call of `pallas_call`."""
        value = self.pick(INTERPRETS)
        keywords = ["out_shape=SHAPE", *([self.keyword("interpret", value)] if value else [])]
        shape = self.pick(range(4))
        if shape == 3:
            name = self.fresh("kw")
            return [f"{name} = dict(out_shape=SHAPE)"], self.call(
                function, ["kernel", f"**{name}"]
            ) + "(SHAPE)"
        if shape == 2:
            partial = self.call("functools.partial", [function, *self.shuffled(keywords)])
            return [], f"{partial}(kernel)(SHAPE)"
        return [], self.call(function, ["kernel", *self.shuffled(keywords)]) + "(SHAPE)"

    def figures(self, function: str) -> tuple[list[str], str]:
        """A call that asks for the figures of a TPU."""
        return [], self.pick(
            ["%s().num_lanes", "(%s ( ))", "%s()\\\n    .x", "str(%s())"]
        ) % function


class _Module(_Maker):
    """A module from its imports to its last function."""

    def __init__(self, draw: st.DrawFn) -> None:
        super().__init__(draw)
        self.pallas, self.prefix = self.pick(PALLAS)
        if "as P" in self.pallas:
            self.pallas += "\nfrom jax.experimental import pallas as pl"
        self.tpu, self.tpu_prefix = self.pick([*TPU, ("", None)])

    def site(self) -> list[str]:
        """Statements with a target."""
        kinds = [self.scoped, self.scoped, self.interpreted]
        names = ["run_scoped", "run_scoped", "pallas_call"]
        number = self.pick(range(4 if self.tpu_prefix is not None else 3))
        if number == 3:
            before, expression = self.figures(f"{self.tpu_prefix}get_tpu_info")
        else:
            before, expression = kinds[number](self.prefix + names[number])
        return [*before, *self.filled(self.pick(WRAPPINGS[:-1]), expression)]

    def decorated(self) -> list[str]:
        """A function under a decorator that is a target, and its call."""
        name = self.fresh("decorated")
        keyword = self.keyword("collective_axes", self.pick(AXES))
        if self.chance():
            return [
                f"@{self.call(self.prefix + 'with_scoped', ['SEM', keyword])}",
                f"def {name}(ref, *refs): return ref",
                f"{name}(SEM)",
            ]
        partial = self.call("functools.partial", [f"{self.prefix}run_scoped", keyword])
        return [f"@{partial}", f"def {name}(*refs):", f"{self.unit}return refs"]

    def shadowed(self) -> list[str]:
        """A function in which the name of Pallas means something else."""
        root = self.prefix.split(".")[0].strip() or "run_scoped"
        call = self.call(f"{self.prefix}run_scoped", ["BODY", 'collective_axes="own"'])
        name = self.fresh("shadow")
        bound = [
            (f"def {name}({root}):", []),
            (f"def {name}(*, {root}=CONFIG):", []),
            (f"def {name}():", [f"for {root} in [CONFIG]: pass"]),
            (f"def {name}():", [f"{root} = CONFIG"]),
            (f"def {name}():", [f"with CONFIG as {root}: pass"]),
            (f"def {name}(x=CONFIG):", [f"({root} := x)"]),
        ]
        head, lines = self.pick(bound)
        return [head, *self.within([*lines, f"return {call}"])]

    def statements(self, depth: int) -> list[str]:
        """A few statements of a function's body."""
        lines: list[str] = []
        for _ in range(self.pick([1, 1, 2, 3])):
            kind = self.pick(range(8))
            if kind < 3:
                lines += self.site()
            elif kind < 5:
                lines += self.filled(self.pick(NOISE))
            elif kind == 5:
                lines += self.decorated()
            elif kind == 6 and depth:
                lines += self.block(depth - 1)
            elif depth:
                lines += self.nested(depth)
        return [*lines, "pass"]

    def block(self, depth: int) -> list[str]:
        """Statements under a head that opens a block."""
        head = self.filled(self.pick(BLOCKS))
        handler = ["except ZeroDivisionError:", f"{self.unit}raise"] if head == ["try:"] else []
        return [*head, *self.within(self.statements(depth)), *handler]

    def nested(self, depth: int) -> list[str]:
        """A function in a function, with names of the outer one."""
        name = self.fresh("inner")
        return [
            "outer = 1",
            f"def {name}(axes='x'):",
            *self.within(["nonlocal outer", "outer = axes", *self.statements(depth - 1)]),
            f"{name}()",
        ]

    def function(self) -> list[str]:
        """A function, method or class of the module."""
        name = self.fresh("function")
        head = self.pick([f"def {name}():", f"def {name}(x, *, axes='x') -> 'int':  # {name}"])
        body = self.within(self.statements(2))
        if self.chance(4):
            return [f"class {name.title()}:", *self.within([f"def {name}(self):", *body])]
        if self.chance(5):
            return ["@functools.lru_cache(None)", *self.shadowed()][1:]
        return [head, *body]

    def text(self) -> str:
        """All of it."""
        head = self.filled(self.pick(HEADS)) if self.chance() else []
        imports = self.shuffled([self.pallas, "import jax", "import functools", self.tpu])
        lines = [
            *head,
            *"\n".join(imports).split("\n"),
            "AXES = ('x', 'y')",
            "FLAG = bool(AXES)",
            *(["import contextlib"] if self.chance() else []),
            "class CONFIG_:",
            "    debug = False",
            "    def __enter__(self): return self",
            "    def __exit__(self, *error): pass",
            "    def write(self, text): pass",
            "    def run_scoped(self, *a, **k): return k",
            "    pallas = experimental = property(lambda self: self)",
            "    def __call__(self, *a, **k): return k",
            "CONFIG = CONFIG_()",
            "SEM = SHAPE = 'f4'",
            "def BODY(*refs, **kw): return 1",
            "def kernel(x_ref, o_ref): o_ref[...] = x_ref[...]",
        ]
        for _ in range(self.pick([1, 2, 3])):
            lines += [*[""] * self.pick([0, 1, 2]), *self.function()]
        text = "\n".join(lines) + "\n"
        return self.pick([text] * 3 + [text.replace("\n", "\r\n"), text[:-1], text + "\n# end"])


@st.composite
def modules(draw: st.DrawFn) -> str:
    """The text of a module that compiles and that the stand-in can run."""
    return _Module(draw).text()
