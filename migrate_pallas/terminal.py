"""The terminal: keys are read one by one, the editor gets it for a while, and signals wait their turn."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import sys
from collections.abc import Iterator, Sequence
from types import FrameType, TracebackType
from typing import Any

import click

from .changes import Change
from .pipeline import Examined
from .screens import BLUE, BOLD, Paint, additions_screen, change_screen, visible

try:
    import termios
    import tty
except ImportError:  # Windows has lines only
    termios = None  # type: ignore[assignment]

# A key: a whole escape sequence of an arrow or function key (ECMA-48), or a whole UTF-8 character.
_KEY = re.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|O[^\x1b]|[^\[O])|[\xc0-\xff][\x80-\xbf]*|[^\x1b]", re.DOTALL
)
_REST_OF_SEQUENCE = 0.05  # seconds in which the rest of an escape sequence comes, if it comes
_END_OF_INPUT = b"\x04"  # Ctrl-D, which is a key like others where keys are read one by one
_STOPPING = ("SIGINT", "SIGTERM", "SIGHUP")


class EditorFailed(Exception):
    """The editor could not be run, ended with an error, or left no text."""


def _wants_colour() -> bool:
    """Whether nobody has asked for none (https://no-color.org), and terminfo knows the terminal to have some."""
    if os.environ.get("NO_COLOR") or _is_dumb():
        return False
    try:
        import curses
    except ImportError:
        return True
    try:
        curses.setupterm(fd=sys.stdout.fileno())
    except curses.error:  # not in the database, which small systems lack: as git does, trust it
        return True
    return curses.tigetnum("colors") >= 8


def _is_dumb() -> bool:
    return os.environ.get("TERM", "dumb") == "dumb"


class Terminal:
    """The user's terminal, as a context: on the way out it is as it was.

    A signal to stop is heeded where a key is waited for, or where `check` is called, so that nothing stops half done;
    a second one is heeded at once.
    """

    def __init__(self, coloured: bool | None = None) -> None:
        """`coloured` tells whether to use colours; with None it depends."""
        self._paint = Paint(_wants_colour() if coloured is None else coloured)
        self._input = sys.stdin.fileno()
        self._output = sys.stdout.fileno()
        self._errors = sys.stderr.fileno() if sys.stderr else None
        self._usual: list[Any] | None = None
        self._signals: dict[signal.Signals, Any] = {}
        self._typed = b""
        self._prompt = ""
        self._waiting = False
        self._stopped = False

    def __enter__(self) -> Terminal:
        if termios and not _is_dumb():
            with contextlib.suppress(termios.error):
                self._usual = termios.tcgetattr(self._input)
        self._read_keys()
        for name in _STOPPING:
            self._on(name, self._stop)
        self._on("SIGCONT", self._resume)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._read_lines()
        for number, usual in self._signals.items():
            signal.signal(number, usual)

    def _on(self, name: str, do: Any) -> None:
        number = getattr(signal, name, None)
        if number is None or signal.getsignal(number) in (signal.SIG_IGN, None):  # as under nohup
            return
        self._signals[number] = signal.signal(number, do)

    def _read_keys(self) -> None:
        if self._usual is not None:
            with contextlib.suppress(termios.error):
                tty.setcbreak(self._input, termios.TCSADRAIN)

    def _read_lines(self) -> None:
        if self._usual is not None:
            with contextlib.suppress(termios.error):  # the terminal may have gone
                termios.tcsetattr(self._input, termios.TCSADRAIN, self._usual)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        again, self._stopped = self._stopped, True
        if self._waiting or again:
            raise KeyboardInterrupt

    def _resume(self, number: int, frame: FrameType | None) -> None:
        """After Ctrl-Z the shell has reset the terminal, and has written over our question."""
        if self._waiting:
            self._read_keys()
            self._show(self._prompt)

    def check(self) -> None:
        """Raise KeyboardInterrupt if a signal has come since a key was last waited for."""
        if self._stopped:
            raise KeyboardInterrupt

    def change(self, name: str, examined: Examined, change: Change) -> None:
        """Show `change` of the file `name`."""
        self._show(change_screen(name, examined, change, self._paint))

    def additions(self, name: str, examined: Examined, accepted: Sequence[Change]) -> None:
        """Show what `accepted` bring with them."""
        self._show(additions_screen(name, examined, accepted, self._paint))

    def hint(self, text: str) -> None:
        """Show a line, or lines, that answer what the user did."""
        self._show("".join(f"{visible(line)}\n" for line in text.splitlines()))

    def report(self, line: str) -> None:
        """Put a line on stderr."""
        if self._errors is not None:
            with contextlib.suppress(OSError):  # it may be the terminal that has gone
                _send(self._errors, f"{visible(line)}\n", "utf-8")

    def key(self, prompt: str) -> str:
        """Ask, and return the key pressed: a character, or "" for what is none.

        Raises KeyboardInterrupt on Ctrl-C, and EOFError where no more keys will come.
        """
        self._prompt = self._paint(prompt, BOLD, BLUE)
        self._waiting = True
        try:
            self._show(self._prompt)
            self.check()
            pressed = self._read_key()
        except OSError as error:
            raise EOFError from error
        except KeyboardInterrupt:
            with contextlib.suppress(EOFError):
                self._show("\n")
            raise
        finally:
            self._waiting = False
        if self._usual is not None:
            self._show(f"{visible(pressed)}\n")
        return pressed

    def _read_key(self) -> str:
        raw = self._next_key() if self._usual is not None else self._next_line()
        if raw in (b"", _END_OF_INPUT):
            raise EOFError
        text = raw.decode("utf-8", "replace")
        return text if len(text) == 1 and text.isprintable() else ""

    def _next_key(self) -> bytes:
        """The next key but Enter, which the habit of line input adds to an answer; b"" at the end."""
        while True:
            found = _KEY.match(self._typed)
            if found is None:
                begun = bool(self._typed)
                if begun and not select.select([self._input], [], [], _REST_OF_SEQUENCE)[0]:
                    key, self._typed = self._typed, b""
                    return key
                more = os.read(self._input, 1024)
                if not more:
                    return b""
                self._typed += more
                continue
            self._typed = self._typed[found.end() :]
            if found.group() not in (b"\r", b"\n"):
                return found.group()

    def _next_line(self) -> bytes:
        """The next line, without the spaces around it; b" " for an empty one, b"" at the end."""
        while b"\n" not in self._typed:
            more = os.read(self._input, 1024)
            if not more:
                return b""
            self._typed += more
        line, _, self._typed = self._typed.partition(b"\n")
        return line.strip() or b" "

    def edit(self, text: str) -> str | None:
        """Let the user edit `text` in $VISUAL or $EDITOR; None where it was not saved. Raises EditorFailed."""
        self._read_lines()
        try:
            with self._interrupts_are_the_editors():
                return click.edit(text, extension=".py")
        except click.ClickException as error:
            raise EditorFailed(error.format_message()) from error
        except (OSError, ValueError) as error:
            raise EditorFailed(str(error)) from error
        finally:
            self._read_keys()

    @contextlib.contextmanager
    def _interrupts_are_the_editors(self) -> Iterator[None]:
        """Ctrl-C reaches every process of the terminal; in an editor it is a key like others."""
        usual = signal.signal(signal.SIGINT, lambda number, frame: None)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, usual)

    def _show(self, text: str) -> None:
        try:
            _send(self._output, text, sys.stdout.encoding or "utf-8")
        except OSError as error:
            raise EOFError from error


def _send(descriptor: int, text: str, encoding: str) -> None:
    """Write past Python's buffers: what can't be written must not wait there for the program's end."""
    raw = text.encode(encoding, "backslashreplace")
    while raw:
        raw = raw[os.write(descriptor, raw) :]
