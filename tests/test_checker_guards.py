"""The checker on guards that `--unguard` dissolves: right results pass, every kind of damage is refused."""

from __future__ import annotations

import sys

import pytest

from migrate_pallas.checker import Accepted, Permit, Refused, prove

SKIP = 'self.skipTest("needs a TPU")'
MARK = "@pytest.mark.skipif({}, reason='needs a TPU')\ndef test_one(): ...\n"
UNLESS = "class T:\n    @unittest.skipUnless({}, 'needs a TPU')\n    def test_one(self): ...\n"
KEYWORD = "mark = pytest.mark.skipif(condition={}, reason='needs a TPU')\n"
IF = f"def test_one(self, size):\n    if {{}}:\n        {SKIP}\n    return size\n"
ELIF = f"def test_one(self, size):\n    if size:\n        pass\n    elif {{}}:\n        {SKIP}\n"
RAISE = "if {}:\n    print(1)\n    raise unittest.SkipTest('needs a TPU')\n"
TEST = 'jax.default_backend() != "tpu"'


def check(shape: str, before: str, after: str, code: str = "MP207") -> None:
    """Prove that the condition `before` in `shape` may become `after`, where one change was accepted there."""
    text = shape.format(before)
    lines = text[: text.index(before)].split("\n")
    accepted = [Accepted(code, len(lines), len(lines[-1]))]
    prove(text, shape.format(after), accepted, Permit())


@pytest.mark.parametrize("shape", [MARK, KEYWORD, IF, ELIF, RAISE])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (TEST, "False"),
        (f"({TEST})", "(False)"),
        (f"{TEST} or size < 8", "False or size < 8"),
        (f"size and ({TEST})", "size and (False)"),
        (f"not (ON_TPU and size) or {TEST}", "not (True and size) or False"),
        ("not ON_TPU", "False"),
    ],
)
def test_a_dissolved_guard_passes(shape: str, before: str, after: str) -> None:
    check(shape, before, after)


@pytest.mark.parametrize(
    ("before", "after"),
    [("ON_TPU", "True"), ("size and ON_TPU", "size and True"), (f"not ({TEST})", "not (False)")],
)
def test_a_dissolved_skip_unless_passes(before: str, after: str) -> None:
    check(UNLESS, before, after)


@pytest.mark.parametrize(
    ("shape", "before", "after"),
    [
        (MARK, TEST, "True"),
        (MARK, TEST, "0"),
        (MARK, TEST, "None"),
        (MARK, TEST, "'False'"),
        (MARK, f"not {TEST}", "not False"),
        (MARK, f"({TEST})", "False"),
        (MARK, f"{TEST} or size", "False and size"),
        (MARK, f"{TEST} or size", "size or False"),
        (MARK, f"(b := {TEST})", "(False)"),
        (MARK, f"f({TEST})", "f(False)"),
        (MARK, f"{TEST}  # why\n", "False\n"),
        (UNLESS, "ON_TPU", "False"),
        (UNLESS, "size or (x if ON_TPU else y)", "size or (x if True else y)"),
        (IF, TEST, "True"),
        (IF, "not ON_TPU", "not False"),
        (IF, "True", "False"),
        (IF, TEST, "False or size"),
    ],
)
def test_another_condition_is_refused(shape: str, before: str, after: str) -> None:
    with pytest.raises(Refused):
        check(shape, before, after)


@pytest.mark.parametrize(
    "shape",
    [
        "if size:\n    raise unittest.SkipTest('no')\nelse:\n    run({})\n",
        "while {}:\n    raise unittest.SkipTest('needs a TPU')\n",
        "run({})\n",
        "mark = pytest.mark.skipif(size, {})\n",
        "mark = pytest.mark.skipif(size, reason={})\n",
        "mark = pytest.mark.xfail({}, reason='needs a TPU')\n",
    ],
)
def test_what_is_no_guard_of_tests_is_refused(shape: str) -> None:
    with pytest.raises(Refused):
        check(shape, TEST, "False")


@pytest.mark.parametrize(
    "became",
    [
        IF.replace("self.skipTest", "self.fail"),
        IF.replace(SKIP, f"{SKIP}  # comment"),
        IF.replace(SKIP, "pass"),
        IF.replace("if {}", "while {}"),
        IF.replace("return size", "return 0"),
        IF + "pass\n",
    ],
)
def test_damage_around_a_dissolved_guard_is_refused(became: str) -> None:
    text = IF.format(TEST)
    with pytest.raises(Refused):
        prove(text, became.format("False"), [Accepted("MP207", 2, 7)], Permit())


@pytest.mark.parametrize("code", ["MP101", "MP110", "MP121"])
def test_a_guard_dissolved_under_another_code_is_refused(code: str) -> None:
    with pytest.raises(Refused):
        check(IF, TEST, "False", code)


def test_each_guard_must_have_been_accepted() -> None:
    text = RAISE.format(TEST) * 2
    first = [Accepted("MP207", 1, 3)]
    prove(text, RAISE.format("False") + RAISE.format(TEST), first, Permit())
    with pytest.raises(Refused):
        prove(text, RAISE.format("False") * 2, first, Permit())
    with pytest.raises(Refused):
        prove(text, RAISE.format(TEST) + RAISE.format("False"), first, Permit())
    with pytest.raises(Refused):
        prove(text, text, first, Permit())


@pytest.mark.skipif(
    sys.version_info >= (3, 14), reason="this Python reads except without parentheses"
)
def test_a_dissolved_guard_in_a_source_of_a_newer_python_passes() -> None:
    newer = "try:\n    run()\nexcept ValueError, TypeError:\n    run()\n"
    check(newer + IF, TEST, "False")
    with pytest.raises(Refused):
        check(newer + IF, TEST, "True")
