"""Files made to be slow, deep or huge: each is done or refused, within ten seconds of one core."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SECONDS = 10
HEAD = "from jax.experimental import pallas as pl\n"
SITE = 'pl.run_scoped(f, collective_axes="i")\n'
KERNEL = """\
def kernel_{0}(x_ref, o_ref):
    o_ref[...] = x_ref[...]


def call_{0}(x):
    return pl.pallas_call(kernel_{0}, out_shape=x)(x)


"""
CHAIN = "def call_{0}(f):\n    call_{1}(f)\n\n\n"


def nested(before: str, depth: int, after: str = "") -> str:
    return f"{HEAD}x = {before * depth}{SITE.strip()}{after * depth}\n"


def blocks(depth: int) -> str:
    heads = "".join(f"{' ' * level}if a:\n" for level in range(depth))
    return f"{HEAD}{heads}{' ' * depth}{SITE}"


def many(template: str, number: int) -> str:
    return HEAD + "".join(template.format(each, each + 1) for each in range(number))


# Python 3.12's own parser has a limit that is not raised with Python's (README, "Limits").
DEEP = 500 if sys.version_info[:2] == (3, 12) else 2000


def migrate(directory: Path, text: str, *options: str) -> subprocess.CompletedProcess[bytes]:
    """What the program says to a file with this text, in no more than so many seconds of one core."""
    (directory / "hostile.py").write_text(text)
    return subprocess.run(
        [sys.executable, "-m", "migrate_pallas", "--to=interpret", *options, "hostile.py"],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        timeout=20 * SECONDS,  # only of a machine that has no time for us
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS)),
    )


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        (nested("(", 190, ")"), 1),
        (nested("f(", 100, ")"), 1),
        (nested("lambda: ", 150), 1),
        (blocks(95), 1),
        (f"{HEAD}x = a{'.b' * DEEP}\n{SITE}", 1),
        (f"{HEAD}x = a{' + b' * DEEP}\n{SITE}", 1),
        (f"{HEAD}if a:\n  b\n{'elif a:{0}  b{0}'.format(chr(10)) * 1000}{SITE}", 1),
        (f"{HEAD}x = {{{''.join(f'{n}: {n},{chr(10)}' for n in range(100_000))}}}\n{SITE}", 1),
        (f"{HEAD}x = '{'a' * 1_500_000}'; {SITE}", 1),
        (f"{HEAD}{f'# a comment{chr(10)}' * 50_000}{SITE}", 1),
        (f"{HEAD}{SITE.strip()}{', 0' * 10_000}\n", 1),
        (many("def f_{0}(f):\n    return {1}\n\n\n" * 9 + "def g_{0}(f):\n    " + SITE, 500), 500),
        (many(KERNEL, 700), 700),
        (many(CHAIN, 5000) + f"def call_5000(f):\n    {SITE}", 1),
        (f"{HEAD}{SITE.strip()}" + f"; {SITE.strip()}" * 300, 301),
    ],
    ids=[
        *("brackets", "calls", "lambdas", "blocks", "attributes", "sum", "elif", "dict", "string"),
        *("comments", "tuple", "functions", "kernels", "chain", "line"),
    ],
)
def test_is_done(tmp_path: Path, text: str, changed: int) -> None:
    done = migrate(tmp_path, text, "--write")
    said = done.stderr.decode()
    assert done.returncode == 0, said[-2000:]
    assert f"changed {changed} argument" in said
    assert "collective_axes" not in (tmp_path / "hostile.py").read_text()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (nested("(", 2000, ")"), "hostile.py:2:255: MP901 not Python: nested too deeply"),
        (blocks(500), "MP901 not Python: nested too deeply"),
        (nested("[", 100_000), "MP901 not Python: nested too deeply"),
        (f"{HEAD}x = a{'.b(c)' * 5000}\n{SITE}", "MP905 our own rewrite was refused"),
        (
            f"{HEAD}x = [{'1, ' * 1_600_000}]; {SITE}",
            "MP903 4,800,088 characters, among them words of Pallas: no more than 2,000,000 are parsed",
        ),
    ],
    ids=["brackets", "blocks", "open", "calls", "long"],
)
def test_is_refused_with_a_message(tmp_path: Path, text: str, says: str) -> None:
    done = migrate(tmp_path, text, "--write")
    assert done.returncode == 2
    assert says in done.stderr.decode()
    assert (tmp_path / "hostile.py").read_text() == text


def test_a_huge_line_without_words_of_pallas_is_not_parsed(tmp_path: Path) -> None:
    done = migrate(tmp_path, f"x = '{'a' * 50_000_000}'\n", "--check")
    assert (done.returncode, done.stdout) == (0, b"")
