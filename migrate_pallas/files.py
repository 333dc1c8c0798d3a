"""Which files are taken, how their bytes become text, and how text becomes the file again.

Finding (`discover`, `files_from`)
    A file given by name is taken whatever it is called and whatever git thinks of it. A directory
    is walked for `*.py`, in the order of `git ls-files`. A walk does not enter hidden directories,
    virtual environments, `node_modules`, `site-packages` and `__pycache__`, nor what git ignores:
    `.gitignore` in the tree and above it up to the top of the repository, `.git/info/exclude`, and
    `$XDG_CONFIG_HOME/git/ignore`. Git itself is not run, so a file that is tracked in spite of an
    ignore rule is left out (name it), and `core.excludesFile` is not looked up. The rules also hold
    below a directory given by name; that it is ignored itself does not matter. Below a directory
    with a `.git` of its own, only its own rules hold. Excluded is excluded, by name or in a walk.
    In a walk a link to a directory is not followed, and the target of a link to a file is taken
    under its own name, if a walk of the paths given may come to it.

Reading (`read`, `decode`)
    PEP 263 and the UTF-8 BOM decide the encoding; line endings stay as they are. An encoding that
    does not give the same bytes back is refused.

Writing (`write`)
    A file is old or new at every moment, never in between; one with several hard links, which must
    be written in place, has a flushed backup beside it while that is not so.

Rules of ignore files are read and matched by pathspec, which is asked of each entry of a walk by
itself. It differs from git in rare corners: in sets (POSIX classes such as `[[:alpha:]]`, an escaped
closing bracket, a range that runs backwards, `[!a]` against a slash), in three stars in a row, in
`d/**/`, and in white space other than spaces at the end of a line.
"""

# Paths are strings here: a Path for each name takes longer than all else in a walk, and pathlib
# lacks half of what a safe write needs.
# ruff: noqa: PTH100, PTH101, PTH104, PTH105, PTH108, PTH109, PTH111, PTH112, PTH113, PTH114, PTH116, PTH118, PTH120, PTH123, PTH206, PTH208

from __future__ import annotations

import codecs
import contextlib
import functools
import os
import re
import signal
import stat
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathspec.pattern import RegexPattern

_UNDECODABLE, _UNUSABLE, _CHANGED = "MP902", "MP903", "MP904"


class FileFault(Exception):
    """Something that keeps one file, or one directory, from being handled.

    `code` is "MP902" (undecodable), "MP903" (unreadable or unwritable) or "MP904" (changed on disk
    since it was read); `message` says why, without the path; `line` counts from 1; `path` is the
    path as the user would write it, None for bytes that came from no file.
    """

    def __init__(
        self, code: str, message: str, line: int | None = None, path: Path | None = None
    ) -> None:
        # All four go to `args`, which is what pickle rebuilds an exception from in another process.
        super().__init__(code, message, line, path)
        self.code = code
        self.message = message
        self.line = line
        self.path = path

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True)
class Source:
    """A file as it was read: `raw` is `bom` followed by `text` in `encoding`.

    `raw` is also what the file on disk is compared with before it is written. `path` is None for
    source that came from no file.
    """

    path: Path | None
    raw: bytes
    text: str
    encoding: str
    bom: bytes


# Reading ------------------------------------------------------------------------------------------

# PEP 263: a comment with this form, in the first line, or in the second below a blank or a comment.
_COOKIE = re.compile(rb"[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
_BLANK_OR_COMMENT = re.compile(rb"[ \t\f]*(?:#|$)")
# compile() ends a line at a lone carriage return too.
_TWO_LINES = re.compile(rb"([^\r\n]*)(?:\r\n?|\n)?([^\r\n]*)")
_LINE_END = re.compile(rb"\r\n?|\n")
# Read otherwise by every codec in which ASCII is not ASCII (UTF-16, EBCDIC) or is also an escape
# (UTF-7, HZ, unicode_escape, punycode).
_ASCII_PROBE = b"\\\\ \\u0041 +- ~~ .-0"
# The codecs that never map two byte sequences to one text, so that encoding need not be tried.
_EXACT = frozenset({"utf-8", "ascii", "iso8859-1"})

# POSIX has the first two, Windows the last.
_READING = os.O_RDONLY | sum(getattr(os, f"O_{n}", 0) for n in ("NONBLOCK", "NOCTTY", "BINARY"))


def read(path: str | os.PathLike[str]) -> Source:
    """Return the file at `path`.

    Raises FileFault: MP903 if it cannot be read or is no regular file, which is found out without
    opening it; MP902 as `decode` does.
    """
    path = Path(path)
    try:
        raw = _bytes_of(path, os.stat)
    except OSError as error:
        raise FileFault(_UNUSABLE, f"cannot be read: {_reason(error)}", None, path) from error
    return decode(raw, path)


def decode(raw: bytes, path: Path | None = None) -> Source:
    """Return `raw` as text: PEP 263 and BOM decide how, line endings are not translated.

    `path` is only passed on. Raises FileFault MP902, with the line of the first byte that cannot be
    decoded, or of a declared encoding that is unknown, contradicts the BOM, or would not give the
    same bytes back.
    """
    bom = codecs.BOM_UTF8 if raw.startswith(codecs.BOM_UTF8) else b""
    body = raw[len(bom) :]
    cookie, line = _declared_encoding(body)
    try:
        encoding = _codec_name(cookie) if cookie else "utf-8"
        if bom and encoding != "utf-8":
            message = f"the encoding {cookie} is declared after a UTF-8 BOM"
            raise FileFault(_UNDECODABLE, message, line, path)
        text = body.decode(encoding)
        back = body if encoding in _EXACT else text.encode(encoding)
    except UnicodeDecodeError as error:
        declared = "" if cookie else ", and no other encoding is declared"
        message = f"byte 0x{body[error.start : error.start + 1].hex()} is not {encoding}{declared}"
        raise FileFault(_UNDECODABLE, message, _line_of(body[: error.start]), path) from error
    except (UnicodeError, LookupError) as error:
        message = f"the declared encoding {cookie} is unknown, or not one to edit source in"
        raise FileFault(_UNDECODABLE, message, line, path) from error
    if back != body:
        same = next((i for i, (a, b) in enumerate(zip(body, back, strict=False)) if a != b), None)
        message = f"decoded as {encoding}, this line cannot be written back byte for byte"
        raise FileFault(_UNDECODABLE, message, _line_of(body[:same]), path)
    return Source(path, raw, text, encoding, bom)


def encode(source: Source, text: str) -> bytes:
    """Return `text` in the encoding of `source`, behind its BOM if it has one.

    Raises FileFault MP902 if the encoding lacks a character, or if the bytes would not be read as
    `text` again, as when the line that declares the encoding was moved.
    """
    try:
        raw = source.bom + text.encode(source.encoding)
    except UnicodeEncodeError as error:
        message = f"{text[error.start]!a} cannot be written in {source.encoding}"
        line = _line_of(text[: error.start].encode("utf-8", "surrogatepass"))
        raise FileFault(_UNDECODABLE, message, line, source.path) from error
    again = decode(raw, source.path)
    if (again.text, again.encoding, again.bom) != (text, source.encoding, source.bom):
        message = f"the new text would not be read as {source.encoding} again"
        raise FileFault(_UNDECODABLE, message, None, source.path)
    return raw


def _bytes_of(path: str | os.PathLike[str], status: Callable[..., os.stat_result]) -> bytes:
    """Read a regular file; `status` is `os.stat`, or `os.lstat` to refuse links.

    Asks before opening, because opening a FIFO or a device may block or set something off, and
    again afterwards, because another file may have come in its place.
    """
    _require_regular(status(path).st_mode)
    with os.fdopen(os.open(path, _READING), "rb") as file:
        _require_regular(os.fstat(file.fileno()).st_mode)
        return file.read()


def _require_regular(mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise OSError(f"is {_kind(mode)}, not a file")


def _kind(mode: int) -> str:
    kinds: dict[Callable[[int], bool], str] = {
        stat.S_ISDIR: "a directory",
        stat.S_ISLNK: "a symbolic link",
        stat.S_ISFIFO: "a named pipe",
        stat.S_ISSOCK: "a socket",
    }
    return next((kind for test, kind in kinds.items() if test(mode)), "a device")


def _reason(error: OSError | ValueError) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error)


def _declared_encoding(body: bytes) -> tuple[str, int]:
    """The encoding declared as in PEP 263, "" if there is none, and the line that declares it."""
    lines = _TWO_LINES.match(body)
    assert lines  # Both groups may be empty, so that it always matches.
    for number, line in enumerate(lines.groups(), start=1):
        if cookie := _COOKIE.match(line):
            return cookie[1].decode("ascii"), number
        if not _BLANK_OR_COMMENT.match(line):
            break
    return "", 1


def _codec_name(cookie: str) -> str:
    """The codec for a declared encoding, which may end as in Emacs: `utf-8-unix`, `latin-1-dos`.

    Raises LookupError for one that is unknown, is no text encoding, or changes ASCII.
    """
    name = cookie[:12].lower().replace("_", "-")
    if re.match(r"utf-8(-|$)", name):
        return "utf-8"
    if re.match(r"(latin-1|iso-8859-1|iso-latin-1)(-|$)", name):
        return "iso8859-1"
    name = codecs.lookup(cookie).name
    try:
        plain = _ASCII_PROBE.decode(name) == _ASCII_PROBE.decode("ascii")
    except UnicodeError:
        plain = False
    if not plain:
        raise LookupError(f"ASCII is not ASCII in {name}")
    return name


def _line_of(before: bytes) -> int:
    """The number of the line that follows `before`."""
    return len(_LINE_END.findall(before)) + 1


# Finding ------------------------------------------------------------------------------------------

# A walk does not enter these, nor names with a leading dot.
_NEVER_ENTERED = frozenset({"node_modules", "site-packages", "__pycache__"})
# A directory that holds one of these is an environment: made by venv or virtualenv, or by conda.
_ENVIRONMENT_MARKS = frozenset({"pyvenv.cfg", "conda-meta"})


def files_from(stream: bytes) -> list[str]:
    """Return the paths listed in `stream`: NUL-separated if it holds a NUL, else one a line.

    Nothing is unquoted: a name with a newline needs the NUL form (`find -print0`,
    `git ls-files -z`). Bytes that are not UTF-8 become surrogates, as in `sys.argv` (PEP 383).
    """
    if b"\0" in stream:
        names = stream.split(b"\0")
    else:
        names = [line.removesuffix(b"\r") for line in stream.split(b"\n")]
    return [os.fsdecode(name) for name in names if name]


def discover(
    paths: Sequence[str], *, exclude: Sequence[str] = (), gitignore: bool = True
) -> Iterator[Path | FileFault]:
    """Yield the files to work on, each once, however many names lead to it.

    `paths` are files and directories, in the order in which they come out. `exclude` are patterns
    as in a `.gitignore` in the working directory: without a slash they match a file or directory of
    that name anywhere. Without `gitignore` what git ignores is taken too. Yields a FileFault MP903,
    its `path` set, for a path that is not there or cannot be used, and for a directory that
    cannot be listed, and goes on.
    """
    return _Search(paths, exclude, gitignore).run()


class _Rules:
    """The patterns of one ignore file, which are matched with paths from the file's directory."""

    def __init__(self, lines: Sequence[bytes]) -> None:
        patterns = _patterns([line for line in lines if line.strip()])
        # The last one that matches decides.
        self._last_first = [(one.regex, one.include) for one in patterns[::-1] if one.regex]

    def verdict(self, path: bytes) -> bool | None:
        """Whether an entry is ignored; None if no pattern matches. A directory ends in a slash."""
        for expression, ignores in self._last_first:
            if _matches(expression, path):
                return ignores
        return None


def _patterns(lines: Sequence[bytes]) -> Sequence[RegexPattern]:
    """What pathspec makes of the lines of an ignore file, without those that it refuses."""
    if not lines:
        return ()
    from pathspec import GitIgnoreSpec  # Not at the top: half the trees have no ignore file.

    try:
        with warnings.catch_warnings():  # Of sets that `re` may read otherwise one day.
            warnings.simplefilter("ignore", FutureWarning)
            return GitIgnoreSpec.from_lines(lines).patterns
    except (ValueError, re.error):
        if len(lines) == 1:
            return ()
        return [pattern for line in lines for pattern in _patterns([line])]


def _matches(expression: re.Pattern[bytes], path: bytes) -> bool:
    """Whether a pattern matches the entry at `path` itself, as git means it.

    pathspec also matches what lies below a directory that a pattern names; the one group of its
    expressions is the slash that ends that directory. And for it `d/**` matches "d/", which for git
    is not below d.
    """
    found = expression.search(path)
    if found and found.lastindex and found.end(1) < len(path):
        # Of a directory above; that of `*/` is not anchored and may match this one as well.
        found = expression.search(path, len(path) - 1)
    if found is None or found.lastindex:
        return found is not None
    return found.end() < len(path) or not path.endswith(b"/")


# Rules together with the path that leads from their directory to the one at hand: "" or "a/b/".
_Scope = tuple[_Rules, bytes]


@dataclass(frozen=True)
class _Directory:
    """A listed directory: its path as the user would spell it, its entries, the rules within it.

    `exclude` has one element, `ignore` one for each ignore file that holds here, the nearest first.
    """

    path: str
    entries: tuple[os.DirEntry[str], ...]
    exclude: tuple[_Scope, ...]
    ignore: tuple[_Scope, ...]

    def leaves_out(self, name: str, is_directory: bool) -> bool:
        """Whether a walk passes over the entry of that name."""
        if is_directory and (name.startswith(".") or name in _NEVER_ENTERED):
            return True
        key = os.fsencode(name) + (b"/" if is_directory else b"")
        return _ignored(self.exclude, key) or _ignored(self.ignore, key)


class _Search:
    """One run of `discover`: what was asked for, and which files came out already."""

    def __init__(self, paths: Sequence[str], exclude: Sequence[str], gitignore: bool) -> None:
        self._paths = paths
        # "./a" is how a shell's completion writes what a .gitignore calls "/a".
        lines = (pattern[1:] if pattern.startswith("./") else pattern for pattern in exclude)
        self._exclude = _Rules([os.fsencode(line) for line in lines])
        self._gitignore = gitignore
        self._seen: set[tuple[int, int]] = set()

    def run(self) -> Iterator[Path | FileFault]:
        for path in self._paths:
            try:
                mode = os.stat(path).st_mode
            except (OSError, ValueError) as error:
                what = "is a link that leads nowhere" if os.path.islink(path) else "cannot be used"
                yield FileFault(_UNUSABLE, f"{what}: {_reason(error)}", None, Path(path))
                continue
            if self._excluded(path, stat.S_ISDIR(mode)):
                continue
            if stat.S_ISDIR(mode):
                yield from self._walk(path)
            elif stat.S_ISREG(mode):
                yield from self._once(path)
            else:
                yield FileFault(
                    _UNUSABLE, f"is {_kind(mode)}, not a file or directory", None, Path(path)
                )

    def _once(self, path: str) -> Iterator[Path]:
        """Yield `path` unless the file came out before, under this name or another."""
        try:
            status = os.stat(path)
        except OSError:
            return  # Gone since it was listed.
        key = (status.st_dev, status.st_ino)
        if key not in self._seen:
            self._seen.add(key)
            yield Path(path)

    def _excluded(self, path: str, is_directory: bool) -> bool:
        """Whether an exclude pattern matches a path given by name, or a directory it lies in."""
        parts = os.fsencode(_from_here(path)).split(b"/")
        for depth, part in enumerate(parts):
            if part in (b".", b".."):
                continue
            scope = (self._exclude, b"".join(above + b"/" for above in parts[:depth]))
            slash = b"/" if is_directory or depth + 1 < len(parts) else b""
            if _ignored((scope,), part + slash):
                return True
        return False

    def _walk(self, root: str) -> Iterator[Path | FileFault]:
        """Yield what is below a directory. The stack holds the listings that lead to this one."""
        try:
            top = self._root(root)
        except OSError as error:
            yield _unlistable(root, error)
            return
        stack = [(top, iter(top.entries))]
        while stack:
            directory, entries = stack[-1]
            entry = next(entries, None)
            if entry is None:
                stack.pop()
            elif entry.is_dir(follow_symlinks=False):
                if directory.leaves_out(entry.name, True):
                    continue
                try:
                    below = self._below(directory, entry.name)
                except FileNotFoundError:
                    continue  # Gone since it was listed.
                except OSError as error:
                    yield _unlistable(entry.path, error)
                    continue
                stack.append((below, iter(below.entries)))
            elif entry.name.endswith(".py") and not directory.leaves_out(entry.name, False):
                if entry.is_file(follow_symlinks=False):
                    yield from self._once(_join(directory.path, entry.name))
                elif entry.is_symlink():
                    yield from self._through_link(_join(directory.path, entry.name))

    def _root(self, path: str) -> _Directory:
        here = os.fsencode(_from_here(path))
        prefix = b"" if here == b"." else here + b"/"
        above = _scopes_above(os.path.realpath(path)) if self._gitignore else ()
        return self._list(path, ((self._exclude, prefix),), above, is_root=True)

    def _below(self, parent: _Directory, name: str) -> _Directory:
        step = os.fsencode(name) + b"/"
        return self._list(
            _join(parent.path, name),
            tuple((rules, prefix + step) for rules, prefix in parent.exclude),
            tuple((rules, prefix + step) for rules, prefix in parent.ignore),
        )

    def _list(
        self,
        path: str,
        exclude: tuple[_Scope, ...],
        ignore: tuple[_Scope, ...],
        is_root: bool = False,
    ) -> _Directory:
        """List a directory and add the rules it brings. An environment is empty, but for a root."""
        with os.scandir(path) as listing:
            entries = {entry.name: entry for entry in listing}
        if not is_root and not _ENVIRONMENT_MARKS.isdisjoint(entries):
            return _Directory(path, (), exclude, ignore)
        if self._gitignore:
            if ".git" in entries:
                ignore = _repository_scopes(path)
            if ".gitignore" in entries:
                own = _rules_in(os.path.join(path, ".gitignore"), os.lstat)
                ignore = ((own, b""), *ignore)
        in_order = sorted(entries.values(), key=_git_order)
        return _Directory(path, tuple(in_order), exclude, ignore)

    def _through_link(self, link: str) -> Iterator[Path]:
        """Yield the target of a link to a file, under its own name, if a walk may come to it.

        If its own name ends in `.py` a walk comes to it anyhow, or passes over it for a reason.
        """
        real = os.path.realpath(link)
        if real.endswith(".py") or not os.path.isfile(real):
            return
        for root in self._paths:
            top = os.path.realpath(root)
            if _lies_in(real, top) and os.path.isdir(top) and not self._excluded(root, True):
                with contextlib.suppress(OSError):
                    yield from self._by_walking(root, os.path.relpath(real, top).split(os.sep))

    def _by_walking(self, root: str, parts: Sequence[str]) -> Iterator[Path]:
        """Yield the file that `parts` lead to from a root, unless a walk would pass over it."""
        *parents, name = parts
        directory = self._root(root)
        for parent in parents:
            if directory.leaves_out(parent, True):
                return
            directory = self._below(directory, parent)
        # An environment has no entries.
        if directory.entries and not directory.leaves_out(name, False):
            yield from self._once(_join(directory.path, name))


def _git_order(entry: os.DirEntry[str]) -> str:
    return entry.name + "/" if entry.is_dir(follow_symlinks=False) else entry.name


def _join(directory: str, name: str) -> str:
    return name if directory in ("", ".") else os.path.join(directory, name)


def _from_here(path: str) -> str:
    """`path` from the working directory, with forward slashes; links in it stay what they are."""
    try:
        path = os.path.relpath(path)
    except ValueError:  # On another drive.
        path = os.path.abspath(path)
    return path.replace(os.sep, "/")


def _lies_in(real: str, root: str) -> bool:
    """Whether a real path is the real path `root` or below it."""
    return real == root or real.startswith(os.path.join(root, ""))


def _unlistable(path: str, error: OSError) -> FileFault:
    return FileFault(_UNUSABLE, f"cannot be listed: {_reason(error)}", None, Path(path))


def _ignored(scopes: tuple[_Scope, ...], key: bytes) -> bool:
    """The verdict of the nearest rules that have one (gitignore(5), from v2.39)."""
    for rules, prefix in scopes:
        verdict = rules.verdict(prefix + key)
        if verdict is not None:
            return verdict
    return False


def _scopes_above(real: str) -> tuple[_Scope, ...]:
    """The rules that hold in a directory from above it: those of the repository it lies in."""
    found: list[_Scope] = []
    below, directory = b"", real
    while not os.path.lexists(os.path.join(directory, ".git")):
        parent, name = os.path.split(directory)
        if parent == directory:
            return ()
        below = os.fsencode(name) + b"/" + below
        directory = parent
        found.append((_rules_in(os.path.join(parent, ".gitignore"), os.lstat), below))
    return (*found, *((rules, below) for rules, _ in _repository_scopes(directory)))


def _repository_scopes(top: str) -> tuple[_Scope, ...]:
    """The rules of a repository that are not in its tree: its own, then the user's."""
    config = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    places = (
        os.path.join(_git_directory(top), "info", "exclude"),
        os.path.join(config, "git", "ignore"),
    )
    return tuple((_rules_in(place, os.stat), b"") for place in places)


def _git_directory(top: str) -> str:
    """Where a repository is kept: in a worktree or submodule the file `.git` says where."""
    git = _pointed_to(os.path.join(top, ".git"))
    shared = os.path.join(git, "commondir")
    return _pointed_to(shared) if os.path.isfile(shared) else git


def _pointed_to(pointer: str) -> str:
    """The path that a file of git's holds, or its own if it is a directory, not a file."""
    try:
        content = _bytes_of(pointer, os.stat)
    except OSError:
        return pointer
    path = os.fsdecode(content.removeprefix(b"gitdir: ").rstrip(b"\r\n"))
    return os.path.join(os.path.dirname(pointer), path)


def _rules_in(path: str, status: Callable[..., os.stat_result]) -> _Rules:
    """The rules in an ignore file; none if it cannot be read.

    Git follows no link in the tree to rules, hence `os.lstat` there.
    """
    try:
        content = _bytes_of(path, status)
    except OSError:
        content = b""
    lines = (content + b"\n").removeprefix(codecs.BOM_UTF8).replace(b"\r\n", b"\n").split(b"\n")
    return _Rules(lines)


# Writing ------------------------------------------------------------------------------------------


def write(source: Source, text: str, roots: Sequence[str]) -> None:
    """Make `text` the content of the file that `source` was read from.

    `roots` are the paths the user gave. The file that `source.path` leads to must lie in one of
    them; a link stays a link. Mode, extended attributes and, where permitted, owner are kept.
    Nothing is written if nothing changed. Whatever happens, the file is as it was or as it should
    be, and nothing else is left beside it; the one exception is a file with several hard links that
    could not be restored, whose backup is left and named in the message. Ctrl-C takes effect when
    the write is done.

    Raises FileFault: MP902 as `encode` does; MP903 if the file lies elsewhere, is read-only or
    cannot be written; MP904 if it is no longer what was read, or is gone.
    """
    if source.path is None:
        raise ValueError("source that came from no file cannot be written")
    raw = encode(source, text)
    if raw == source.raw:
        return
    target = os.path.realpath(source.path)
    if _real_paths(tuple(roots), os.getcwd()).isdisjoint([target, *map(str, Path(target).parents)]):
        message = f"is a link to {target}, which is not in the paths given"
        raise FileFault(_UNUSABLE, message, None, source.path)
    try:
        status = os.lstat(target)
        if not stat.S_ISREG(status.st_mode):
            raise _changed(source, f"has become {_kind(status.st_mode)}")
        if not status.st_mode & stat.S_IWUSR or not os.access(target, os.W_OK):
            raise FileFault(_UNUSABLE, "is read-only", None, source.path)
        with _interrupts_wait():
            if status.st_nlink > 1:
                _write_in_place(source, target, raw, status)
            else:
                _replace(source, target, raw, status)
    except FileNotFoundError as error:
        raise _changed(source, "is gone") from error
    except OSError as error:
        message = f"cannot be written: {_reason(error)}; it is as it was"
        raise FileFault(_UNUSABLE, message, None, source.path) from error


@contextlib.contextmanager
def _interrupts_wait() -> Iterator[None]:
    """Let an interrupt take effect only afterwards, so that it never keeps a new file from going.

    Python runs signal functions in the main thread alone; in another there is nothing to do.
    """
    usual = signal.getsignal(signal.SIGINT)
    if not callable(usual) or threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: arrived.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
        if arrived:
            usual(signal.SIGINT, None)


@functools.lru_cache(maxsize=1)
def _real_paths(roots: tuple[str, ...], here: str) -> frozenset[str]:
    """Where the paths given, seen from `here`, lead to. There may be one for each file written."""
    return frozenset(os.path.realpath(os.path.join(here, root)) for root in roots)


def _changed(source: Source, how: str) -> FileFault:
    return FileFault(_CHANGED, f"{how} since it was read", None, source.path)


def _require_unchanged(source: Source, target: str) -> None:
    if _bytes_of(target, os.lstat) != source.raw:
        raise _changed(source, "has changed")


def _replace(source: Source, target: str, raw: bytes, status: os.stat_result) -> None:
    """Write a new file beside the old one, and put it in its place."""
    new = _name_beside(target, status, "tmp")
    try:
        _create(new, raw, target, status)
        _require_unchanged(source, target)
        os.replace(new, target)
    except BaseException:
        _remove(new, source)
        raise


def _write_in_place(source: Source, target: str, raw: bytes, status: os.stat_result) -> None:
    """Write into the file itself, so that its other names keep it, with a backup beside it."""
    backup = _backup(source, target, status)
    whole = True
    try:
        _flush_directory(os.path.dirname(target))
        _require_unchanged(source, target)
        try:
            whole = False
            _overwrite(target, raw)
            whole = True
        except BaseException:
            _restore(source, target, backup)
            whole = True
            raise
    finally:
        if whole:
            _remove(backup, source)


def _backup(source: Source, target: str, status: os.stat_result) -> str:
    """Make a flushed copy of what was read, which has its name only when it is whole."""
    new, backup = (_name_beside(target, status, suffix) for suffix in ("tmp", "orig"))
    try:
        _create(new, source.raw, target, status)
        os.rename(new, backup)
    except BaseException:
        _remove(new, source)
        raise
    return backup


def _restore(source: Source, target: str, backup: str) -> None:
    try:
        _overwrite(target, source.raw)
    except OSError as error:
        message = f"is damaged ({_reason(error)}); what it was is in {backup}"
        raise FileFault(_UNUSABLE, message, None, source.path) from error


def _overwrite(target: str, raw: bytes) -> None:
    with open(target, "r+b") as file:
        file.write(raw)
        file.truncate()
        file.flush()
        os.fsync(file.fileno())


def _name_beside(target: str, status: os.stat_result, suffix: str) -> str:
    """A new name in the directory of `target`, hidden, and not one that a walk takes.

    It tells `clean_up_after` which process made it, and for which file.
    """
    name = f"{_left_by(os.getpid())}{status.st_ino}-{os.urandom(6).hex()}.{suffix}"
    return os.path.join(os.path.dirname(target), name)


def _left_by(pid: int) -> str:
    return f".migrate-pallas-{pid}-"


def clean_up_after(pid: int, path: str | os.PathLike[str]) -> None:
    """Leave nothing of what process `pid` had beside the file at `path` when it was killed.

    A file that it was writing in place is first restored from its backup. Raises FileFault MP903,
    naming the backup, if that fails.
    """
    target = os.path.realpath(path)
    directory = os.path.dirname(target)
    try:
        inode = os.stat(target).st_ino
        left = [name for name in os.listdir(directory) if name.startswith(_left_by(pid))]
    except OSError:
        return  # Gone, and with it all there was to clean up.
    for name in left:
        beside = os.path.join(directory, name)
        try:
            if name.endswith(".orig"):
                if not name.startswith(f"{_left_by(pid)}{inode}-"):
                    continue  # Of another file.
                _overwrite(target, _bytes_of(beside, os.lstat))
            os.unlink(beside)
        except OSError as error:
            message = f"may be damaged ({_reason(error)}); what it was is in {beside}"
            raise FileFault(_UNUSABLE, message, None, Path(path)) from error


def _create(path: str, raw: bytes, like: str, status: os.stat_result) -> None:
    """Make a flushed file that holds `raw`, with owner, mode and attributes of `like`."""
    # Nobody else may read it before it has the mode of the old one.
    with open(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(raw)
        file.flush()
        _take_over(like, path, status)
        os.fsync(file.fileno())


def _remove(path: str, source: Source) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass  # It never came to be, or became the file itself.
    except OSError as error:
        message = f"left {path} behind: {_reason(error)}"
        raise FileFault(_UNUSABLE, message, None, source.path) from error


def _flush_directory(path: str) -> None:
    """Make new names in a directory survive a power cut, where the system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _take_over(old: str, new: str, status: os.stat_result) -> None:
    """Give `new` owner, mode and extended attributes (access lists are among them) of `old`."""
    if hasattr(os, "chown"):
        with contextlib.suppress(PermissionError):
            os.chown(new, status.st_uid, status.st_gid)
    os.chmod(new, stat.S_IMODE(status.st_mode))
    if hasattr(os, "listxattr"):
        with contextlib.suppress(OSError):
            for attribute in os.listxattr(old):
                with contextlib.suppress(OSError):
                    os.setxattr(new, attribute, os.getxattr(old, attribute))
