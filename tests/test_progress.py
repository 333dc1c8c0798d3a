"""The progress line: `migrate_pallas.progress`."""

import io

import pytest

from migrate_pallas.progress import Progress, progress


class Terminal(io.StringIO):
    """What was written, and what a person would see of it."""

    def isatty(self):
        return True

    def seen(self):
        line = ""
        for part in self.getvalue().split("\r"):
            line = part.removeprefix("\x1b[K") if part.startswith("\x1b[K") else part
        return line


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture(autouse=True)
def _a_terminal_that_can_erase(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")


def after_seconds(stream, seconds, steps=1):
    clock = Clock()
    line = Progress(stream, clock)
    clock.now = seconds
    for _ in range(steps):
        line.step()
    return line


def test_says_nothing_in_the_first_second():
    terminal = Terminal()
    after_seconds(terminal, 0.9, steps=100)
    assert terminal.getvalue() == ""


def test_counts_after_a_second_and_not_too_often():
    terminal = Terminal()
    after_seconds(terminal, 1.0, steps=100)
    assert terminal.seen() == "1 file done"


def test_the_line_is_written_over():
    terminal, clock = Terminal(), Clock()
    line = Progress(terminal, clock)
    for _ in range(100):
        clock.now += 0.25
        line.step()
    assert terminal.seen() == "100 files done"
    assert "\n" not in terminal.getvalue()


def test_hiding_erases_and_a_later_step_shows_again():
    terminal, clock = Terminal(), Clock()
    line = Progress(terminal, clock)
    clock.now = 1
    line.step()
    line.hide()
    assert terminal.seen() == ""
    written = terminal.getvalue()
    line.hide()
    assert terminal.getvalue() == written
    clock.now = 2
    line.step()
    assert terminal.seen() == "2 files done"


def test_is_erased_in_the_end_even_by_an_interrupt(monkeypatch):
    monkeypatch.setattr("migrate_pallas.progress._PATIENCE", 0)
    terminal = Terminal()
    with pytest.raises(KeyboardInterrupt), progress(terminal) as line:
        line.step()
        assert terminal.seen() == "1 file done"
        raise KeyboardInterrupt
    assert terminal.seen() == ""


@pytest.mark.parametrize("term", ["dumb", "", None])
def test_is_silent_where_a_line_cannot_be_erased(monkeypatch, term):
    monkeypatch.setenv("TERM", term) if term is not None else monkeypatch.delenv("TERM")
    terminal = Terminal()
    after_seconds(terminal, 9)
    assert terminal.getvalue() == ""


def test_is_silent_where_there_is_no_terminal():
    stream = io.StringIO()
    after_seconds(stream, 9)
    assert stream.getvalue() == ""
