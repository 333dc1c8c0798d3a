"""From the options of a run to the reporters that tell of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from .report import Put, Reporter, Say, Text, wants_colour
from .screens import Paint
from .settings import GITHUB, TEXT, Settings


@dataclass(frozen=True)
class Output:
    """How a run tells what it did.

    `mode` is what it does: diff, write or check; of source from stdin it puts out the result, unless `mode` is diff or
    check. `form` is the format, `colour` the choice of --color, `page` the file that gets a page of HTML. `strict`
    tells that findings count as something left to do.
    """

    mode: str
    from_stdin: bool = False
    form: str = TEXT
    colour: str = "auto"
    statistics: bool = False
    page: str | None = None
    strict: bool = False

    @property
    def detailed(self) -> bool:
        """Whether some reporter shows the text of changes."""
        return self.form not in (TEXT, GITHUB) or self.page is not None


@contextmanager
def reporters(output: Output, settings: Settings, put: Put, say: Say) -> Iterator[list[Reporter]]:
    """Those that `output` asks for. Raises `PageFault` where the page can't be written."""
    with ExitStack() as stack:
        made: list[Reporter] = [_reporter(output, put, say)]
        if output.page is not None:
            from .html_report import Html  # Not at the top: most runs need neither it nor formats.

            mode = _effective(output)
            made.append(stack.enter_context(Html(Path(output.page), mode, settings)))
        yield made


def _reporter(output: Output, put: Put, say: Say) -> Reporter:
    if output.form == TEXT:
        paint, paint_out = (
            Paint(wants_colour(output.colour, stream)) for stream in (sys.stderr, sys.stdout)
        )
        return Text(output.mode, output.from_stdin, put, say, paint, paint_out)
    from .formats import reporter

    return reporter(output.form, _effective(output), put, say)


def _effective(output: Output) -> str:
    """What the run does to files: to source from stdin nothing."""
    return "diff" if output.from_stdin and output.mode != "check" else output.mode
