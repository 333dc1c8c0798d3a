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
from migrate_pallas.review import Review
from migrate_pallas.screens import Paint, change_screen, displayed, width
from migrate_pallas.sessions import Damaged, Session
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
        f'\n\ndef f_{name}(body):\n    pl.run_scoped(body, {name}, collective_axes="{name}")\n'
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
                preexec_fn=in_child,
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


def test_a_file_is_written_when_the_next_one_has_its_first_answer(repo: Path, start: Start) -> None:
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
    assert sorted(path.name for path in repo.iterdir()) == ["one.py", "two.py"]
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


def test_a_disk_that_is_full_is_reported_and_the_others_are_done(repo: Path, start: Start) -> None:
    large = ONE + "#" * 40_000 + "\n"
    (repo / "one.py").write_text(large)
    terminal = start(limit=30_000)
    terminal.asks()
    terminal.press("a")
    terminal.type("a")
    assert terminal.ends() == 2
    assert files(repo) == (large, without(TWO, "d", "e"))
    assert sorted(path.name for path in repo.iterdir()) == ["one.py", "two.py"]
    assert "one.py:1:1: MP903 cannot be written: " in terminal.errors


def test_files_that_are_no_source_are_reported_and_findings_told(repo: Path, start: Start) -> None:
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
    assert (
        (repo / "one.py")
        .read_text()
        .endswith('    pl.run_scoped(f, collective_axes="x"); pl.run_scoped(f)\n')
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
    result = proven(examined, accepted, TO_CPU).splitlines()
    assert next(line for line in result if "pl.run_scoped" in line) == (
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
        "@@ -2,4 +2,9 @@\n"
        " from jax.experimental import pallas as pl\n"
        " \n"
        " \n"
        "+def on_tpu() -> bool:\n"
    )
    terminal.type("d")
    assert terminal.ends() == 1
    assert terminal.plain.count("+def on_tpu() -> bool:") == 1
    assert files(repo) == (
        (HEAD + GATE_TEXT + ONE.removeprefix(HEAD))
        .replace('axes="a"', 'axes="a" if on_tpu() else ()')
        .replace('axes="b"', 'axes="b" if on_tpu() else ()'),
        TWO,
    )


# -- editing --


@pytest.fixture
def editor(tmp_path: Path) -> Callable[[str], dict[str, str]]:
    """An editor that does what a line of Python, in which `text` is what it opens, says."""

    def that(does: str) -> dict[str, str]:
        script = tmp_path / "editor.py"
        script.write_text(
            "import sys\nfrom pathlib import Path\npath = Path(sys.argv[1])\n"
            "text = path.read_bytes().decode()\n"
            "with Path(__file__).with_name('opened').open('a') as log:\n"
            "    print(repr(text), file=log)\n"
            f"{does}\npath.write_bytes(text.encode())\n"
        )
        return {"EDITOR": f"{sys.executable} {script}"}

    return that


def opened(repo: Path) -> list[str]:
    """What the editor was given, each time."""
    return (repo.parent / "opened").read_text().splitlines()


def test_e_applies_what_the_user_makes_of_the_proposed_lines(
    repo: Path, start: Start, editor: Callable[[str], dict[str, str]]
) -> None:
    terminal = start(**editor("text = text.replace('body, a)', 'body, a, 7)  # mine')"))
    terminal.asks()
    assert "[2/3]" in terminal.press("e")
    terminal.type("q")
    assert terminal.ends() == 0
    assert opened(repo) == [repr("    pl.run_scoped(body, a)\n")]
    assert files(repo)[0] == without(ONE, "a").replace("body, a)", "body, a, 7)  # mine")
    assert terminal.summary.startswith("applied 1 in 1 file, declined 0")


def test_visual_goes_before_editor(
    repo: Path, start: Start, editor: Callable[[str], dict[str, str]]
) -> None:
    visual = editor("text = text.replace('body, a)', 'body, a, 7)')")["EDITOR"]
    terminal = start(EDITOR="false", VISUAL=visual)
    terminal.asks()
    assert "[2/3]" in terminal.press("e")


def test_an_edit_that_does_not_parse_is_refused_with_its_line_and_not_lost(
    repo: Path, start: Start, editor: Callable[[str], dict[str, str]]
) -> None:
    terminal = start(
        **editor(
            "text = text.replace('(body, a)', '(body, ]') if ']' not in text else text.replace(']', 'mine)')"
        )
    )
    terminal.asks()
    shown = terminal.press("e")
    assert "line 6 of the file:\n    pl.run_scoped(body, ]\n" in shown
    assert "[1/3]" in shown
    assert files(repo)[0] == ONE
    assert "[2/3]" in terminal.press("e")
    terminal.type("q")
    assert terminal.ends() == 0
    assert opened(repo)[1] == repr("    pl.run_scoped(body, ]\n")
    assert files(repo)[0] == without(ONE, "a").replace("body, a)", "body, mine)")


@pytest.mark.parametrize("does", ["", "sys.exit(3)", "text = ''", "path.unlink(); sys.exit()"])
def test_an_editor_that_fails_or_changes_nothing_leaves_the_question(
    repo: Path, start: Start, editor: Callable[[str], dict[str, str]], does: str
) -> None:
    terminal = start(**editor(does))
    terminal.asks()
    shown = terminal.press("e")
    assert shown.startswith("e\n") and len(shown.splitlines()) == 3
    assert "[2/3]" in terminal.press("y")
    terminal.type("q")
    assert terminal.ends() == 0
    assert files(repo)[0] == without(ONE, "a")


def test_an_editor_that_is_not_there_leaves_the_question(start: Start) -> None:
    terminal = start(EDITOR="/no/such/editor")
    terminal.asks()
    shown = terminal.press("e")
    assert "/no/such/editor" in shown
    assert "[1/3]" in shown


def test_a_change_that_leaves_no_line_is_edited_between_its_neighbours(
    repo: Path, start: Start, editor: Callable[[str], dict[str, str]]
) -> None:
    call = 'pl.run_scoped(\n        f,\n        collective_axes="x",\n    )\n'
    (repo / "one.py").write_text(f"{HEAD}\n\ndef g(f):\n    {call}")
    terminal = start("one.py", **editor("text = text.replace('f,\\n', 'f,\\n        7,\\n')"))
    terminal.asks()
    assert "[1/2]" in terminal.press("e")
    terminal.type("q")
    assert terminal.ends() == 0
    assert opened(repo) == [repr("        f,\n    )\n")]
    assert (repo / "one.py").read_text().endswith("(\n        f,\n        7,\n    )\n")


def test_an_edit_keeps_line_endings_and_a_missing_one_at_the_end(
    repo: Path, start: Start, editor: Callable[[str], dict[str, str]]
) -> None:
    text = module("a").replace("\n", "\r\n").removesuffix("\r\n")
    (repo / "one.py").write_bytes(text.encode())
    terminal = start(**editor("text = text.replace('(body, a)', '(\\n        body, b)')"))
    terminal.asks()
    terminal.press("e")
    terminal.type("q")
    assert terminal.ends() == 0
    expected = without(text, "a").replace("(body, a)", "(\r\n        body, b)")
    assert (repo / "one.py").read_bytes() == expected.encode()


def test_an_edit_that_the_encoding_lacks_is_refused(
    repo: Path, start: Start, editor: Callable[[str], dict[str, str]]
) -> None:
    (repo / "one.py").write_bytes(b"# coding: latin-1\n" + module("a").encode())
    terminal = start(**editor("text = text.replace('(body, a)', '(body, a)  # 表')"))
    terminal.asks()
    assert "cannot be written in iso8859-1" in terminal.press("e")


def test_an_edited_change_brings_the_gate_only_if_its_text_calls_it(
    repo: Path, start: Start, editor: Callable[[str], dict[str, str]]
) -> None:
    terminal = start("--to=cpu", **editor("text = text.replace('\"a\" if on_tpu() else ()', '()')"))
    terminal.asks()
    terminal.press("e", "d")
    terminal.type("q")
    assert terminal.ends() == 1
    assert files(repo)[0] == ONE.replace('collective_axes="a"', "collective_axes=()")


def test_of_two_changes_of_a_line_one_may_be_edited(
    repo: Path, start: Start, editor: Callable[[str], dict[str, str]]
) -> None:
    line = '    pl.run_scoped(f, collective_axes="x"); pl.run_scoped(g, collective_axes="y")\n'
    (repo / "one.py").write_text(f"{HEAD}\n\ndef h(f, g):\n{line}")
    terminal = start(**editor("text = text.replace('(f)', '(f, 7)')"))
    terminal.asks()
    assert "[2/2]" in terminal.press("e")
    assert "[1/2]" in terminal.press("y")
    terminal.type("q")
    assert terminal.ends() == 0
    text = (repo / "one.py").read_text()
    assert text.endswith("    pl.run_scoped(f, 7); pl.run_scoped(g)\n")


def test_an_edit_that_was_undone_is_opened_again(
    repo: Path, start: Start, editor: Callable[[str], dict[str, str]]
) -> None:
    terminal = start(**editor("text = text.replace('(body, a)', '(mine)')"))
    terminal.asks()
    assert "[2/3]" in terminal.press("e", "u", "e")
    terminal.type("q")
    assert terminal.ends() == 0
    assert opened(repo)[1] == repr("    pl.run_scoped(mine)\n")
    assert "pl.run_scoped(mine)" in files(repo)[0]


def test_a_change_that_an_edit_rewrote_is_not_asked_about(
    repo: Path, start: Start, editor: Callable[[str], dict[str, str]]
) -> None:
    line = '    pl.run_scoped(f, collective_axes="x"); pl.run_scoped(g, collective_axes="y")\n'
    (repo / "one.py").write_text(f"{HEAD}\n\ndef h(f, g):\n{line}")
    terminal = start(**editor("text = '    pass\\n'"))
    terminal.asks()
    assert "two.py" in terminal.press("e")
    assert "one.py" in terminal.press("u")
    assert "two.py" in terminal.press("e")
    terminal.type("q")
    assert terminal.ends() == 0
    assert (repo / "one.py").read_text().endswith("def h(f, g):\n    pass\n")


# -- sessions --


def test_a_stopped_review_goes_on_where_it_stopped(repo: Path, start: Start) -> None:
    terminal = start("--session", "../answers.json")
    terminal.asks()
    terminal.press("y", "n")
    terminal.type("\x03")
    assert terminal.ends() == 130
    assert files(repo) == (ONE, TWO)

    terminal = start("--session", "../answers.json")
    assert "[3/3]" in terminal.asks()
    assert "two.py" in terminal.press("y")
    terminal.type("d")
    assert terminal.ends() == 1
    assert files(repo) == (without(ONE, "a", "c"), TWO)

    terminal = start("--session", "../answers.json")
    assert terminal.ends() == 1
    assert terminal.summary == "applied 0 in 0 files, declined 3, findings left 0"

    (repo / "one.py").write_text("# moved\n" + files(repo)[0])
    (repo / "two.py").write_text(TWO.replace("body, d", "body, D"))
    terminal = start("--session", "../answers.json")
    assert "two.py:6:" in terminal.asks()
    terminal.type("y")
    assert terminal.ends() == 1
    assert files(repo)[1] == without(TWO.replace("body, d", "body, D"), "d")


def test_equal_lines_keep_their_own_answers(repo: Path, start: Start) -> None:
    call = 'pl.run_scoped(f, collective_axes="x")'
    (repo / "one.py").write_text(f"{HEAD}\n\ndef g(f):\n" + f"    {call}; {call}\n" * 3)
    terminal = start("one.py", "--session", "../answers.json")
    terminal.asks()
    terminal.press("y", "n", "y", "n")  # lines 6 and 7
    terminal.type("q")
    assert terminal.ends() == 1

    terminal = start("one.py", "--session", "../answers.json")
    shown = terminal.asks()
    assert "one.py:8:22" in shown and "[3/4]" in shown
    assert "[4/4]" in terminal.press("n")
    assert "two.py" in terminal.press("y")
    terminal.type("q")
    assert terminal.ends() == 1
    half = "pl.run_scoped(f)"
    assert (
        (repo / "one.py")
        .read_text()
        .endswith(f"    {half}; {call}\n    {half}; {call}\n    {call}; {half}\n")
    )


def test_an_answer_taken_back_is_not_remembered(repo: Path, start: Start) -> None:
    terminal = start("--session", "../answers.json")
    terminal.asks()
    terminal.press("d", "u")
    terminal.type("\x03")
    assert terminal.ends() == 130
    assert json.loads((repo.parent / "answers.json").read_text())["files"] == {}
    terminal = start("--session", "../answers.json")
    assert "one.py" in terminal.asks()


def test_an_edit_not_yet_written_is_remembered(
    repo: Path, start: Start, editor: Callable[[str], dict[str, str]]
) -> None:
    terminal = start(
        "--session", "../a.json", **editor("text = text.replace('body, a)', 'body, a, 7)')")
    )
    terminal.asks()
    terminal.press("e")
    terminal.type("\x03")
    assert terminal.ends() == 130
    assert files(repo)[0] == ONE

    terminal = start("--session", "../a.json")
    assert "[2/3]" in terminal.asks()
    terminal.type("q")
    assert terminal.ends() == 0
    assert files(repo)[0] == without(ONE, "a").replace("body, a)", "body, a, 7)")


def test_what_was_accepted_of_a_file_that_has_changed_is_asked_again(
    repo: Path, start: Start
) -> None:
    terminal = start("--session", "../a.json")
    terminal.asks()
    terminal.press("n", "y")
    terminal.type("\x03")
    assert terminal.ends() == 130
    (repo / "one.py").write_text(ONE + "x = 1\n")
    terminal = start("--session", "../a.json")
    assert "[2/3]" in terminal.asks()


def test_capital_a_stands_in_a_review_that_goes_on_and_not_in_a_new_one(
    repo: Path, start: Start
) -> None:
    none = "\n\ndef g(body):\n    pl.run_scoped(body, collective_axes=None)\n"
    (repo / "one.py").write_text(ONE + none)
    terminal = start("--to=cpu", "--session", "../a.json")
    terminal.asks()
    assert "[4/4]" in terminal.press("A")
    terminal.type("\x03")
    assert terminal.ends() == 130
    assert files(repo)[1] == TWO

    terminal = start("--to=cpu", "--session", "../a.json")
    assert "[4/4]" in terminal.asks()
    terminal.type("y")
    assert terminal.ends() == 0
    assert "on_tpu()" in files(repo)[1]

    (repo / "two.py").write_text(TWO)
    terminal = start("--to=cpu", "--session", "../a.json")
    assert "two.py" in terminal.asks()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b'{"migrate-pallas-session": 1, "rules": [], "files": {"one.py": {}}}',
        b'{"migrate-pallas-session": 1, "rules": [{"code": 1}], "files": {}}',
        b'{"migrate-pallas-session": 2, "rules": [], "files": {}}',
        b'{"migrate-pallas-session": 1, "rules": [], "files": {"one.py": {"sha256": "", "answers": '
        b'[{"code": "MP101", "lines": "", "becomes": "", "repeat": "0", "answer": "declined"}]}}}',
    ],
)
def test_a_damaged_session_is_bad_usage_and_untouched(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "session.json"
    path.write_bytes(content)
    with pytest.raises(Damaged, match=r"damaged|version 2"):
        Session(path)
    assert path.read_bytes() == content


def test_a_damaged_session_ends_the_program_before_it_asks(repo: Path, start: Start) -> None:
    (repo.parent / "bad.json").write_text("{")
    terminal = start("--session", "../bad.json")
    assert terminal.ends() == 2
    assert "--session: ../bad.json: it is damaged" in terminal.errors
    assert (repo.parent / "bad.json").read_text() == "{"


def test_a_session_that_cannot_be_kept_ends_the_program_before_it_asks(
    repo: Path, start: Start
) -> None:
    terminal = start("--session", "no/such/directory/a.json")
    assert terminal.ends() == 2
    assert "--session: no/such/directory/a.json: No such file" in terminal.errors


def test_answers_of_rules_that_are_not_run_stay_in_the_session(repo: Path, start: Start) -> None:
    none = "\n\ndef g(body):\n    pl.run_scoped(body, collective_axes=None)\n"
    (repo / "one.py").write_text(module("a") + none)
    (repo / "two.py").unlink()
    terminal = start("--to=cpu", "--session", "../a.json")
    terminal.asks()
    terminal.type("d")
    assert terminal.ends() == 1
    terminal = start("--to=cpu", "--session", "../a.json", "--select", "MP102")
    assert terminal.ends() == 1
    terminal = start("--to=cpu", "--session", "../a.json")
    assert terminal.ends() == 1
    assert terminal.summary.startswith("applied 0 in 0 files, declined 2,")


def test_a_session_that_can_be_kept_no_longer_does_not_stop_the_review(
    repo: Path, start: Start
) -> None:
    terminal = start("--session", "../a.json", limit=800)
    terminal.asks()
    terminal.press("n", "y", "y")
    terminal.type("a")
    assert terminal.ends() == 2
    assert terminal.errors.count("../a.json: answers can't be kept any longer: ") == 1
    assert files(repo) == (without(ONE, "b", "c"), without(TWO, "d", "e"))
    assert not list(repo.parent.glob(".*.tmp"))


# -- what is shown --


def shown(text: str, number: int = 0, coloured: bool = False, settings: Settings = TO_CPU) -> str:
    """The screen of a change of `text`."""
    examined = examine(text, settings)
    return change_screen("k.py", examined, examined.changes[number], Paint(coloured))


def in_function(line: str, *, above: Sequence[str] = (), name: str = "g") -> str:
    body = "".join(f"    {each}\n" for each in (*above, line))
    return f"{HEAD}\n\ndef {name}(\n    f,\n):\n{body}"


CALL = 'pl.run_scoped(f, collective_axes="x")'


def test_the_hunk_names_the_function_where_its_definition_is_out_of_sight() -> None:
    text = in_function(CALL, above=["a = 1", "b = 2", "c = 3", "d = 4"])
    assert "@@ -9,4 +9,4 @@ def g(\n     b = 2\n     c = 3\n     d = 4\n-" in shown(text)


def test_the_context_ends_at_the_head_of_the_function() -> None:
    text = in_function(CALL).replace("\n    f,\n", "f")
    text = text.replace("def g(", "@decorated\nasync def g(")
    assert "\n@@ -5,3 +5,3 @@\n @decorated\n async def g(f):\n-" in shown(text)


def test_the_hunk_in_a_method_names_the_class_where_the_method_is_in_sight() -> None:
    text = f"{HEAD}\n\nclass C:\n    x = 1\n\n    def m(self, f):\n        {CALL}\n"
    assert "@@ -8,2 +8,2 @@ class C:\n     def m(self, f):\n-        pl" in shown(text)


def test_a_change_far_apart_has_a_hunk_for_each_end() -> None:
    value = ["pl.run_scoped(f, collective_axes=(", *(f'    "{n}",' for n in range(12)), "))"]
    text = in_function(value[-1], above=value[:-1])
    screen = shown(text.replace('(\n        "0"', '[\n        "0"').replace("))", "])"))
    assert screen.count("@@ -") == 1
    lambda_value = text.replace("axes=(", "axes=lambda: (")
    assert shown(lambda_value).count("@@ -") == 2


def test_words_that_differ_stand_out_and_plain_text_stays() -> None:
    screen = shown(in_function(CALL), coloured=True)
    assert '\x1b[31m-\x1b[0m\x1b[31m    pl.run_scoped(f, collective_axes="x")\x1b[0m\n' in screen
    assert "\x1b[32;7m if on_tpu() else ()\x1b[0m\x1b[32m)\x1b[0m\n" in screen
    assert _SGR.sub("", screen) == shown(in_function(CALL))


def test_a_line_without_its_ending_is_said_to_have_none() -> None:
    screen = shown(in_function(CALL).removesuffix("\n"))
    assert screen.count("\\ No newline at end of file\n") == 2


@pytest.mark.parametrize("ending", ["\r\n", "\r"])
def test_line_endings_are_not_shown(ending: str) -> None:
    assert shown(in_function(CALL).replace("\n", ending)) == shown(in_function(CALL))


def test_control_characters_of_the_source_never_reach_the_terminal() -> None:
    evil = "\x1b]0;owned\x07\x1b[2J\x9b31m\x08\x7f\u202e\u2066\u200b\ufeff\u2028\x0c"
    screen = shown(in_function(f"{CALL}  # {evil}", above=[f"'{evil}'"], name="h"))
    assert [c for c in screen if not c.isprintable() and c != "\n"] == []
    assert "^[]0;owned^G^[[2J<U+009B>31m^H^?<U+202E><U+2066><U+200B><U+FEFF><U+2028>^L" in screen


def test_a_file_name_and_a_hunk_header_are_shown_with_control_characters_spelled_out() -> None:
    examined = examine(in_function(CALL, above=["a = 1"] * 4), TO_CPU)
    screen = change_screen("a\x1b[2J\udcff.py", examined, examined.changes[0], Paint(False))
    assert screen.startswith("\na^[[2J\\xff.py:12:")


def test_wide_characters_and_tabs_keep_their_columns() -> None:
    assert displayed("\tx") == "        x"
    assert displayed("表\tx") == "表      x"
    assert displayed("e\u0301\tx") == "e\u0301       x"
    assert width("表e\u0301") == 3
    both = shown(in_function(f"{CALL}\t# 表"), settings=TO_INTERPRET).splitlines()
    old, new = (next(line for line in both if line.startswith(sign)) for sign in "-+")
    assert (width(old[1:]) - width("# 表")) % 8 == (width(new[1:]) - width("# 表")) % 8 == 0


def test_a_long_line_stays_one_line() -> None:
    tail = ", ".join(f"name_{n}" for n in range(3000))
    screen = shown(in_function(f"pl.run_scoped({tail}, collective_axes='x')"), coloured=True)
    old, new = (line for line in _SGR.sub("", screen).splitlines() if line[0:1] in ("-", "+"))
    assert old == f"-    pl.run_scoped({tail}, collective_axes='x')"
    assert new == f"+    pl.run_scoped({tail}, collective_axes='x' if on_tpu() else ())"
    assert screen.count("\x1b[32;7m") == 1


def test_what_the_output_encoding_lacks_is_spelled_out(repo: Path, start: Start) -> None:
    (repo / "one.py").write_text(in_function(f"{CALL}  # 表 é"), encoding="utf-8")
    terminal = start(PYTHONUTF8="0", PYTHONIOENCODING="latin-1")
    assert "# \\u8868 \udce9" in terminal.asks()


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {"TERM": "vt100"}])
def test_no_colour_where_none_is_wanted(start: Start, environment: dict[str, str]) -> None:
    terminal = start(**environment)
    terminal.asks()
    terminal.type("q\n")
    terminal.ends()
    assert "\x1b" not in terminal.screen


def test_colour_on_a_terminal_that_has_it(start: Start) -> None:
    terminal = start()
    terminal.asks()
    assert "\x1b[31m" in terminal.screen and "\x1b[32m" in terminal.screen


# -- lines and words --


def test_edits_touch_the_lines_that_become_others() -> None:
    text = "a\nb\nc\n"
    assert excerpt(text, (Edit(2, 3, "B"),)) == ("b\n", "B\n")
    assert excerpt(text, (Edit(2, 4, ""),)) == ("b\n", "")
    assert excerpt(text, (Edit(3, 4, ""),)) == ("b\nc\n", "bc\n")
    assert excerpt(text, (Edit(2, 2, "x\n"),)) == ("", "x\n")
    assert excerpt(text, (Edit(2, 2, "x"),)) == ("b\n", "xb\n")
    assert excerpt("a", (Edit(1, 1, "b"),)) == ("a", "ab")
    assert excerpt(text, (Edit(2, 3, "B"),), (Edit(0, 1, "A"), Edit(3, 3, "!"))) == ("b!\n", "B!\n")


TEXTS = st.text("ab (\r\n\t表", max_size=12)
LINES_OF_TEXT = st.lists(st.sampled_from(["a\n", "b (a)\n", "\n", "表"]), max_size=20).map("".join)


@st.composite
def edited_texts(draw: st.DrawFn) -> tuple[str, tuple[Edit, ...]]:
    """A text and edits of it that do not meet."""
    text = draw(LINES_OF_TEXT)
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), min_size=2, max_size=6)))
    spans = dict(zip(cuts[::2], cuts[1::2], strict=False))
    return text, tuple(Edit(a, b, draw(LINES_OF_TEXT)) for a, b in spans.items())


@given(edited_texts())
def test_a_diff_leads_from_the_text_to_what_the_edits_make_of_it(
    case: tuple[str, tuple[Edit, ...]],
) -> None:
    text, edits = case
    before = lines(text)
    after: list[str] = []
    done = 0
    for hunk in hunks(text, edits):
        start, length = re.match(r"@@ -(\d+)(?:,(\d+))?", hunk.header).groups()  # type: ignore[union-attr]
        begin = int(start) - (length != "0")
        after += before[done:begin]
        done = begin
        for block in hunk.blocks:
            assert before[done : done + len(block.old)] == list(block.old)
            after += block.new
            done += len(block.old)
    assert "".join(after + before[done:]) == apply(text, edits)


@given(TEXTS, TEXTS)
def test_word_changes_lead_from_one_text_to_the_other(before: str, after: str) -> None:
    edits = [Edit(a, b, after[c:d]) for a, b, c, d in word_changes(before, after)]
    assert apply(before, edits) == after


# -- the core, with scripted answers --


class Script:
    """A screen that answers by itself."""

    def __init__(self, answers: str, edits: Sequence[str] = ()) -> None:
        self.answers = iter(answers)
        self.edits = iter(edits)
        self.reports: list[str] = []

    def check(self) -> None:
        pass

    def change(self, name: str, examined: Examined, change: Change) -> None:
        pass

    def additions(self, name: str, examined: Examined, accepted: Sequence[Change]) -> None:
        pass

    def hint(self, text: str) -> None:
        pass

    def report(self, line: str) -> None:
        self.reports.append(line)

    def key(self, prompt: str) -> str:
        key = next(self.answers, None)
        if key is None:
            raise EOFError
        return key

    def edit(self, text: str) -> str | None:
        return next(self.edits)


# Lines of a function, with a slot for each change: what stands there before, and after under gate and remove.
GATED = " if on_tpu() else ()"
LINES = (
    'pl.run_scoped(f, collective_axes="x"{})',
    'pl.run_scoped(f, collective_axes="x"{}); pl.run_scoped(f, collective_axes="y"{})',
    'pl.run_scoped(lambda r: pl.run_scoped(r, collective_axes="y"{}), collective_axes="x"{})',
    'pl.run_scoped(f, **{{"collective_axes": axes{}, "k": 1}})',
    "pl.run_scoped(\n        f,\n        collective_axes=axes{},  # 表\n    )",
    "pl.run_scoped(f, collective_axes={})",  # the slot is the value: None becomes (), and needs no gate
)
ORDER = [LINES[i % len(LINES)] for i in range(22)]


def generated(accepted: Sequence[bool]) -> str:
    """The module of thirty changes with those made that `accepted` says; without the gate."""
    pattern = iter(accepted)
    text = HEAD
    for number, line in enumerate(ORDER):
        values = []
        for _ in range(line.count("{}")):
            made = next(pattern)
            values.append(("()" if made else "None") if line == LINES[5] else GATED if made else "")
        text += f"\n\ndef g{number}(f, axes):\n    {line.format(*values)}\n"
    return text


SLOTS = [line == LINES[5] for line in ORDER for _ in range(line.count("{}"))]
"""For each change, whether it needs no gate."""


def test_the_generated_module_has_thirty_changes() -> None:
    text = generated([False] * len(SLOTS))
    assert len(SLOTS) == len(examine(text, TO_CPU).changes) == 30


@settings(
    max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.booleans(), min_size=30, max_size=30))
def test_what_is_written_is_what_was_accepted_and_the_gate_if_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, accepted: list[bool]
) -> None:
    monkeypatch.setattr(review_module, "examine", examined_once)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # else most of the time is the disk's
    path = tmp_path / "k.py"
    path.write_text(generated([False] * 30), encoding="utf-8")
    script = Script("".join("y" if yes else "n" for yes in accepted))
    reviewed = Review(TO_CPU, [str(tmp_path)], script, Session()).run([path])
    text = path.read_text(encoding="utf-8")
    needed = any(yes and not free for yes, free in zip(accepted, SLOTS, strict=True))
    gate = GATE_TEXT if needed else ""
    assert text == generated(accepted).replace(HEAD, HEAD + gate, 1)
    compile(text, "k.py", "exec")
    assert (reviewed.applied, reviewed.declined) == (sum(accepted), 30 - sum(accepted))


examined_once = cache(examine)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from("ynu"), max_size=80), st.sampled_from("adq"))
def test_taking_back_leaves_the_answers_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: list[str], last: str
) -> None:
    monkeypatch.setattr(review_module, "examine", examined_once)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # else most of the time is the disk's
    path = tmp_path / "k.py"
    path.write_text(generated([False] * 30), encoding="utf-8")
    stack: list[bool] = []
    for key in keys:
        if key == "u":
            stack = stack[:-1]
        else:
            stack.append(key == "y")
        if len(stack) == 30:
            break
    Review(TO_CPU, [str(tmp_path)], Script("".join([*keys, last])), Session()).run([path])
    accepted = stack + [last == "a"] * (30 - len(stack))
    text = path.read_text(encoding="utf-8").replace(GATE_TEXT, "")
    assert text == generated(accepted)


def test_of_two_edits_that_meet_the_later_one_is_made(tmp_path: Path) -> None:
    path = tmp_path / "k.py"
    both = 'pl.run_scoped(f, collective_axes="x"); pl.run_scoped(f, collective_axes="y")'
    path.write_text(f"{HEAD}\n\ndef g(f):\n    {both}\n")
    # The first edit leaves the second call alone; the second rewrites both.
    edits = [f"    first(f); {both.split('; ')[1]}\n", "    second(f)\n"]
    reviewed = Review(TO_INTERPRET, [str(tmp_path)], Script("ee", edits), Session()).run([path])
    assert path.read_text() == f"{HEAD}\n\ndef g(f):\n    second(f)\n"
    assert reviewed.applied == 1


def test_a_rewrite_that_is_refused_is_reported_and_the_file_left(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(examined: Examined, accepted: Sequence[Change], settings: Settings) -> str:
        if 'axes="a"' in examined.text:
            raise Unsound("not equivalent", 6)
        return proven(examined, accepted, settings)

    monkeypatch.setattr(review_module, "proven", refused)
    script = Script("aa")
    paths = [repo / "one.py", repo / "two.py"]
    reviewed = Review(TO_INTERPRET, [str(repo)], script, Session()).run(paths)
    assert files(repo) == (ONE, without(TWO, "d", "e"))
    assert any(":6:1: MP905 " in line for line in script.reports)
    assert (reviewed.applied, reviewed.faults) == (2, 1)


@pytest.mark.parametrize("part", ["examine", "proven"])
def test_a_bug_of_ours_in_one_file_does_not_keep_the_others_from_being_done(
    repo: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    usual = getattr(review_module, part)

    def failing(subject: str | Examined, *rest: object) -> object:
        text = subject if isinstance(subject, str) else subject.text
        if 'axes="a"' in text:
            raise RecursionError("too deep")
        return usual(subject, *rest)

    monkeypatch.setattr(review_module, part, failing)
    script = Script("aa")
    paths = [repo / "one.py", repo / "two.py"]
    reviewed = Review(TO_INTERPRET, [str(repo)], script, Session()).run(paths)
    assert files(repo)[0] == ONE
    assert files(repo)[1] == without(TWO, "d", "e")
    assert any("MP905 internal error: RecursionError: too deep" in r for r in script.reports)
    assert reviewed.faults == 1


def test_an_edited_change_is_not_held_against_the_proof() -> None:
    examined = examine(ONE, TO_INTERPRET)
    first, second, _ = examined.changes
    begin, end = touched(ONE, first.edits)
    own = Change(
        first.code,
        first.line,
        first.column,
        first.start,
        "",
        (Edit(begin, end, "    body(a)\n"),),
        edited=True,
    )
    assert proven(examined, [own, second], TO_INTERPRET) == without(ONE, "b").replace(
        '    pl.run_scoped(body, a, collective_axes="a")\n', "    body(a)\n"
    )
    broken = Change(
        first.code, 6, 0, first.start, "", (Edit(begin, end, "    body(\n"),), edited=True
    )
    with pytest.raises(Unsound):
        proven(examined, [broken, second], TO_INTERPRET)
