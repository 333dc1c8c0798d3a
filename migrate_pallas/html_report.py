"""A report as one page of HTML that needs nothing else: no network, no script.

Files go to a temporary file as they come, as the totals, which stand first, are known last.
"""

from __future__ import annotations

import inspect
import os
import re
import shutil
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from html import escape
from itertools import zip_longest
from pathlib import Path
from string import Template
from types import TracebackType

from . import __version__
from .changes import Change, Finding, Status
from .details import Detail
from .explain import PARTS, Explanation, explanations
from .hunks import lines, word_changes
from .report import STATUSES, PageFault, Told, Totals, counted, percent, told_of
from .run import Fault, Outcome
from .settings import CPU, Settings

_CLASSES = {
    Status.MIGRATED: "migrated",
    Status.PORTABLE: "portable",
    Status.PERSON: "person",
    Status.GPU: "gpu",
}
_OPEN = 20  # files whose changes show at once; the others unfold
_TILE = Template('<li class="$kind"><b>$number</b> $label</li>')
_FILE = Template(
    '<details class="card file"$open>\n<summary>$path<span class="badge">$badge</span></summary>\n$told</details>\n'
)
_TOLD = Template(
    '<div class="told $kind"><p><a class="code" href="#$code">$code</a> <span class="soft">line $line</span> '
    "$message</p>\n$diff</div>\n"
)
_ROW = Template('<div class="row$same">$left$right</div>\n')
_CELL = Template('<div class="$kind"><span class="n">$number</span><span class="t">$text</span></div>')  # fmt: skip
_PACKAGE = Template(
    '<tr><th scope="row">$name</th> <td class="wide">$bar</td> <td class="number">$kernels</td> '
    '<td class="number">$changes</td> <td class="number">$findings</td></tr>\n'
)
_CODE = re.compile(r"`([^`]+)`")
_LABEL = re.compile(rf"^({'|'.join(PARTS)}):")


@dataclass
class _Counts:
    """What there is in one directory."""

    changes: int = 0
    findings: int = 0
    kernels: Counter[Status] = field(default_factory=Counter)

    def add(self, other: _Counts) -> None:
        self.changes += other.changes
        self.findings += other.findings
        self.kernels.update(other.kernels)


class Html:
    """A `report.Reporter` that writes a page to `path` in the end, as a context.

    Where it can't be written, each method raises `PageFault`.
    """

    def __init__(self, path: Path, mode: str, settings: Settings) -> None:
        self._path = path
        with _faults(
            path
        ):  # Opened first, so as not to do all the work in vain; what it holds stays till the end.
            self._page = path.open("a", encoding="utf-8", errors="backslashreplace", newline="\n")
            self._files = tempfile.TemporaryFile(  # noqa: SIM115 - closed in `__exit__`
                "w+", encoding="utf-8", errors="backslashreplace", newline="\n"
            )
        self._written = mode == "write"
        self._settings = settings
        self._shown = 0
        self._directories: defaultdict[str, _Counts] = defaultdict(_Counts)

    def __enter__(self) -> Html:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._files.close()
        self._page.close()

    def file(self, outcome: Outcome) -> None:
        """Keep what the page shows of one file."""
        kernels = Counter(kernel.status for kernel in outcome.kernels)
        own = _Counts(len(outcome.changes), len(outcome.findings), kernels)
        if kernels or outcome.changes or outcome.findings:
            self._directories[os.path.dirname(outcome.path)].add(own)  # noqa: PTH120
        if not (outcome.changes or outcome.findings or outcome.fault):
            return
        self._shown += 1
        detail_of = dict(zip(outcome.changes, outcome.details, strict=True))
        shown = [
            _change(told, detail_of[told]) if isinstance(told, Change) else _finding(told)
            for told in told_of(outcome)
        ]
        shown.extend(_added(outcome.changes))
        text = _FILE.substitute(
            open=" open" if self._shown <= _OPEN else "",
            path=escape(outcome.path),
            badge=_badge(outcome),
            told="".join(shown),
        )
        with _faults(self._path):
            self._files.write(text)

    def end(self, totals: Totals) -> None:
        """Write the page."""
        template = Path(__file__).with_suffix(".html").read_text(encoding="utf-8")
        head = Template(template).substitute(
            headline=self._headline(totals),
            subtitle=self._subtitle(),
            tiles="\n".join(_tiles(totals, self._written)),
            kernels=_legend(totals),
            packages=self._packages(),
        )
        with _faults(self._path):
            self._page.truncate(0)
            self._page.write(head)
            self._files.seek(0)
            shutil.copyfileobj(self._files, self._page)
            if not self._shown:
                self._page.write('<p class="card">Nothing to change, and nothing to tell.</p>\n')
            self._page.writelines(_explained(sorted(totals.codes)))
            self._page.write("</main>\n</body>\n</html>\n")
            self._page.flush()

    def _headline(self, totals: Totals) -> str:
        verb = "changed" if self._written else "to change"
        return f"{counted(totals.changes, 'argument')} {verb} in {counted(totals.changed, 'file')}"

    def _subtitle(self) -> str:
        settings = self._settings
        native = (
            "kernels run natively on TPU and are interpreted elsewhere"
            if settings.to == CPU
            else "kernels are always interpreted"
        )
        return escape(
            f"migrate-pallas {__version__}, --to={settings.to} --strategy={settings.strategy}: {native}"
        )

    def _packages(self) -> str:
        """A row for each directory below the one that all have in common."""
        if not self._directories:
            return ""
        packages: defaultdict[str, _Counts] = defaultdict(_Counts)
        common = os.path.commonpath([os.path.abspath(path) for path in self._directories])  # noqa: PTH100
        for path, counts in self._directories.items():
            packages[_package(path, common)].add(counts)
        most = max(sum(counts.kernels.values()) for counts in packages.values())
        rows = (_row(name, counts, most) for name, counts in sorted(packages.items()))
        head = _PACKAGE.substitute(
            name="Directory", bar="", kernels="Kernels", changes="Changes", findings="Findings"
        ).replace("<td", "<th").replace("</td", "</th")  # fmt: skip
        return f'<table class="packages"><thead>{head}</thead>\n<tbody>\n{"".join(rows)}</tbody></table>'


@contextmanager
def _faults(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise PageFault(f"{path}: {error.strerror}") from error


def _badge(outcome: Outcome) -> str:
    parts = [
        counted(number, noun)
        for number, noun in (
            (len(outcome.changes), "change"),
            (len(outcome.findings), "finding"),
        )
        if number
    ]
    return ", ".join([*parts, "failed"] if outcome.fault else parts)


def _tiles(totals: Totals, written: bool) -> Iterator[str]:
    of = f"of {counted(totals.files, 'file')}"
    tiles: list[tuple[str, int | str, str]] = [
        ("", totals.changed, f"{of} {'changed' if written else 'would change'}"),
        ("", totals.changes, "changes"),
        ("", totals.findings, "findings, which need a look"),
    ]
    if totals.share is not None:
        tiles.append(("", percent(totals.share), "of kernels need no help"))
    if totals.faults:
        tiles.append(("error", totals.faults, f"{of} failed"))
    for kind, number, label in tiles:
        yield _TILE.substitute(kind=kind, number=number, label=label)


def _legend(totals: Totals) -> str:
    if not totals.kernels:
        return ""
    entries = (
        f'<li><i class="{_CLASSES[status]}"></i>{totals.kernels[status]} {words}</li>'
        for status, words in STATUSES.items()
    )
    return f'<ul class="legend">{"".join(entries)}</ul>'


def _package(path: str, common: str) -> str:
    below = Path(os.path.relpath(path or ".", common)).parts[:1]
    return Path(Path(common).name, *below).as_posix()


def _row(name: str, counts: _Counts, most: int) -> str:
    own = sum(counts.kernels.values())
    bar = ""
    if own:
        spoken = ", ".join(
            f"{counts.kernels[status]} {words}"
            for status, words in STATUSES.items()
            if counts.kernels[status]
        )
        spans = "".join(
            f'<span class="{_CLASSES[status]}" style="flex: {counts.kernels[status]}"></span>'
            for status in STATUSES
            if counts.kernels[status]
        )
        bar = (
            f'<div class="bar" role="img" aria-label="{spoken}" title="{spoken}" '
            f'style="width: {100 * own / most:.1f}%">{spans}</div>'
        )
    return _PACKAGE.substitute(
        name=escape(name), bar=bar, kernels=own, changes=counts.changes, findings=counts.findings
    )


def _finding(told: Finding | Fault) -> str:
    return _told("finding" if isinstance(told, Finding) else "error", told, told.message)


def _told(kind: str, told: Told, message: str, diff: str = "") -> str:
    return _TOLD.substitute(
        kind=kind, code=told.code, line=told.line, message=_prose(message), diff=diff
    )


def _change(change: Change, detail: Detail) -> str:
    """A change, with its diff side by side."""
    number = detail.line - len(detail.above)
    rows = [_equal(number + i, number + i, line) for i, line in enumerate(detail.above)]
    old, new = lines(detail.before), lines(detail.after)
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    for tag, i, j, k, m in matcher.get_opcodes():
        if tag == "equal":
            pairs = enumerate(old[i:j])
            rows += [_equal(detail.line + i + n, detail.line + k + n, line) for n, line in pairs]
        else:
            rows += _changed(detail.line + i, old[i:j], detail.line + k, new[k:m])
    left, right = detail.line + len(old), detail.line + len(new)
    rows += [_equal(left + i, right + i, line) for i, line in enumerate(detail.below)]
    return _told("change", change, change.reason, f'<div class="diff">{"".join(rows)}</div>\n')


def _equal(left: int, right: int, line: str) -> str:
    text = escape(line.rstrip("\r\n"))
    return _ROW.substitute(
        same=" same",
        left=_CELL.substitute(kind="", number=left, text=text),
        right=_CELL.substitute(kind="", number=right, text=text),
    )


def _changed(left: int, old: Sequence[str], right: int, new: Sequence[str]) -> Iterator[str]:
    """Rows of what goes and what comes, with the words that differ marked."""
    for i, (before, after) in enumerate(zip_longest(old, new)):
        words = list(word_changes(before, after)) if before and after else []
        yield _ROW.substitute(
            same="",
            left=_side("old", left + i, before, "del", [(a, b) for a, b, _, _ in words]),
            right=_side("new", right + i, after, "ins", [(c, d) for _, _, c, d in words]),
        )


def _side(
    kind: str, number: int, line: str | None, tag: str, marks: Sequence[tuple[int, int]]
) -> str:
    if line is None:
        return _CELL.substitute(kind="none", number="", text="")
    text, done = "", 0
    for first, last in marks:
        marked = line[first:last].rstrip("\r\n")
        text += escape(line[done:first])
        text += f"<{tag}>{escape(marked)}</{tag}>" if marked else ""
        done = last
    text += escape(line[done:].rstrip("\r\n"))
    return _CELL.substitute(kind=kind, number=number, text=text)


def _added(changes: Sequence[Change]) -> Iterator[str]:
    """What the changes need besides, which is put in after the imports."""
    needs = sorted({need for change in changes for need in change.needs})
    if needs:
        texts = (need.statement or f"def {need.name}()" for need in needs)
        listed = ", ".join(f"<code>{escape(text)}</code>" for text in texts)
        yield f'<p class="told soft">With these changes the file also gets {listed}</p>\n'


def _explained(codes: Sequence[str]) -> Iterator[str]:
    if codes:
        yield "<h2>What the codes mean</h2>\n"
    for code in codes:
        one = explanations()[code]
        yield (
            f'<section class="card" id="{code}"><p><b>{code} {escape(one.name)}</b> '
            f'<span class="soft">{one.what}</span></p>\n{"".join(_paragraphs(one))}</section>\n'
        )


def _paragraphs(one: Explanation) -> Iterator[str]:
    """The text of an explanation: what is indented is code, all else prose."""
    for block in one.text.split("\n\n"):
        if block.startswith("    "):
            yield f"<pre>{escape(inspect.cleandoc(block))}</pre>\n"
        else:
            prose = _LABEL.sub(r"<b>\1:</b>", _prose(" ".join(block.split())))
            yield f"<p>{prose}</p>\n"


def _prose(text: str) -> str:
    return _CODE.sub(r"<code>\1</code>", escape(text, quote=False))
