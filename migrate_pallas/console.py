"""The two streams: results go to stdout, everything else to stderr."""

from __future__ import annotations

import sys

import click


class OutputClosed(Exception):
    """Whoever read our output has gone. Click would take the plain error, and exit with 1."""


def say(line: str) -> None:
    """Print a line on stderr, whatever bytes a file name in it holds."""
    try:
        click.echo(line.encode("utf-8", "surrogateescape"), err=True)
    except BrokenPipeError as error:
        raise OutputClosed from error


def to_stdout(raw: bytes) -> None:
    """Write `raw` on stdout at once; raises `OutputClosed`."""
    try:
        sys.stdout.buffer.write(raw)
        sys.stdout.buffer.flush()
    except BrokenPipeError as error:
        raise OutputClosed from error
