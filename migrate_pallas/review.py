"""The review: each change is asked about, in file order, and what was accepted is written.

Answers are given in order, so those of a file are the first of its changes, and undoing means forgetting the last. A
file that is done waits to be written until the next answer is in, so that `u` can reach back to it.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from .changes import Change, Need
from .edits import Edit, apply, newline_of
from .files import FileFault, Source, encode, read, write
from .hunks import clash, lines, moved, touched, word_changes
from .parsing import SyntaxFault
from .pipeline import Examined, Unsound, examine, migrated, proven
from .report import tell
from .run import Fault, Outcome, described, fault_of, shown
from .screens import HELP
from .sessions import Kept, Key, Session, Standing, Verdict, keys
from .settings import Settings
from .terminal import EditorFailed

KEYS = "y,n,a,d,A,q,e,u,?"


class Screen(Protocol):
    """Who is asked. `Terminal` has what each of these means."""

    def check(self) -> None: ...
    def change(self, name: str, examined: Examined, change: Change) -> None: ...
    def additions(self, name: str, examined: Examined, accepted: Sequence[Change]) -> None: ...
    def hint(self, text: str) -> None: ...
    def report(self, line: str) -> None: ...
    def key(self, prompt: str) -> str: ...
    def edit(self, text: str) -> str | None: ...


@dataclass(frozen=True)
class Answer:
    """The answer to one change, and the key press it came from: 0 where none of this review did.

    `verdict` is None where there was nothing to ask, because an edit of the user's has rewritten the same words.
    """

    verdict: Verdict | None
    change: Change
    press: int


@dataclass(frozen=True)
class Rest:
    """An answer that stands for later changes: all of one file, or all of one rule."""

    verdict: Verdict
    press: int
    file: InHand | None = None
    code: str = ""


@dataclass(eq=False)
class InHand:
    """A file under review. `answers` are those of its first changes; `remembered` those of an earlier review."""

    path: Path
    source: Source
    examined: Examined
    keys: list[Key] = field(default_factory=list)
    remembered: dict[Key, Kept] = field(default_factory=dict)
    answers: list[Answer] = field(default_factory=list)
    drafts: dict[int, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The path as it is shown."""
        return shown(self.path)

    @property
    def next(self) -> Change | None:
        """The first change that has no answer."""
        given, changes = len(self.answers), self.examined.changes
        return changes[given] if given < len(changes) else None

    @property
    def accepted(self) -> list[Change]:
        """The changes to make. Where two meet, the user's own edit holds, and the later of two such."""
        return _compatible([a.change for a in self.answers if a.verdict is Verdict.ACCEPTED])

    @property
    def declined(self) -> int:
        """How many changes were declined."""
        return sum(answer.verdict is Verdict.DECLINED for answer in self.answers)


@dataclass
class Reviewed:
    """What came of a review."""

    applied: int = 0
    changed: int = 0
    declined: int = 0
    findings: int = 0
    faults: int = 0
    stopped: bool = False  # by `q`
    interrupted: bool = False

    @property
    def summary(self) -> str:
        """One line of it."""
        files = f"{self.changed} file{'' if self.changed == 1 else 's'}"
        parts = [
            f"applied {self.applied} in {files}",
            f"declined {self.declined}",
            f"findings left {self.findings}",
        ]
        if self.faults:
            parts.append(f"failed {self.faults}")
        if self.stopped or self.interrupted:
            parts.append("stopped before the end")
        return ", ".join(parts)


class Review:
    """One review of files."""

    def __init__(
        self, settings: Settings, roots: Sequence[str], screen: Screen, session: Session
    ) -> None:
        """`roots` are the paths that the user gave; `session` remembers answers."""
        self.settings = settings
        self.roots = roots
        self.screen = screen
        self.session = session
        self.result = Reviewed()
        self._presses = 1  # the first stands for what an earlier review left standing
        self._rest = [
            Rest(Verdict.ACCEPTED, 1, code=rule.code)
            for rule in session.rules
            if rule == self._standing(rule.code)
        ]
        self._done: list[InHand] = []  # all answers are in, and nothing is written yet
        self._again: deque[InHand] = deque()  # `u` has gone back before these

    def run(self, files: Iterable[Path | FileFault]) -> Reviewed:
        """Ask about every change in `files`, and write each file that has all its answers."""
        try:
            self._ask_all(files)
        except (KeyboardInterrupt, EOFError):
            self.result.interrupted = True
        self._write_done()
        self._save()
        return self.result

    def _ask_all(self, files: Iterable[Path | FileFault]) -> None:
        opened = self._opened(files)
        while True:
            self.screen.check()
            file = self._again.popleft() if self._again else next(opened, None)
            if file is None:
                self.session.rules.clear()  # they were for the rest of this review, which there is none of
                return
            self._ask_file(file)
            if self.result.stopped:
                return

    def _opened(self, files: Iterable[Path | FileFault]) -> Iterator[InHand]:
        """The files that have changes."""
        for path in files:
            self.screen.check()
            file = self._open(path)
            if file is not None:
                yield file

    def _open(self, path: Path | FileFault) -> InHand | None:
        """The file at `path` where it has changes; what is to be told of it is."""
        if isinstance(path, FileFault):
            self._fail(shown(path.path) if path.path else "", path)
            return None
        try:
            source = read(path)
            file = InHand(path, source, examine(source.text, self.settings))
            if self.session.path is not None:
                file.keys = keys(source.text, file.examined.changes)
                file.remembered = self.session.answers(path, source.raw)
        except Exception as error:
            self._fail(shown(path), error)
            return None
        findings = file.examined.findings
        self.result.findings += len(findings)
        tell(Outcome(file.name, findings=findings), self.screen.report)
        return file if file.examined.changes else None

    def _fail(self, name: str, error: Exception) -> None:
        """Tell why a file could not be done; even a bug of ours must not keep the others from being done."""
        self.result.faults += 1
        if isinstance(error, FileFault | SyntaxFault | Unsound):
            fault = fault_of(error)
        else:
            fault = Fault("MP905", f"internal error: {described(error)}; please report it")
        tell(Outcome(name, fault=fault), self.screen.report)

    # -- one file --

    def _ask_file(self, file: InHand) -> None:
        """Ask until the file has all its answers, or `q` or `u` leads out of it."""
        while (change := self._settle(file)) is not None:
            self.screen.change(file.name, file.examined, change)
            if not self._answer(file, change):
                return
        if file.accepted or any(answer.press for answer in file.answers):
            self._done.append(file)
            self.screen.additions(file.name, file.examined, file.accepted)
        else:  # nothing to write or to undo: an earlier review's answers are only counted
            self._write(file)

    def _answer(self, file: InHand, change: Change) -> bool:
        """Ask until `change` has an answer; False where the next question is not in `file`."""
        total = len(file.examined.changes)
        prompt = f"[{len(file.answers) + 1}/{total}] Apply this change [{KEYS}]? "
        while True:
            key = self.screen.key(prompt)
            match key:
                case "y" | "n":
                    verdict = Verdict.ACCEPTED if key == "y" else Verdict.DECLINED
                    self._give(file, verdict, change, self._press())
                    return True
                case "a" | "d":
                    verdict = Verdict.ACCEPTED if key == "a" else Verdict.DECLINED
                    self._rest.append(Rest(verdict, self._press(), file))
                    return True
                case "A":
                    self._rest.append(Rest(Verdict.ACCEPTED, self._press(), code=change.code))
                    self.session.rules.append(self._standing(change.code))
                    return True
                case "e":
                    edited = self._edit(file, change)
                    if edited is not None:
                        self._give(file, Verdict.ACCEPTED, edited, self._press())
                        return True
                case "u":
                    back = self._undo(file)
                    if back is not None:
                        return back is file
                    self.screen.hint("There is no answer to undo that has not been written.")
                case "q":
                    self.result.stopped = True
                    self._done.append(file)
                    self.screen.additions(file.name, file.examined, file.accepted)
                    return False
                case "?":
                    self.screen.hint(HELP)
                case _:
                    self.screen.hint(f"Answer with one of {KEYS}; ? tells what they do.")

    def _press(self) -> int:
        self._presses += 1
        return self._presses

    def _standing(self, code: str) -> Standing:
        return Standing(code, self.settings.to, self.settings.strategy)

    def _give(self, file: InHand, verdict: Verdict | None, change: Change, press: int) -> None:
        """Record an answer; once it is a new one, `u` no longer reaches the files that were done before."""
        if press:
            self._write_done()
        file.answers.append(Answer(verdict, change, press))

    def _settle(self, file: InHand) -> Change | None:
        """Give the answers that need no asking; the change to ask about, None where all have their answer."""
        while (change := file.next) is not None:
            edited = [a.change for a in file.answers if a.change.edited]
            kept = file.remembered.get(file.keys[len(file.answers)]) if file.remembered else None
            rest = next((r for r in reversed(self._rest) if self._covers(r, file, change)), None)
            if any(_meet(change, own) for own in edited):
                self._give(file, None, change, 0)
            elif kept is not None:
                self._give(file, kept.verdict, _as_kept(file, change, kept), 0)
            elif rest is not None:
                self._give(file, rest.verdict, change, rest.press)
            else:
                break
        self._remember(file)
        return change

    @staticmethod
    def _covers(rest: Rest, file: InHand, change: Change) -> bool:
        return rest.code == change.code or rest.file is file

    def _undo(self, file: InHand) -> InHand | None:
        """Take back the last answer, and what followed from it; the file to ask about again, None if there is none."""
        files = [*self._done, file]
        last = max((a.press for one in files for a in one.answers), default=0)
        if not last:
            return None
        at = next(i for i, one in enumerate(files) if any(a.press == last for a in one.answers))
        back, later = files[at], files[at + 1 :]
        del back.answers[next(i for i, a in enumerate(back.answers) if a.press == last) :]
        for one in later:
            one.answers.clear()
        undone = {rest.code for rest in self._rest if rest.press == last}
        self._rest = [rest for rest in self._rest if rest.press != last]
        self.session.rules = [rule for rule in self.session.rules if rule.code not in undone]
        if back is not file:
            del self._done[at:]
            self._again.extendleft(reversed([back, *later]))
        for one in (back, *later):
            self._remember(one)
        return back

    # -- editing --

    def _edit(self, file: InHand, change: Change) -> Change | None:
        """What the user makes of `change`; None where that is nothing that could be accepted."""
        number, text = len(file.answers), file.examined.text
        first, last = _shown_to_edit(text, change)
        proposed = apply(text[first:last], moved(change.edits, -first))
        opened = _with_newline(file.drafts.get(number, proposed), "\n")
        try:
            saved = self.screen.edit(opened)
        except EditorFailed as error:
            self.screen.hint(f"{error}: nothing is changed.")
            return None
        if (
            not saved
            or saved.isspace()
            or _with_newline(saved, "\n") == _with_newline(proposed, "\n")
        ):
            self.screen.hint(
                "The text is empty, or as proposed, or was not saved: nothing is changed."
            )
            return None
        after = file.drafts[number] = _as_in_file(saved, proposed, newline_of(text))
        edited = _edited(text, change, first, last, after)
        message = self._objection(file, edited)
        if message is not None:
            self.screen.hint(f"{message}\ne opens your text again.")
            return None
        return edited

    def _objection(self, file: InHand, edited: Change) -> str | None:
        """Why the file could not be written with `edited`, if so."""
        given = [a.change for a in file.answers if a.verdict is Verdict.ACCEPTED]
        accepted = _compatible([*given, edited])
        try:
            encode(file.source, proven(file.examined, accepted, self.settings))
        except Unsound as error:
            result = lines(migrated(file.examined, accepted))
            line = "".join(result[error.line - 1 : error.line]).strip()
            return f"That can't be written: {error}, line {error.line} of the file:\n    {line}"
        except Exception as error:
            reason = error if isinstance(error, FileFault) else described(error)
            return f"That can't be written: {reason}."
        return None

    # -- what is written --

    def _write_done(self) -> None:
        """Write the files that have all their answers."""
        done, self._done = self._done, []
        for file in done:
            self._write(file)
            self._rest = [rest for rest in self._rest if rest.file is not file]

    def _write(self, file: InHand) -> None:
        accepted = file.accepted
        self.result.declined += file.declined
        if not accepted:
            return
        try:
            result = proven(file.examined, accepted, self.settings)
            write(file.source, result, self.roots)
        except Exception as error:
            self._fail(file.name, error)
            return
        self.result.applied += len(accepted)
        self.result.changed += 1
        self.screen.report(f"changed {file.name}")
        if self.session.path is not None:
            self.session.keep(file.path, encode(file.source, result), self._left(file, accepted))

    def _remember(self, file: InHand) -> None:
        """Keep the answers given, and those of an earlier review that are not reached yet."""
        if self.session.path is None:
            return
        kept = {
            key: Kept(answer.verdict, _own_text(file, answer.change))
            for key, answer in zip(file.keys, file.answers, strict=False)
            if answer.verdict is not None
        }
        later = {key: file.remembered[key] for key in self._not_reached(file)}
        self.session.keep(file.path, file.source.raw, {**kept, **later})
        self._save()

    def _left(self, file: InHand, accepted: Sequence[Change]) -> dict[Key, Kept]:
        """The answers that hold for what is left of the file now that `accepted` are made."""
        starts = {change.start for change in accepted}
        left = [c for c in file.examined.changes if c.start not in starts]
        made = tuple(edit for change in accepted for edit in change.edits)
        new_key = dict(
            zip([c.start for c in left], keys(file.examined.text, left, made), strict=True)
        )
        old_start = dict(zip(file.keys, [c.start for c in file.examined.changes], strict=True))
        declined = [a.change.start for a in file.answers if a.verdict is Verdict.DECLINED]
        found = {new_key[start]: Kept(Verdict.DECLINED) for start in declined}
        for key in self._not_reached(file):
            kept = file.remembered[key]
            if kept.verdict is Verdict.DECLINED:
                start = old_start.get(key)
                found[key if start is None else new_key[start]] = kept
        return found

    def _not_reached(self, file: InHand) -> Iterator[Key]:
        """The keys of an earlier review's answers to changes that are still to come, or are not looked for now."""
        coming = set(file.keys[len(file.answers) :])
        for key in file.remembered:
            if key in coming or not self.settings.runs(key.code):
                yield key

    def _save(self) -> None:
        try:
            self.session.save()
        except OSError as error:
            self.result.faults += 1
            reason = error.strerror or error
            self.screen.report(f"{self.session.path}: answers can't be kept any longer: {reason}")
            self.session.path = None


def _meet(one: Change, other: Change) -> bool:
    """Whether the two changes can't both be made."""
    return any(clash(a, b) for a in one.edits for b in other.edits)


def _compatible(changes: Sequence[Change]) -> list[Change]:
    own: list[Change] = []
    for change in reversed(changes):
        if change.edited and not any(_meet(change, other) for other in own):
            own.append(change)
    proposed = [c for c in changes if not c.edited and not any(_meet(c, other) for other in own)]
    return sorted([*proposed, *own], key=lambda change: change.start)


# -- the user's own text --


def _shown_to_edit(text: str, change: Change) -> tuple[int, int]:
    """The lines that `change` touches; where nothing is left of them, one more on each side, to show the place."""
    first, last = touched(text, change.edits)
    if not apply(text[first:last], moved(change.edits, -first)).strip():
        before, after = lines(text[:first])[-1:], lines(text[last:])[:1]
        return first - len("".join(before)), last + len("".join(after))
    return first, last


def _with_newline(text: str, newline: str) -> str:
    """`text` with that line ending, also at its end."""
    return "".join(line.rstrip("\r\n") + newline for line in lines(text))


def _as_in_file(saved: str, proposed: str, newline: str) -> str:
    """What came from the editor, with the line endings of the file, and at its end one only if `proposed` has one."""
    after = _with_newline(saved, newline)
    return after if proposed.endswith(("\r", "\n")) else after.removesuffix(newline)


def _edited(text: str, change: Change, first: int, last: int, after: str) -> Change:
    """`change`, but so that the source between `first` and `last` becomes `after`."""
    spans = word_changes(text[first:last], after)
    edits = tuple(Edit(first + a, first + b, after[c:d]) for a, b, c, d in spans)
    return replace(change, edits=edits, needs=_still_needed(change.needs, after), edited=True)


def _still_needed(needs: frozenset[Need], text: str) -> frozenset[Need]:
    """Those of `needs` whose names `text` has, and `jax` where the gate is one of them."""
    words = set(re.findall(r"\w+", text))
    gated = any(need.name in words and not need.statement for need in needs)
    return frozenset(
        need
        for need in needs
        if need.name in words or (gated and need.statement.startswith("import jax"))
    )


def _own_text(file: InHand, change: Change) -> str | None:
    """What the lines of `change` became where the user edited them."""
    if not change.edited:
        return None
    text = file.examined.text
    proposed = next(c for c in file.examined.changes if c.start == change.start)
    first, last = _shown_to_edit(text, proposed)
    return apply(text[first:last], moved(change.edits, -first))


def _as_kept(file: InHand, change: Change, kept: Kept) -> Change:
    """`change` as it was accepted in an earlier review."""
    if kept.text is None:
        return change
    text = file.examined.text
    return _edited(text, change, *_shown_to_edit(text, change), kept.text)
