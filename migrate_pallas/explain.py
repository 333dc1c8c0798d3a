"""What the codes mean: of rules and findings their docstrings, of faults what stands here."""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from .rules import all_rules

PARTS = ("What it does", "Why", "Example", "Use instead", "References")
_PART = re.compile(rf"^({'|'.join(PARTS)}):(?: +|\n+)", re.MULTILINE)


@dataclass(frozen=True)
class Explanation:
    """A code, its name and the text that explains it: a first line, then PARTS."""

    code: str
    name: str
    text: str

    @property
    def summary(self) -> str:
        """The first paragraph of the text, on one line."""
        return " ".join(self.text.partition("\n\n")[0].split())

    @property
    def parts(self) -> dict[str, str]:
        """The text of each part, by its heading."""
        _, *rest = _PART.split(self.text)
        return {head: body.strip("\n") for head, body in zip(rest[::2], rest[1::2], strict=True)}

    @property
    def what(self) -> str:
        """What the code stands for: rules rewrite, findings only tell, faults keep a file from being done."""
        return {"1": "rule", "2": "finding"}.get(self.code[2], "fault")


class UnknownCode(Exception):
    """There is no such code; the message says so, and which is meant perhaps."""


def explanation(code: str) -> Explanation:
    """The explanation of `code`, in capitals or not. Raises `UnknownCode`."""
    known, wanted = explanations(), code.strip().upper()
    found = known.get(wanted)
    if found is None:
        like = [one for one in known if one[:3] == wanted[:3]] or known  # MP1, MP2 or MP9
        close = difflib.get_close_matches(wanted, like, n=1, cutoff=0.5)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise UnknownCode(f"no rule, finding or fault has the code {code!r}{hint}")
    return found


@cache
def explanations() -> dict[str, Explanation]:
    """Every explanation, by code."""
    rules = [Explanation(rule.code, rule.name, rule.explanation) for rule in all_rules()]
    faults = [
        Explanation(code, name, inspect.cleandoc(text)) for code, (name, text) in _FAULTS.items()
    ]
    return {one.code: one for one in (*rules, *faults)}


def names() -> dict[str, str]:
    """The name of every code."""
    return {code: one.name for code, one in explanations().items()}


def explained(code: str) -> str:
    """What `--explain CODE` prints. Raises `UnknownCode`."""
    one = explanation(code)
    return f"{one.code} {one.name} ({one.what})\n\n{one.text}\n"


def table() -> str:
    """What `--explain` prints without a code: a line for each."""
    width = max(map(len, names().values()))
    return "".join(f"{line}\n" for line in _rows(width))


def _rows(width: int) -> Iterator[str]:
    for one in explanations().values():
        yield f"{one.code}  {one.name:{width}}  {one.summary}"


_FAULTS = {
    "MP901": (
        "syntax-error",
        """
        The file is not Python.

        What it does: leaves the file as it is, and tells where it can't be parsed. The other files are done.

        Why: what can't be parsed can't be rewritten safely. Python 3 up to 3.14 is understood, whatever Python runs
        this program; Python 2 is not.

        Example:

            print "TPU"

        Use instead:

            print("TPU")

        References: the Python language reference, chapter 10 "Full Grammar specification".
        """,
    ),
    "MP902": (
        "undecodable",
        """
        The bytes of the file are not text in the encoding that it declares.

        What it does: leaves the file as it is. The other files are done.

        Why: it must be written back in the same encoding, byte for byte, which can't be promised where a byte stands
        for no character. Without a declaration the encoding is UTF-8.

        Example:

            NAME = "caf\\xe9"   (the byte E9 itself, and no declaration)

        Use instead:

            # -*- coding: latin-1 -*-

        in the first line of the file, or save it in UTF-8.

        References: PEP 263 "Defining Python Source Code Encodings".
        """,
    ),
    "MP903": (
        "unreadable",
        """
        The file, or a directory, can't be read or can't be written.

        What it does: tells what the system said of it, leaves the file as it is and does the others.

        Why: permissions, a path that is not there, a full disk, a link that leads out of the paths given, or a
        process that was killed while it had the file.

        Example:

            migrate-pallas --to=interpret --write read_only.py

        Use instead:

            chmod u+w read_only.py && migrate-pallas --to=interpret --write read_only.py

        References: none.
        """,
    ),
    "MP904": (
        "changed-on-disk",
        """
        The file changed on disk after it was read.

        What it does: leaves the file as it is now. The other files are done.

        Why: somebody else has written it meanwhile, an editor or another program, and that would be lost.

        Example:

            migrate-pallas --to=interpret --write kernels.py   (while a formatter writes it)

        Use instead: run it again, once the other program has ended.

        References: none.
        """,
    ),
    "MP905": (
        "refused",
        """
        Our own rewrite of the file was refused, or this program failed on it.

        What it does: leaves the file as it is. The other files are done.

        Why: before a file is written, the result must parse, and must be the original but for the changes that were
        accepted. This is a bug of this program.

        Example:

            migrate-pallas --to=interpret --write kernels.py

        Use instead: report the message with the file; until then, put `# migrate-pallas: skip` on a line of the call
        that it names, or `# migrate-pallas: skip-file` in the file.

        References: none.
        """,
    ),
}
