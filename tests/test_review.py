"""The review: the program in a pseudo-terminal, and its core with scripted answers."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import resource
import select
import signal
import subprocess
import sys
import termios
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from migrate_pallas import review as review_module
from migrate_pallas.changes import Change
from migrate_pallas.edits import Edit, apply
from migrate_pallas.hunks import excerpt, hunks, lines, touched, word_changes
from migrate_pallas.pipeline import Examined, Unsound, examine, proven
from migrate_pallas.review import Review, Reviewed
from migrate_pallas.screens import Paint, change_screen, displayed, visible, width
from migrate_pallas.sessions import Session
from migrate_pallas.settings import CPU, GATE, INTERPRET, REMOVE, Settings

ROOT = Path(__file__).parent.parent
FIXTURES = ROOT / "fixtures"
CODES = "MP101,MP102,MP204,MP208"
TO_CPU = Settings(to=CPU, strategy=GATE, select=("MP101", "MP102"))
TO_INTERPRET = Settings(to=INTERPRET, strategy=REMOVE, select=("MP101",))
PATIENCE = 60  # seconds; only a failing test waits
PROMPT = "[y,n,a,d,A,q,e,u,?]? "
_SGR = re.compile(r"\x1b\[[0-9;]*m")

HEAD = "import jax\nfrom jax.experimental import pallas as pl\n"
GATE_TEXT = '''

def on_tpu() -> bool:
    """Whether JAX runs on TPU by default: kernels take their TPU path only there."""
    return jax.default_backend() == "tpu"
'''


def module(*axes: str) -> str:
    """A module with a function, and a call with axes in it, for each of `axes`."""
    functions = (
        f"\n\ndef f_{name}(body):\n    pl.run_scoped(body, {name}, collective_axes=\"{name}\")\n"
        for name in axes
    )
    return HEAD + "".join(functions)


def without(text: str, *axes: str) -> str:
    """`text` without the axes of those names."""
    for name in axes:
        text = text.replace(f', collective_axes="{name}"', "")
    return text


class Terminal:
    """The program in a pseudo-terminal of its own, with stderr apart from the screen."""

    def __init__(
        self,
        directory: Path,
        *arguments: str,
        limit: int | None = None,
        **environment: str,
    ) -> None:
        self.screen = ""
        self._unread = ""
        self._errors = directory.parent / f"{directory.name}.stderr"
        self.master, slave = pty.openpty()
        self.before = termios.tcgetattr(self.master)
        usual = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "VISUAL", "EDITOR")}
        usual |= {"PYTHONPATH": str(ROOT), "TERM": "xterm-256color", "PYTHONUTF8": "1"}
        options = ["--select", CODES] if "--select" not in arguments else []

        def in_child() -> None:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            if limit is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        with self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "migrate_pallas", *options, *arguments],
                cwd=directory,
                env=usual | environment,
                stdin=slave,
                stdout=slave,
                stderr=errors,
                start_new_session=True,
                preexec_fn=in_child,  # noqa: PLW1509
            )
        os.close(slave)

    def read(self) -> bool:
        """Take what has come to the screen; False where no more will."""
        if not select.select([self.master], [], [], PATIENCE)[0]:
            pytest.fail(f"nothing more on the screen:\n{self.screen}{self._unread}")
        try:
            raw = os.read(self.master, 65536)
        except OSError:  # Linux says EIO once the other side is closed
            raw = b""
        self._unread += raw.decode("utf-8", "surrogateescape")
        return bool(raw)

    def asks(self) -> str:
        """What comes to the screen up to the next question, without its colours."""
        while True:
            plain = _SGR.sub("", self._unread)
            before, prompt, after = plain.partition(PROMPT)
            if prompt and not after:
                self.screen += self._unread
                self._unread = ""
                return (before + prompt).replace("\r\n", "\n")
            if not self.read():
                pytest.fail(f"ended before it asked:\n{self.screen}{self._unread}")

    def press(self, *keys: str) -> str:
        """Answer the question that stands, and every next one but the last, which is returned."""
        shown = ""
        for key in keys:
            os.write(self.master, key.encode())
            shown = self.asks()
        return shown

    def type(self, keys: str) -> None:
        """Press keys, and wait for nothing."""
        os.write(self.master, keys.encode())

    def ends(self) -> int:
        """The exit status, once there is one."""
        while self.read():
            pass
        self.screen += self._unread
        self._unread = ""
        os.close(self.master)
        return self.process.wait(PATIENCE)

    def hang_up(self) -> int:
        """Close the terminal; the exit status."""
        os.close(self.master)
        return self.process.wait(PATIENCE)

    @property
    def plain(self) -> str:
        """All that was shown, without its colours."""
        return _SGR.sub("", self.screen).replace("\r\n", "\n")

    @property
    def errors(self) -> str:
        """What went to stderr."""
        return self._errors.read_text(encoding="utf-8")

    @property
    def summary(self) -> str:
        """The last line on stderr."""
        return self.errors.splitlines()[-1]

    def close(self) -> None:
        """End the program, if a test has not waited for it to."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        with contextlib.suppress(OSError):
            os.close(self.master)


Start = Callable[..., Terminal]


@pytest.fixture
def start(repo: Path) -> Iterator[Start]:
    """Begin a review of the files in `repo`."""
    begun: list[Terminal] = []

    def begin(*arguments: str, **options: object) -> Terminal:
        if not any(argument.startswith("--to") for argument in arguments):
            arguments = ("--to=interpret", *arguments)
        begun.append(Terminal(repo, *arguments, ".", **options))  # type: ignore[arg-type]
        return begun[-1]

    yield begin
    for terminal in begun:
        terminal.close()


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A directory with a file of three changes, and one of two."""
    directory = tmp_path / "repo"
    directory.mkdir()
    (directory / "one.py").write_text(ONE)
    (directory / "two.py").write_text(TWO)
    return directory


ONE, TWO = module("a", "b", "c"), module("d", "e")


def files(repo: Path) -> tuple[str, str]:
    return (repo / "one.py").read_text(), (repo / "two.py").read_text()


# -- the keys --


def test_review_is_what_happens_between_terminals(repo: Path, start: Start) -> None:
    terminal = start()
    assert "[1/3] Apply this change" in terminal.asks()
    assert "[2/3]" in terminal.press("y")
    assert "[3/3]" in terminal.press("n")
    assert "[1/2]" in terminal.press("y")
    assert "[2/2]" in terminal.press("n")
    terminal.type("y")
    assert terminal.ends() == 1
    assert files(repo) == (without(ONE, "a", "c"), without(TWO, "e"))
    assert terminal.summary == "applied 3 in 2 files, declined 2, findings left 0"


def test_a_question_names_place_code_reason_and_diff(start: Start) -> None:
    terminal = start("--review")
    assert terminal.asks() == (
        "\n"
        "one.py:6:28: MP101 run_scoped has collective axes in Mosaic GPU kernels only: argument removed\n"
        "@@ -5,5 +5,5 @@\n"
        " def f_a(body):\n"
        '-    pl.run_scoped(body, a, collective_axes="a")\n'
        "+    pl.run_scoped(body, a)\n"
        " \n"
        " \n"
        " def f_b(body):\n"
        f"[1/3] Apply this change {PROMPT}"
    )


def test_y_to_all_ends_with_success(repo: Path, start: Start) -> None:
    terminal = start()
    terminal.asks()
    terminal.press("y", "y", "y", "y")
    terminal.type("y")
    assert terminal.ends() == 0
    assert files(repo) == (without(ONE, "a", "b", "c"), without(TWO, "d", "e"))
    assert terminal.errors.splitlines() == [
        "changed one.py",
        "changed two.py",
        "applied 5 in 2 files, declined 0, findings left 0",
    ]


def test_a_takes_this_and_all_later_ones_of_the_file(repo: Path, start: Start) -> None:
    terminal = start()
    terminal.asks()
    assert "[1/2]" in terminal.press("n", "a")
    terminal.type("d")
    assert terminal.ends() == 1
    assert files(repo) == (without(ONE, "b", "c"), TWO)
    assert terminal.summary == "applied 2 in 1 file, declined 3, findings left 0"


def test_d_leaves_this_and_all_later_ones_of_the_file(repo: Path, start: Start) -> None:
    terminal = start()
    terminal.asks()
    assert "[1/2]" in terminal.press("y", "d")
    terminal.type("a")
    assert terminal.ends() == 1
    assert files(repo) == (without(ONE, "a"), without(TWO, "d", "e"))


def test_capital_a_takes_all_later_ones_of_the_rule_and_of_no_other(
    repo: Path, start: Start
) -> None:
    none = "\n\ndef g(body):\n    pl.run_scoped(body, collective_axes=None)\n"
    (repo / "one.py").write_text(ONE + none)
    (repo / "two.py").write_text(TWO + none)
    terminal = start("--to=cpu")
    terminal.asks()
    shown = terminal.press("n", "A")
    assert "[4/4]" in shown and " MP102 " in shown
    assert "[3/3]" in terminal.press("n")
    terminal.type("y")
    assert terminal.ends() == 1
    one, two = files(repo)
    assert [line for line in one.splitlines() if "collective_axes" in line] == [
        '    pl.run_scoped(body, a, collective_axes="a")',
        '    pl.run_scoped(body, b, collective_axes="b" if on_tpu() else ())',
        '    pl.run_scoped(body, c, collective_axes="c" if on_tpu() else ())',
        "    pl.run_scoped(body, collective_axes=None)",
    ]
    assert [line for line in two.splitlines() if "collective_axes" in line] == [
        '    pl.run_scoped(body, d, collective_axes="d" if on_tpu() else ())',
        '    pl.run_scoped(body, e, collective_axes="e" if on_tpu() else ())',
        "    pl.run_scoped(body, collective_axes=())",
    ]


def test_d_after_capital_a_holds_for_the_rest_of_the_file(repo: Path, start: Start) -> None:
    none = "\n\ndef g(body):\n    pl.run_scoped(body, collective_axes=None)\n"
    (repo / "one.py").write_text(module("a") + none + module("b").removeprefix(HEAD))
    terminal = start("--to=cpu")
    terminal.asks()
    assert "MP102" in terminal.press("A")
    terminal.type("d")
    assert terminal.ends() == 1
    one, two = files(repo)
    assert one.count("if on_tpu()") == 1
    assert two.count("if on_tpu()") == 2


def test_q_keeps_what_was_accepted(repo: Path, start: Start) -> None:
    terminal = start()
    terminal.asks()
    terminal.press("y", "n")
    terminal.type("q")
    assert terminal.ends() == 1
    assert files(repo) == (without(ONE, "a"), TWO)
    assert terminal.summary == (
        "applied 1 in 1 file, declined 1, findings left 0, stopped before the end"
    )


def test_q_keeps_the_file_before_too(repo: Path, start: Start) -> None:
    terminal = start()
    terminal.asks()
    terminal.press("a")
    terminal.type("q")
    assert terminal.ends() == 0
    assert files(repo) == (without(ONE, "a", "b", "c"), TWO)


def test_u_takes_back_the_last_answer(repo: Path, start: Start) -> None:
    terminal = start()
    terminal.asks()
    assert "[3/3]" in terminal.press("y", "y")
    assert "[2/3]" in terminal.press("u")
    assert "[1/3]" in terminal.press("u")
    assert "[3/3]" in terminal.press("n", "y")
    terminal.type("q")
    assert terminal.ends() == 1
    assert files(repo)[0] == without(ONE, "b")


def test_u_with_nothing_to_take_back_asks_again(start: Start) -> None:
    terminal = start()
    terminal.asks()
    shown = terminal.press("u")
    assert "no answer to undo" in shown
    assert "[1/3]" in shown


def test_u_takes_back_all_that_an_a_answered(start: Start) -> None:
    terminal = start()
    terminal.asks()
    assert "[1/2]" in terminal.press("y", "a")
    assert "one.py:10:" in terminal.press("u")
    assert "[1/3]" in terminal.press("u")


def test_a_file_is_written_when_the_next_one_has_its_first_answer(
    repo: Path, start: Start
) -> None:
    terminal = start()
    terminal.asks()
    assert "two.py" in terminal.press("a")
    assert files(repo) == (ONE, TWO)
    assert "[3/3]" in terminal.press("u", "n", "y")
    assert "two.py" in terminal.press("y")
    assert files(repo) == (ONE, TWO)
    assert "[2/2]" in terminal.press("y")
    assert files(repo) == (without(ONE, "b", "c"), TWO)
    assert "[1/2]" in terminal.press("u")
    assert "no answer to undo" in terminal.press("u")
    terminal.type("a")
    assert terminal.ends() == 1
    assert files(repo) == (without(ONE, "b", "c"), without(TWO, "d", "e"))


def test_u_takes_back_a_capital_a_in_the_files_not_yet_written(repo: Path, start: Start) -> None:
    none = "\n\ndef g(body):\n    pl.run_scoped(body, collective_axes=None)\n"
    (repo / "six.py").write_text(HEAD + none)
    (repo / "two.py").write_text(TWO)
    (repo / "five.py").write_text(module("f"))
    terminal = start("--to=cpu")  # five.py, one.py, six.py, two.py
    terminal.asks()
    assert "six.py" in terminal.press("A")
    assert "on_tpu()" in (repo / "five.py").read_text()
    assert files(repo)[0] == ONE
    shown = terminal.press("u")
    assert "one.py" in shown and "[1/3]" in shown
    terminal.type("d")
    assert "six.py" in terminal.asks()
    assert "two.py" in terminal.press("n")
    terminal.type("d")
    assert terminal.ends() == 1
    assert files(repo) == (ONE, TWO)


def test_other_keys_are_met_with_a_hint_and_change_nothing(repo: Path, start: Start) -> None:
    terminal = start()
    terminal.asks()
    for key in ("x", "Y", " ", "é", "\x1b[A", "\x1bOA", "\x1ba", "\x1b"):
        shown = terminal.press(key)
        assert "Answer with one of y,n,a,d,A,q,e,u,?" in shown
        assert "[1/3]" in shown
    terminal.type("q")
    assert terminal.ends() == 0
    assert files(repo) == (ONE, TWO)


def test_enter_after_a_key_is_no_answer(repo: Path, start: Start) -> None:
    terminal = start()
    terminal.asks()
    assert "[3/3]" in terminal.press("y\r", "n\n")
    terminal.type("q")
    terminal.ends()
    assert "Answer with" not in terminal.plain


def test_keys_typed_ahead_are_not_lost(repo: Path, start: Start) -> None:
    terminal = start()
    terminal.asks()
    terminal.type("ynyya")
    assert terminal.ends() == 1
    assert files(repo) == (without(ONE, "a", "c"), without(TWO, "d", "e"))


def test_the_question_mark_tells_of_every_key(start: Start) -> None:
    terminal = start()
    terminal.asks()
    shown = terminal.press("?")
    assert [line[:3] for line in shown.splitlines() if line[1:3] == " -"] == [
        f"{key} -" for key in "ynadAqeu?"
    ]
    assert "[1/3]" in shown


def test_a_dumb_terminal_is_read_by_lines(repo: Path, start: Start) -> None:
    terminal = start(TERM="dumb")
    terminal.asks()
    assert "[2/3]" in terminal.press("y\n")
    assert "Answer with" in terminal.press("yes\n")
    assert "Answer with" in terminal.press("\n")
    terminal.type("q\n")
    assert terminal.ends() == 0
    assert files(repo) == (without(ONE, "a"), TWO)
    assert "\x1b" not in terminal.screen


def test_the_terminal_is_left_as_it_was(start: Start) -> None:
    terminal = start()
    terminal.asks()
    assert not termios.tcgetattr(terminal.master)[3] & termios.ICANON
    terminal.type("q")
    assert terminal.process.wait(PATIENCE) == 0
    assert termios.tcgetattr(terminal.master) == terminal.before


# -- interruptions --


def test_ctrl_c_writes_nothing_of_the_file_in_hand(repo: Path, start: Start) -> None:
    terminal = start()
    terminal.asks()
    terminal.press("a", "y")
    terminal.type("\x03")
    assert terminal.ends() == 130
    assert files(repo) == (without(ONE, "a", "b", "c"), TWO)
    assert terminal.summary == (
        "applied 3 in 1 file, declined 0, findings left 0, stopped before the end"
    )


def test_ctrl_c_keeps_a_file_that_has_all_its_answers(repo: Path, start: Start) -> None:
    terminal = start()
    terminal.asks()
    terminal.press("a")
    terminal.type("\x03")
    assert terminal.ends() == 130
    assert files(repo) == (without(ONE, "a", "b", "c"), TWO)


@pytest.mark.parametrize("stop", [signal.SIGHUP, signal.SIGTERM, "end of input", "closed"])
def test_a_terminal_that_is_gone_is_as_good_as_ctrl_c(
    repo: Path, start: Start, stop: signal.Signals | str
) -> None:
    terminal = start()
    terminal.asks()
    terminal.press("a", "y")
    if stop == "closed":
        assert terminal.hang_up() == 130
    elif stop == "end of input":
        terminal.type("\x04")
        assert terminal.ends() == 130
    else:
        terminal.process.send_signal(stop)
        assert terminal.ends() == 130
    assert files(repo) == (without(ONE, "a", "b", "c"), TWO)
    assert sorted(os.listdir(repo)) == ["one.py", "two.py"]
    assert terminal.summary.startswith("applied 3 in 1 file")


def test_the_question_is_asked_again_after_ctrl_z(start: Start) -> None:
    terminal = start()
    terminal.asks()
    settings_of_shell = termios.tcgetattr(terminal.master)
    settings_of_shell[3] |= termios.ICANON | termios.ECHO
    termios.tcsetattr(terminal.master, termios.TCSANOW, settings_of_shell)
    terminal.process.send_signal(signal.SIGCONT)
    assert "[1/3]" in terminal.asks()
    assert "[2/3]" in terminal.press("y")


def test_a_file_that_changed_meanwhile_is_reported_and_the_others_are_done(
    repo: Path, start: Start
) -> None:
    terminal = start()
    terminal.asks()
    terminal.press("a")
    (repo / "one.py").write_text(ONE + "# changed\n")
    terminal.type("a")
    assert terminal.ends() == 2
    assert files(repo) == (ONE + "# changed\n", without(TWO, "d", "e"))
    assert "one.py:1:1: MP904 has changed since it was read\n" in terminal.errors
    assert terminal.summary == "applied 2 in 1 file, declined 0, findings left 0, failed 1"


def test_a_disk_that_is_full_is_reported_and_the_others_are_done(
    repo: Path, start: Start
) -> None:
    large = ONE + "#" * 40_000 + "\n"
    (repo / "one.py").write_text(large)
    terminal = start(limit=30_000)
    terminal.asks()
    terminal.press("a")
    terminal.type("a")
    assert terminal.ends() == 2
    assert files(repo) == (large, without(TWO, "d", "e"))
    assert sorted(os.listdir(repo)) == ["one.py", "two.py"]
    assert "one.py:1:1: MP903 cannot be written: " in terminal.errors


def test_files_that_are_no_source_are_reported_and_findings_told(
    repo: Path, start: Start
) -> None:
    (repo / "bad.py").write_text("pl.run_scoped(f, collective_axes='x'\n")
    (repo / "gpu.py").write_bytes((FIXTURES / "MP101/kind-gpu-by-imports/before.py").read_bytes())
    (repo / "none.py").write_text("x = 1\n")
    terminal = start()
    assert "one.py" in terminal.asks()
    terminal.press("a")
    terminal.type("a")
    assert terminal.ends() == 2
    assert "bad.py:" in terminal.errors and ": MP901 " in terminal.errors
    assert re.search(r"^gpu\.py:\d+:\d+: MP204 ", terminal.errors, re.MULTILINE)
    assert "none.py" not in terminal.errors + terminal.plain
    assert re.search(r"findings left [1-9]\d*, failed 1$", terminal.summary)


@pytest.mark.parametrize("closed", ["stdin", "stdout"])
def test_review_is_refused_where_it_cannot_ask(repo: Path, closed: str) -> None:
    master, slave = pty.openpty()
    streams = {"stdin": slave, "stdout": slave, closed: subprocess.PIPE}
    done = subprocess.run(
        [sys.executable, "-m", "migrate_pallas", "--to=cpu", "--review", "."],
        cwd=repo,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
        timeout=PATIENCE,
        **streams,  # type: ignore[call-overload]
    )
    os.close(slave)
    os.close(master)
    assert done.returncode == 2
    assert "stdin and stdout must be terminals" in done.stderr
    assert files(repo) == (ONE, TWO)


# -- what is a change --


def test_two_calls_on_one_line_are_two_changes(repo: Path, start: Start) -> None:
    line = '    pl.run_scoped(f, collective_axes="x"); pl.run_scoped(f, collective_axes="x")\n'
    (repo / "one.py").write_text(f"{HEAD}\n\ndef g(f):\n{line}")
    terminal = start("one.py")
    assert "one.py:6:22:" in terminal.asks()
    assert "one.py:6:61:" in terminal.press("n")
    assert f"-{line}+{line.replace(', collective', '', 1)}" not in terminal.plain
    terminal.press("y")
    terminal.type("q")
    terminal.ends()
    assert (repo / "one.py").read_text().endswith(
        '    pl.run_scoped(f, collective_axes="x"); pl.run_scoped(f)\n'
    )


@pytest.mark.parametrize(
    ("answers", "axes"),
    [("yn", ('"y" if on_tpu() else ()', '"x"')), ("ny", ('"y"', '"x" if on_tpu() else ()'))],
)
def test_one_of_two_nested_changes_is_exactly_that_one(answers: str, axes: tuple[str, str]) -> None:
    text = (FIXTURES / "MP101/nested-targets/before.py").read_text()
    examined = examine(text, TO_CPU)
    pattern = [answer == "y" for answer in answers] + [False, False]
    accepted = [change for change, yes in zip(examined.changes, pattern, strict=True) if yes]
    line = proven(examined, accepted, TO_CPU).splitlines()[-13]
    assert line == (
        "    pl.run_scoped(lambda a: pl.run_scoped(lambda b: a[...] + b[...], buf, "
        f"collective_axes={axes[0]}), buf, collective_axes={axes[1]})"
    )


def test_the_gate_is_shown_once_at_the_end_of_the_file_and_only_where_needed(
    repo: Path, start: Start
) -> None:
    terminal = start("--to=cpu")
    terminal.asks()
    shown = terminal.press("y", "y", "n")
    assert shown.startswith(
        "n\n\none.py: this follows from the changes accepted\n"
        "@@ -1,5 +1,11 @@\n"
        " import jax\n"
        " from jax.experimental import pallas as pl\n"
        "+\n"
        "+\n"
        "+def on_tpu() -> bool:\n"
    )
    terminal.type("d")
    assert terminal.ends() == 1
    assert terminal.plain.count("+def on_tpu() -> bool:") == 1
    assert files(repo) == (
        (HEAD + GATE_TEXT + ONE.removeprefix(HEAD)).replace(
            'axes="a"', 'axes="a" if on_tpu() else ()'
        ).replace('axes="b"', 'axes="b" if on_tpu() else ()'),
        TWO,
    )
