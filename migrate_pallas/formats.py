"""Reports for programs: JSON, annotations of GitHub Actions, SARIF.

JSON and SARIF are one document, which is put out file by file as a run goes on.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from . import __version__
from .changes import Change, Finding, Status
from .details import Detail, Replacement
from .explain import Explanation, explanations, names
from .report import Put, Say, Told, Totals, told_of
from .run import Outcome

Tree = dict[str, Any]

JSON_VERSION = 1
_STATUS_WORDS = {
    Status.MIGRATED: "migrated",
    Status.PORTABLE: "portable",
    Status.PERSON: "person",
    Status.GPU: "gpu",
}
_SARIF_SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)


class Document:
    """A JSON document that is put out in pieces: a head, the items of one list, a tail."""

    def __init__(self, put: Put, head: str) -> None:
        self._put = put
        self._head = head

    def item(self, tree: Tree) -> None:
        """Put out an item of the list."""
        self._put(f"{self._head}\n{json.dumps(tree)}".encode())
        self._head = ","

    def end(self, tail: str) -> None:
        """Put out the rest, and the head where there was no item."""
        head = "" if self._head == "," else self._head
        self._put(f"{head}\n{tail}\n".encode())


class Json:
    """Our own format, version 1, which `json_report.schema.json` in this package describes."""

    def __init__(self, mode: str, put: Put) -> None:
        head = {"version": JSON_VERSION, "tool": _tool(), "mode": mode}
        self._document = Document(put, f'{json.dumps(head)[:-1]}, "files": [')
        self._changed = "changed" if mode == "write" else "would_change"
        self._names = names()

    def file(self, outcome: Outcome) -> None:
        """Put out the file, if there is something to tell of it."""
        if not (outcome.changes or outcome.findings or outcome.kernels or outcome.fault):
            return
        fault = outcome.fault
        status = "failed" if fault else self._changed if outcome.diff else "unchanged"
        self._document.item(
            {
                "path": outcome.path,
                "status": status,
                "changes": [self._change(*pair) for pair in paired(outcome)],
                "findings": [self._told(told, told.message) for told in outcome.findings],
                "error": self._told(fault, fault.message) if fault else None,
                "kernels": [
                    {
                        "line": kernel.line,
                        "column": kernel.column + 1,
                        "target": kernel.target,
                        "status": _STATUS_WORDS[kernel.status],
                    }
                    for kernel in outcome.kernels
                ],
                "diff": outcome.diff.decode(outcome.encoding, "backslashreplace"),
            }
        )

    def _change(self, change: Change, detail: Detail) -> Tree:
        return {
            **self._told(change, change.reason),
            "first_line": detail.line,
            "before": detail.before,
            "after": detail.after,
        }

    def _told(self, told: Told, message: str) -> Tree:
        return {
            "code": told.code,
            "name": self._names[told.code],
            "line": told.line,
            "column": max(told.column, 0) + 1,
            "message": message,
        }

    def end(self, totals: Totals) -> None:
        """Put out the totals."""
        counts = {
            "files": totals.files,
            "files_changed": totals.changed,
            "changes": totals.changes,
            "findings": totals.findings,
            "errors": totals.faults,
            "codes": dict(sorted(totals.codes.items())),
            "kernels": {word: totals.kernels[status] for status, word in _STATUS_WORDS.items()},
        }
        self._document.end(f'], "totals": {json.dumps(counts)}}}')


def paired(outcome: Outcome) -> Iterator[tuple[Change, Detail]]:
    """The changes of a file, each with its text."""
    return zip(outcome.changes, outcome.details, strict=True)


class Github:
    """Workflow commands of GitHub Actions, which show in the files that a pull request changes.

    The runner obeys them on stderr as on stdout (actions/runner, ScriptHandler.cs, which gives both streams to an
    OutputManager), so that they go where all other messages go, and a diff stays clean.
    """

    def __init__(self, mode: str, put: Put, say: Say) -> None:
        self._diff = put if mode == "diff" else None
        self._change = "notice" if mode == "write" else "warning"
        self._say = say
        self._names = names()

    def file(self, outcome: Outcome) -> None:
        """Say each change, finding and fault of the file, in the order of its lines."""
        if self._diff:
            self._diff(outcome.diff)
        for told in told_of(outcome):
            self._say(self._annotation(outcome.path, told))

    def _annotation(self, path: str, told: Told) -> str:
        if isinstance(told, Change):
            level, message = self._change, told.reason
        else:
            level = "warning" if isinstance(told, Finding) else "error"
            message = told.message
        properties = {
            "file": _in_workspace(path),
            "line": str(told.line),
            "col": str(told.column + 1),
            "title": f"{told.code} {self._names[told.code]}",
        }
        listed = ",".join(f"{key}={_escaped(value, ':,')}" for key, value in properties.items())
        return f"::{level} {listed}::{_escaped(message)}"

    def end(self, totals: Totals) -> None:
        """Nothing more: annotations stand for themselves."""


def _escaped(text: str, also: str = "") -> str:
    """`text` as the runner reads it back (actions/toolkit, packages/core/src/command.ts)."""
    for character in f"%\r\n{also}":
        text = text.replace(character, f"%{ord(character):02X}")
    return text


def _in_workspace(path: str) -> str:
    """`path` relative to the checkout, where that is known and holds it."""
    workspace = os.environ.get("GITHUB_WORKSPACE")
    relative = os.path.relpath(path, workspace) if workspace else path
    return path if relative.startswith(os.pardir) else relative.replace(os.sep, "/")


class Sarif:
    """SARIF 2.1.0 (OASIS), for code scanning and editors.

    A result is something left to do: of a file that was written its changes are none any more.
    """

    def __init__(self, mode: str, put: Put) -> None:
        self._tells_changes = mode != "write"
        self._codes = {code: index for index, code in enumerate(explanations())}
        driver = {
            **_tool(),
            "rules": [_descriptor(one) for one in explanations().values()],
        }
        run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints"}
        run["newlineSequences"] = ["\r\n", "\n", "\r"]
        head = json.dumps({"$schema": _SARIF_SCHEMA, "version": "2.1.0"})[:-1]
        self._document = Document(put, f'{head}, "runs": [{json.dumps(run)[:-1]}, "results": [')

    def file(self, outcome: Outcome) -> None:
        """Put out a result for each change, finding and fault of the file."""
        location = _artifact(outcome.path)
        if self._tells_changes:
            for change, detail in paired(outcome):
                result = self._result("warning", location, change, change.reason)
                result["fixes"] = [_fix(location, change, detail)]
                self._document.item(result)
        for finding in outcome.findings:
            self._document.item(self._result("warning", location, finding, finding.message))
        if outcome.fault:
            fault = outcome.fault
            self._document.item(self._result("error", location, fault, fault.message))

    def _result(self, level: str, location: Tree, told: Told, message: str) -> Tree:
        region = {"startLine": told.line, "startColumn": max(told.column, 0) + 1}
        return {
            "ruleId": told.code,
            "ruleIndex": self._codes[told.code],
            "level": level,
            "message": {"text": message},
            "locations": [{"physicalLocation": {"artifactLocation": location, "region": region}}],
        }

    def end(self, totals: Totals) -> None:
        """Put out whether the run succeeded."""
        invocation = {"executionSuccessful": not totals.faults}
        self._document.end(f'], "invocations": [{json.dumps(invocation)}]}}]}}')


def _tool() -> Tree:
    return {"name": "migrate-pallas", "version": __version__}


def _descriptor(one: Explanation) -> Tree:
    return {
        "id": one.code,
        "name": one.name,
        "shortDescription": {"text": one.summary},
        "fullDescription": {"text": one.parts["What it does"]},
        "help": {"text": one.text},
        "defaultConfiguration": {"level": "error" if one.what == "fault" else "warning"},
    }


def _artifact(path: str) -> Tree:
    """Where a file is: relative to the working directory, or, if it lies outside of it, absolute."""
    parts = path.replace(os.sep, "/").split("/")
    if os.pardir in parts or os.path.isabs(path):  # noqa: PTH117
        return {"uri": f"file://{quote(os.fsencode(Path(path).resolve().as_posix()))}"}
    return {"uri": quote(os.fsencode("/".join(parts))), "uriBaseId": "%SRCROOT%"}


def _fix(location: Tree, change: Change, detail: Detail) -> Tree:
    replacements = [_replacement(replacement) for replacement in detail.replacements]
    return {
        "description": {"text": change.reason},
        "artifactChanges": [{"artifactLocation": location, "replacements": replacements}],
    }


def _replacement(replacement: Replacement) -> Tree:
    (line, column), (end_line, end_column) = replacement.start, replacement.end
    region = {
        "startLine": line,
        "startColumn": column,
        "endLine": end_line,
        "endColumn": end_column,
    }
    return {"deletedRegion": region, "insertedContent": {"text": replacement.text}}


def reporter(form: str, mode: str, put: Put, say: Say) -> Json | Github | Sarif:
    """The reporter of the format `form` for a run that does `mode`."""
    made: dict[str, Callable[[], Json | Github | Sarif]] = {
        "json": lambda: Json(mode, put),
        "github": lambda: Github(mode, put, say),
        "sarif": lambda: Sarif(mode, put),
    }
    return made[form]()
