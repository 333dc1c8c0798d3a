"""The command line."""

from __future__ import annotations

import difflib
import keyword
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from . import __version__, files
from .files import FileFault, discover
from .report import Totals, summary, tell
from .rules import all_rules
from .run import Task, piped, run
from .settings import CPU, GATE, INTERPRET, REMOVE, Settings

DONE, PENDING, FAILED, INTERRUPTED = 0, 1, 2, 130


def say(line: str) -> None:
    """Print a line on stderr, whatever bytes a file name in it holds."""
    click.echo(line.encode("utf-8", "surrogateescape"), err=True)


def _identifier(context: click.Context, parameter: click.Parameter, value: str) -> str:
    if not value.isidentifier() or keyword.iskeyword(value):
        raise click.BadParameter(f"{value!r} can't be the name of a function")
    return value


def _module_and_name(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> tuple[str, str] | None:
    if value is None:
        return None
    module, colon, name = value.partition(":")
    parts = (*module.lstrip(".").split("."), name)
    if not colon or not all(p.isidentifier() and not keyword.iskeyword(p) for p in parts):
        raise click.BadParameter(f"{value!r} is not MODULE:NAME, such as mylib.backend:on_tpu")
    return module, name


def _codes(
    context: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    known = [rule.code for rule in all_rules()]
    codes = [code.strip().upper() for value in values for code in value.split(",") if code.strip()]
    for code in codes:
        if not any(one.startswith(code) for one in known):
            close = difflib.get_close_matches(code, known, n=1, cutoff=0.5)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise click.BadParameter(
                f"no rule or finding has a code that begins with {code!r}{hint}"
            )
    return tuple(codes)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("paths", nargs=-1, metavar="PATH...")
@click.option(
    "--to",
    type=click.Choice([INTERPRET, CPU]),
    required=True,
    help="interpret: kernels are always interpreted, on any backend. cpu: native on TPU, interpreted elsewhere.",
)
@click.option(
    "--strategy",
    type=click.Choice([REMOVE, GATE]),
    help="remove drops the TPU path, gate keeps it behind the gate. Default: remove for interpret, gate for cpu.",
)
@click.option(
    "--gate", default=None, metavar="NAME", help="The function a gate calls. Default: on_tpu."
)
@click.option(
    "--gate-import",
    callback=_module_and_name,
    metavar="MODULE:NAME",
    help="Import the gate instead of defining it in each file.",
)
@click.option(
    "--gate-at-import", is_flag=True, help="Also write gates in code that runs at import."
)
@click.option(
    "--select", multiple=True, callback=_codes, metavar="CODES", help="Rules and findings to run."
)
@click.option(
    "--ignore",
    multiple=True,
    callback=_codes,
    metavar="CODES",
    help="Rules and findings not to run.",
)
@click.option("--write", is_flag=True, help="Apply all changes.")
@click.option("--diff", is_flag=True, help="Print a diff, write nothing. The default.")
@click.option(
    "--check", is_flag=True, help="List the files that would change; exit 1 if there are any."
)
@click.option(
    "--exclude", multiple=True, metavar="GLOB", help="Files and directories to leave out."
)
@click.option("--no-gitignore", is_flag=True, help="Take files that git ignores, too.")
@click.option(
    "--files-from",
    metavar="FILE",
    help="Read paths from FILE, one a line or NUL-separated; - is stdin.",
)
@click.option("--jobs", type=click.IntRange(min=1), help="Processes to use. Default: all cores.")
@click.version_option(__version__, prog_name="migrate-pallas")
def command(
    paths: tuple[str, ...],
    to: str,
    strategy: str | None,
    gate: str | None,
    gate_import: tuple[str, str] | None,
    gate_at_import: bool,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    write: bool,
    diff: bool,
    check: bool,
    exclude: tuple[str, ...],
    no_gitignore: bool,
    files_from: str | None,
    jobs: int | None,
) -> int:
    """Make JAX Pallas kernels written for TPU run where there is no TPU.

    PATH is a file or a directory; "-" reads source from stdin and writes the migrated source to stdout.
    """
    mode = _mode(write, diff, check)
    settings = Settings(
        to=to,
        strategy=strategy or (REMOVE if to == INTERPRET else GATE),
        gate=gate or (gate_import[1] if gate_import else Settings.gate),
        gate_import=gate_import,
        gate_at_import=gate_at_import,
        select=select,
        ignore=ignore,
    )
    given = (*paths, *_listed(files_from)) if files_from else paths
    if not given and files_from is None:
        raise click.UsageError("No PATH given: name a file, a directory, or - for stdin.")
    task = Task(settings, mode == "write", tuple(given))
    if "-" in given:
        if len(given) > 1:
            raise click.UsageError(
                "- stands for source on stdin; it can't be mixed with other paths."
            )
        return _pipe(task, mode)
    found = discover(given, exclude=exclude, gitignore=not no_gitignore)
    return _files(found, task, mode or "diff", jobs or os.cpu_count() or 1)


def _mode(write: bool, diff: bool, check: bool) -> str:
    """The one mode that was asked for; '' for none."""
    chosen = [name for name, on in (("write", write), ("diff", diff), ("check", check)) if on]
    if len(chosen) > 1:
        raise click.UsageError(f"--{chosen[0]} and --{chosen[1]} exclude each other.")
    return chosen[0] if chosen else ""


def _listed(name: str) -> list[str]:
    """The paths that a file of paths, or stdin, lists."""
    try:
        raw = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise click.UsageError(f"--files-from: {name}: {error.strerror}") from error
    return files.files_from(raw)


def _files(found: Iterator[Path | FileFault], task: Task, mode: str, jobs: int) -> int:
    totals = Totals()
    for outcome in run(found, task, jobs):
        totals.add(outcome)
        if mode == "diff":
            _to_stdout(outcome.diff)
        elif outcome.diff:
            say(f"{'changed' if mode == 'write' else 'would change'} {outcome.path}")
        tell(outcome, say)
    say(summary(totals, "changed" if mode == "write" else "would change"))
    return _status(totals, mode)


def _pipe(task: Task, mode: str) -> int:
    """Source from stdin; the migrated source, the diff or just the status comes out."""
    totals = Totals()
    outcome = piped(sys.stdin.buffer.read(), task)
    totals.add(outcome)
    if mode != "check":
        _to_stdout(outcome.diff if mode == "diff" else outcome.result)
    tell(outcome, say)
    return _status(totals, mode)


def _status(totals: Totals, mode: str) -> int:
    if totals.faults:
        return FAILED
    return PENDING if mode == "check" and totals.changed else DONE


def _to_stdout(raw: bytes) -> None:
    if raw:
        sys.stdout.buffer.write(raw)
        sys.stdout.buffer.flush()


def main() -> None:
    """Run the command line and exit with its status."""
    try:
        status = command.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        status = FAILED
    except (click.Abort, KeyboardInterrupt):
        say("interrupted: files are as they were, or wholly changed")
        status = INTERRUPTED
    except BrokenPipeError:  # the reader of our output has gone; so must Python's own flush at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 128 + 13
    sys.exit(status)
