"""The same as a LibCST codemod: `libcst_codemod.py DIRECTORY` prints each call it finds, as JSON.

It rewrites the trees, on all cores, and writes no file. Names are resolved by LibCST's own provider.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
from pathlib import Path

import libcst as cst
from libcst.codemod import CodemodContext, VisitorBasedCodemodCommand
from libcst.metadata import QualifiedNameProvider

PALLAS = ("jax.experimental.pallas.", "jax._src.pallas.")
GATE = cst.parse_expression("on_tpu()")
INTERPRET = cst.parse_expression("not on_tpu()")
EMPTY = cst.parse_expression("()")


class RunOnCPU(VisitorBasedCodemodCommand):
    """Gates the axes of `run_scoped` and the interpreter of `pallas_call`; `found` are the calls of either."""

    METADATA_DEPENDENCIES = (QualifiedNameProvider,)

    def __init__(self, context: CodemodContext) -> None:
        super().__init__(context)
        self.found: list[str] = []

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        """Rewrite the call if it is a target's."""
        if isinstance(original_node.func, cst.Call):  # to LibCST its name is that of the inner call
            return updated_node
        names = self.get_metadata(QualifiedNameProvider, original_node.func, set())
        targets = {one.name.rpartition(".")[2] for one in names if one.name.startswith(PALLAS)}
        passed = {argument.keyword.value for argument in updated_node.args if argument.keyword}
        if "pallas_call" in targets:
            self.found.append("pallas_call")
            if "interpret" not in passed:
                added = cst.Arg(INTERPRET, keyword=cst.Name("interpret"))
                return updated_node.with_changes(args=[*updated_node.args, added])
        elif "run_scoped" in targets and "collective_axes" in passed:
            self.found.append("run_scoped")
            return updated_node.with_changes(args=[gated(one) for one in updated_node.args])
        return updated_node


def gated(argument: cst.Arg) -> cst.Arg:
    """The argument, gated if it holds the axes."""
    if argument.keyword is None or argument.keyword.value != "collective_axes":
        return argument
    return argument.with_changes(value=cst.IfExp(test=GATE, body=argument.value, orelse=EMPTY))


def migrate(path: Path) -> tuple[Path, list[str]]:
    """The calls found in the file at `path`; none where LibCST can't parse it."""
    codemod = RunOnCPU(CodemodContext(filename=str(path)))
    try:
        codemod.transform_module(cst.parse_module(path.read_bytes())).bytes  # noqa: B018
    except cst.ParserSyntaxError as error:
        print(f"{path}: {error}", file=sys.stderr)
    return path, codemod.found


if __name__ == "__main__":
    with multiprocessing.Pool() as pool:
        files = sorted(Path(sys.argv[1]).rglob("*.py"))
        for path, found in pool.imap_unordered(migrate, files, chunksize=4):
            for target in found:
                print(json.dumps({"file": str(path), "ruleId": target}))
