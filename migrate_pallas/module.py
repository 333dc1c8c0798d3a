"""One parsed source file as rules see it: its text and tree, services to ask, and where changes are recorded."""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any

from fissix.pytree import Leaf, Node

from .backends import Backends
from .calls import Call, Tree, call_at, first_leaf, last_leaf, start
from .changes import Change, Finding, Kernel, Need, Status
from .edits import Edits
from .gates import Gate
from .kinds import Kinds
from .mentions import Mentions
from .names import Names
from .parts import Parted
from .settings import Settings
from .targets import Functions, Site, site_of

_SKIP = re.compile(r"#\s*migrate-pallas:\s*skip(?P<file>-file)?\s*(?:$|[#\r\n])", re.MULTILINE)


class Module:
    """One source file. Rules ask it what a call is, and tell it their changes and findings."""

    def __init__(
        self, text: str, tree: Parted, settings: Settings, running: frozenset[str] | None = None
    ) -> None:
        """`tree` is that of `text`, in parts; `running` the codes whose rules run (None: the selected)."""
        self.text = text
        self.tree = tree
        self.settings = settings
        self.running = running
        self.changes: dict[int, Change] = {}
        self.findings: set[Finding] = set()
        self.kernels: dict[int, Kernel] = {}
        self.memo: dict[object, Any] = {}  # what is worked out once, by who does it
        self._sites: dict[int, Site | None] = {}
        self._groups: dict[tuple[str, int], tuple[Tree, str, str, int]] = {}

    @cached_property
    def names(self) -> Names:
        """What the names of the module refer to."""
        return Names(self.tree, dict(self.settings.wrappers))

    @cached_property
    def mentions(self) -> Mentions:
        """In which parts of the module something may be named."""
        return Mentions(self.tree, dict(self.settings.wrappers), lambda: self.names)

    @cached_property
    def functions(self) -> Functions:
        """Which functions run when one does."""
        return Functions(self.names)

    @cached_property
    def backends(self) -> Backends:
        """What expressions say of the platform."""
        return Backends(self.names, self.settings.gate)

    @cached_property
    def kinds(self) -> Kinds:
        """For which hardware sites are written."""
        return Kinds(self.names, self.functions, self.mentions)

    @cached_property
    def gate(self) -> Gate:
        """The module's gate."""
        return Gate(self.names, self.backends, self.settings)

    def site(self, call: Call) -> Site | None:
        """The site that `call` is; None where it hands nothing to a target or a comment says to skip it."""
        key = id(call.trailer)
        if key not in self._sites:
            kept = self.call_at(call.trailer)
            self._sites[key] = site_of(kept, self.names) if kept else None
        return self._sites[key]

    def call_at(self, trailer: Node) -> Call | None:
        """The call whose arguments `trailer` holds; None where it is none or a comment says to skip it."""
        call = call_at(trailer)
        return None if call is None or self.is_skipped(call.power, call.trailer) else call

    def is_skipped(self, first: Tree, last: Tree | None = None) -> bool:
        """Whether a comment says to skip what stands on the lines from `first` to `last` (or of `first` alone)."""
        lines = range(
            first_leaf(first).lineno, last_leaf(first if last is None else last).lineno + 1
        )
        return any(line in self._skipped for line in lines)

    def is_guarded(self, node: Tree) -> bool:
        """Whether backend tests or a `try` with a fallback keep `node` from harm where there is no TPU."""
        return self.backends.unreached(node) or self.backends.has_fallback(node)

    def site_at(self, trailer: Node) -> Site | None:
        """The site whose arguments `trailer` holds, or None."""
        call = call_at(trailer)
        return self.site(call) if call else None

    @cached_property
    def skips_file(self) -> bool:
        """Whether a comment `# migrate-pallas: skip-file` stands in the file."""
        return any(is_file for _, is_file in self._skip_comments)

    @cached_property
    def _skipped(self) -> frozenset[int]:
        return frozenset(line for line, is_file in self._skip_comments if not is_file)

    @cached_property
    def _skip_comments(self) -> list[tuple[int, bool]]:
        """The line of every skip comment, and whether it is for the file."""
        if "migrate-pallas" not in self.text:
            return []
        found = []
        for leaf in self.tree.leaves():
            for comment in _SKIP.finditer(leaf.prefix):
                below = re.findall(r"\r\n|\r|\n", leaf.prefix[comment.start() :])
                found.append((leaf.lineno - len(below), bool(comment["file"])))
        return found

    def propose(
        self, code: str, node: Tree, reason: str, edits: Edits, needs: frozenset[Need] = frozenset()
    ) -> None:
        """Record a change of the argument or entry `node`, if changes of that code were asked for.

        Two rules' edits of one value make one change.
        """
        if not self.settings.runs(code):
            return
        leaf = first_leaf(node)
        old = self.changes.get(leaf.start)
        if old is not None and old.code != code:
            reason = f"{old.reason}; {reason}"
            edits, needs, code = old.edits + edits, old.needs | needs, min(old.code, code)
        self.changes[leaf.start] = Change(
            code, leaf.lineno, leaf.column, leaf.start, reason, edits, needs
        )

    def judge(self, site: Site, status: Status) -> None:
        """Record what became of the entry point `site`; the gravest of what is recorded counts."""
        power = site.call.power
        leaf = first_leaf(power)
        old = self.kernels.get(leaf.start)
        if old is None or old.status < status:
            self.kernels[leaf.start] = Kernel(leaf.lineno, leaf.column, site.target, status)

    def considers(self, code: str) -> bool:
        """Whether the rule `code` runs: it is selected, or tells a finding that is."""
        return self.settings.runs(code) if self.running is None else code in self.running

    def find_at_import(self, node: Tree, what: str) -> None:
        """Record that `what` needs a gate in code that runs at import."""
        advice = "Move it into a function, or pass --gate-at-import"
        self.find(
            "MP208",
            node,
            f"{what} needs a gate, in code that runs at import, where a gate would start the backend. {advice}",
        )

    def find_once(self, code: str, group: int, node: Tree, message: str, others: str) -> None:
        """Record the first finding of `code` in `group`; more of them are only counted in its message."""
        if self.settings.runs(code):
            first, told, _, count = self._groups.get((code, group), (node, message, others, 0))
            if start(node) < start(first):
                first, told = node, message
            self._groups[code, group] = (first, told, others, count + 1)

    def all_findings(self) -> list[Finding]:
        """The findings, in order."""
        for (code, _), (node, message, others, count) in self._groups.items():
            more = f" ({count - 1} more {others})" if count > 1 else ""
            self.find(code, node, message + more)
        return sorted(self.findings)

    def find(self, code: str, node: Tree, message: str) -> None:
        """Record a finding at `node`, if findings of that code were asked for."""
        if self.settings.runs(code):
            leaf: Leaf = first_leaf(node)
            self.findings.add(Finding(leaf.lineno, leaf.column, code, message))
