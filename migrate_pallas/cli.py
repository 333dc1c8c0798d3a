"""The command line."""

from __future__ import annotations

import contextlib
import difflib
import keyword
import os
import signal
import sys
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from . import __version__
from .console import OutputClosed, say
from .releases import CHIPS, NEWEST, OLDEST, Release, parsed, spelled
from .settings import (
    ALWAYS,
    AUTO,
    AUTO_COLOUR,
    CPU,
    GATE,
    GENERIC,
    GITHUB,
    INTERPRET,
    JSON,
    NEVER,
    REMOVE,
    SARIF,
    SIMULATOR,
    TEXT,
    Settings,
)

FAILED, INTERRUPTED = 2, 130


def _identifier(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> str | None:
    if value is not None and (not value.isidentifier() or keyword.iskeyword(value)):
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


def _release(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> Release | None:
    try:
        return parsed(value) if value is not None else None
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _codes(
    context: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    if not values:
        return ()
    from .rules import all_rules  # Not at the top: --help must not wait for it.

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


def _wrappers(
    context: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    """Each `a.b.pallas_call`, or `a.b.launch=pallas_call`, as the paths of a function and of its target."""
    if not values:
        return ()
    from .targets import ENTRY_POINTS, SCOPED  # Not at the top: --help must not wait for it.

    pairs = []
    for value in values:
        path, _, target = value.partition("=")
        module, _, name = path.rpartition(".")
        if not module or not all(part.isidentifier() for part in path.split(".")):
            raise click.BadParameter(f"{value!r} is no dotted path, such as mylib.compat.launch")
        if (target or name) not in (*ENTRY_POINTS, *SCOPED):
            raise click.BadParameter(
                f"{value!r} does not tell what it forwards to: write {path}=TARGET, TARGET being one of "
                f"{', '.join((*ENTRY_POINTS, *SCOPED))}"
            )
        pairs.append((path, f"jax.experimental.pallas.{target or name}"))
    return tuple(pairs)


def _explain(context: click.Context, parameter: click.Parameter, code: str | None) -> None:
    """Print an explanation, or the table of all, and end; no other option is looked at."""
    if code is None or context.resilient_parsing:
        return
    from .explain import UnknownCode, explained, table

    try:
        click.echo(table() if code == _ALL_CODES else explained(code), nl=False)
    except UnknownCode as error:
        raise click.BadParameter(str(error)) from error
    context.exit()


_ALL_CODES = "*"  # what --explain alone stands for


class _Configured(click.Command):
    """A command whose options may also stand in a project's files; the command line wins."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As `click.Command` does, with the files' settings as defaults."""
        given, _, order = self.make_parser(ctx).parse_args(list(args))
        ends = any(parameter.is_eager for parameter in order)  # --help: nothing else is looked at
        path = "" if ends else self._configure(ctx, given)
        try:
            return super().parse_args(ctx, args)
        except click.BadParameter as error:
            name = (error.param.name if error.param else None) or ""
            if ctx.get_parameter_source(name) is not ParameterSource.DEFAULT_MAP:
                raise
            raise click.UsageError(f"{path}: {name.replace('_', '-')}: {error.message}") from error

    def _configure(self, ctx: click.Context, given: dict[str, Any]) -> str:
        """Take the settings from the file that has them; the path of it."""
        from .configuration import BadSettings, configuration

        try:
            paths = given.get("paths")
            found = configuration(paths if isinstance(paths, list | tuple) else ())
        except BadSettings as error:
            raise click.UsageError(str(error)) from error
        if found is None:
            return ""
        settings = {key.replace("-", "_"): value for key, value in found.values.items()}
        for one, other in (("gate", "gate_import"), ("gate_import", "gate")):
            if one in given:  # it stands for either
                settings.pop(other, None)
        ctx.default_map = settings
        return found.path


@click.command(cls=_Configured, context_settings={"help_option_names": ["-h", "--help"]})
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
    "--gate",
    callback=_identifier,
    metavar="NAME",
    help="The function a gate calls. Default: on_tpu.",
)
@click.option(
    "--gate-import",
    callback=_module_and_name,
    metavar="MODULE:NAME",
    help="Import the gate instead of defining it in each file.",
)
@click.option(
    "--gate-at-import/--no-gate-at-import",
    help="Also write gates in code that runs at import.",
)
@click.option(
    "--unguard/--no-unguard",
    help="Rewrite guards that skip tests where there is no TPU (MP207), so that the tests run.",
)
@click.option(
    "--interpreter",
    type=click.Choice([AUTO, GENERIC, SIMULATOR]),
    default=AUTO,
    help="The interpreter to write: auto chooses for each kernel, which is the default; generic is "
    "interpret=True, tpu the TPU simulator.",
)
@click.option(
    "--tpu",
    type=click.Choice(list(CHIPS)),
    default=Settings.chip,
    help="The chip whose figures stand in for those of a TPU that is not there. Default: v6e.",
)
@click.option(
    "--jax",
    callback=_release,
    metavar="VERSION",
    help="The release of JAX that the code is for: only names that it has are written, and kernels are judged by what "
    f"its interpreters do. From {spelled(OLDEST)} on. Default: the names of {spelled(NEWEST)}, and what holds in every "
    "release that was measured.",
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
@click.option(
    "--wrapper",
    "wrappers",
    multiple=True,
    callback=_wrappers,
    metavar="PATH[=TARGET]",
    help="A function of your own that forwards its arguments to an entry point, or to run_scoped: its dotted path, and "
    "the target's name if its own is another. It is treated as that target wherever it is imported by this path.",
)
@click.option(
    "--review", is_flag=True, help="Ask about each change. The default between terminals."
)
@click.option("--write", is_flag=True, help="Apply all changes.")
@click.option(
    "--diff", is_flag=True, help="Print a diff, write nothing. The default for pipes and files."
)
@click.option(
    "--check", is_flag=True, help="List the files that would change; exit 1 if there are any."
)
@click.option(
    "--exclude", multiple=True, metavar="GLOB", help="Files and directories to leave out."
)
@click.option("--no-gitignore/--gitignore", help="Take files that git ignores, too.")
@click.option(
    "--files-from",
    metavar="FILE",
    help="Read paths from FILE, one a line or NUL-separated; - is stdin.",
)
@click.option(
    "--session",
    metavar="FILE",
    help="Keep the answers of the review in FILE; one that was stopped goes on from there.",
)
@click.option("--jobs", type=click.IntRange(min=1), help="Processes to use. Default: all cores.")
@click.option(
    "--format",
    type=click.Choice([TEXT, JSON, GITHUB, SARIF]),
    default=TEXT,
    help="How results are reported: text, which is the default; json or sarif on stdout, in place of a diff or of "
    "migrated source; github, annotations for its Actions.",
)
@click.option(
    "--color",
    "colour",
    type=click.Choice([AUTO_COLOUR, ALWAYS, NEVER]),
    default=AUTO_COLOUR,
    help="Whether to use colours. Default: auto, on terminals, unless NO_COLOR is set.",
)
@click.option(
    "--statistics",
    "counts",
    is_flag=True,
    help="Count codes, and the share of kernels that need no help.",
)
@click.option(
    "--html", "page", metavar="FILE", help="Also write a report to FILE, as one page of HTML."
)
@click.option(
    "--strict/--no-strict",
    help="Under --check and --review, exit 1 also where findings are left.",
)
@click.option(
    "--explain",
    is_flag=False,
    flag_value=_ALL_CODES,
    is_eager=True,
    expose_value=False,
    callback=_explain,
    metavar="[CODE]",
    help="Tell what a rule or finding means; without a CODE, list them all.",
)
@click.version_option(__version__, prog_name="migrate-pallas")
@click.pass_context
def command(
    context: click.Context,
    paths: tuple[str, ...],
    to: str,
    strategy: str | None,
    gate: str | None,
    gate_import: tuple[str, str] | None,
    gate_at_import: bool,
    unguard: bool,
    interpreter: str,
    tpu: str,
    jax: Release | None,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    review: bool,
    write: bool,
    diff: bool,
    check: bool,
    exclude: tuple[str, ...],
    no_gitignore: bool,
    files_from: str | None,
    session: str | None,
    jobs: int | None,
    wrappers: tuple[tuple[str, str], ...],
    format: str,
    colour: str,
    counts: bool,
    page: str | None,
    strict: bool,
) -> int:
    """Make JAX Pallas kernels written for TPU run where there is no TPU.

    PATH is a file or a directory; "-" reads source from stdin and writes the migrated source to stdout.
    """
    mode = _mode(review, write, diff, check)
    if gate and gate_import and gate != gate_import[1]:
        raise click.UsageError(
            f"--gate and --gate-import name two gates: {gate} and {gate_import[1]}."
        )
    settings = Settings(
        to=to,
        strategy=strategy or (REMOVE if to == INTERPRET else GATE),
        gate=gate or (gate_import[1] if gate_import else Settings.gate),
        gate_import=gate_import,
        gate_at_import=gate_at_import,
        unguard=unguard,
        interpreter=interpreter,
        chip=tpu,
        jax=jax,
        select=select,
        ignore=ignore,
        wrappers=wrappers,
    )
    from .rules import all_rules  # Not at the top: --help must not wait for it.

    if not any(settings.runs(rule.code) for rule in all_rules()):
        raise click.UsageError("--select and --ignore leave no rule or finding to run.")
    if not paths and files_from is None:
        raise click.UsageError("No PATH given: name a file, a directory, or - for stdin.")
    asked = context.get_parameter_source("format") is ParameterSource.COMMANDLINE
    if mode == "review":
        _require_reviewable(counts or page is not None or (asked and format != TEXT))
    elif not mode and "-" not in paths:
        told = counts or page is not None or format != TEXT
        mode = "review" if _on_terminals() and not told else "diff"
    if session is not None and mode != "review":
        raise click.UsageError("--session keeps the answers of a review, and this is none.")
    from .execution import Asked, execute  # Not at the top: --help must not wait for it.
    from .reporting import Output

    if "-" in paths:
        _require_alone(mode, paths, files_from)
    given = paths if files_from is None else (*paths, *_listed(files_from))
    return execute(
        Asked(
            settings=settings,
            output=Output(mode, "-" in paths, format, colour, counts, page, strict),
            paths=None if "-" in paths else given,
            exclude=exclude,
            gitignore=not no_gitignore,
            session=session,
            jobs=jobs,
        )
    )


def _require_reviewable(told: bool) -> None:
    """Refuse a review that could not ask, or that is to be `told` of in another way than its own."""
    if not _on_terminals():
        raise click.UsageError(
            "--review asks questions, so stdin and stdout must be terminals; see --diff and --write."
        )
    if told:
        raise click.UsageError(
            "--review tells by itself what it does: --format, --statistics and --html are for the other modes."
        )


def _require_alone(mode: str, paths: tuple[str, ...], files_from: str | None) -> None:
    """Refuse source on stdin together with files or questions."""
    if mode == "review":
        raise click.UsageError("- stands for source on stdin; --review needs files.")
    if len(paths) > 1 or files_from is not None:
        raise click.UsageError("- stands for source on stdin; it can't be mixed with other paths.")


def _mode(review: bool, write: bool, diff: bool, check: bool) -> str:
    """The one mode that was asked for; '' for none."""
    modes = (("review", review), ("write", write), ("diff", diff), ("check", check))
    chosen = [name for name, on in modes if on]
    if len(chosen) > 1:
        raise click.UsageError(f"--{chosen[0]} and --{chosen[1]} exclude each other.")
    return chosen[0] if chosen else ""


def _on_terminals() -> bool:
    """Whether questions can be asked and answered; a stream that is closed is None."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))


def _listed(name: str) -> list[str]:
    """The paths that a file of paths, or stdin, lists."""
    try:
        raw = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise click.UsageError(f"--files-from: {name}: {reason}") from error
    from .files import files_from  # Not at the top: --help must not wait for it.

    return files_from(raw)


def main() -> None:
    """Run the command line and exit with its status."""
    try:
        status = command.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        status = FAILED
    except (click.Abort, KeyboardInterrupt):
        with contextlib.suppress(OutputClosed):
            say("interrupted: files are as they were, or wholly changed")
        status = INTERRUPTED
    except OutputClosed:  # and Python must not flush what is left of it when it exits
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 128 + 13
    except Exception as error:  # a bug of ours, outside of any one file
        from .run import described

        say(f"internal error: {described(error)}; please report it")
        status = FAILED
    # An interrupt from here on would only spoil the exit status.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(status)
