"""Finding, reading and writing files: `migrate_pallas.files`."""

# What is tested are calls of the system, so the tests speak its language.
# ruff: noqa: PTH100, PTH101, PTH102, PTH105, PTH106, PTH107, PTH115, PTH116, PTH211

import errno
import inspect
import os
import pickle
import random
import resource
import signal
import socket
import stat
import string
import subprocess
import sys
import threading
import tokenize
import tracemalloc
from encodings.aliases import aliases
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrate_pallas import files
from migrate_pallas.files import FileFault, decode, discover, encode, files_from, read, write

BOM = b"\xef\xbb\xbf"


@pytest.fixture(autouse=True)
def _in_an_empty_directory(tmp_path, monkeypatch):
    """Relative paths keep the tests readable; the user's own ignore file must not matter."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")


def tree(*names):
    """Make files; a name that ends in a slash is a directory."""
    for name in names:
        path = Path(name)
        if name.endswith("/"):
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"x = 1\n")


def put(name, content):
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(content)


def found(*paths, **options):
    """What a search yields: paths as text, faults as (code, path)."""
    return [
        (item.code, str(item.path)) if isinstance(item, FileFault) else str(item)
        for item in discover(paths or ["."], **options)
    ]


def fault_of(function, *arguments):
    with pytest.raises(FileFault) as caught:
        function(*arguments)
    return caught.value


def names_in(directory="."):
    return sorted(path.name for path in Path(directory).iterdir())


class TestEncoding:
    @pytest.mark.parametrize(
        ("raw", "encoding"),
        [
            (b"", "utf-8"),
            (b"x = 1\n", "utf-8"),
            ("# é\n".encode(), "utf-8"),
            (b"# coding: latin-1\n# \xe9\n", "iso8859-1"),
            (b"#!/usr/bin/python\n# -*- coding: cp1252 -*-\n# \x80\n", "cp1252"),
            (b"\n# vim: set fileencoding=koi8-r :\n# \xc1\n", "koi8-r"),
            (b" \t\f\n# coding=latin-1\n# \xe9\n", "iso8859-1"),
            (b"# coding: utf-8-unix\n# \xc3\xa9\n", "utf-8"),
            (b"# coding: Latin_1-dos\n# \xe9\n", "iso8859-1"),
            (b"# coding coding:\tlatin-1\n# \xe9\n", "iso8859-1"),
            (b"# \xe9\n# coding: latin-1\n", "iso8859-1"),
            (b"# a\r# coding: latin-1\r# \xe9\r", "iso8859-1"),
            (b"# a\r\n# coding: latin-1\r\n# \xe9\r\n", "iso8859-1"),
            ("# coding: shift_jis\n# 漢字\n".encode("shift_jis"), "shift_jis"),
            ("# coding: iso-2022-jp\n# 漢字\n".encode("iso-2022-jp"), "iso2022_jp"),
            ("# coding: gb18030\n# 漢字\n".encode("gb18030"), "gb18030"),
        ],
    )
    def test_is_the_declared_one_and_else_utf_8(self, raw, encoding):
        source = decode(raw)
        assert (source.encoding, source.bom) == (encoding, b"")
        assert source.text.encode(encoding) == raw
        assert encode(source, source.text) == raw
        compile(raw, "raw", "exec")

    @pytest.mark.parametrize(
        "raw",
        [
            b"x = 1\n# coding: latin-1\n",
            b"\n\n# coding: latin-1\n",
            b"x = 1  # coding: latin-1\n",
            b"'''\n# coding: latin-1\n'''\n",
            b"# a\r# b\r# coding: latin-1\r",
        ],
    )
    def test_declared_too_late_is_not_declared(self, raw):
        assert decode(raw).encoding == "utf-8"
        late = raw + b"'\xe9'\n"
        assert fault_of(decode, late).code == "MP902"
        with pytest.raises(SyntaxError):
            compile(late, "late", "exec")

    def test_bom_is_kept_apart_and_comes_back(self):
        for raw in (
            BOM,
            BOM + b"x = 1\n",
            BOM + b"# coding: utf8\n",
            BOM + b"# coding: utf-8-sig\n",
        ):
            source = decode(raw)
            assert (source.bom, source.encoding) == (BOM, "utf-8")
            assert not source.text.startswith("\ufeff")
            assert encode(source, source.text) == raw
            assert encode(source, source.text + "y\n") == raw + b"y\n"

    def test_line_endings_and_form_feeds_are_not_translated(self):
        raw = b"a\r\nb\rc\n\x0cd\x0b\x1c\x85".replace(b"\x85", b"\xc2\x85")
        assert decode(raw).text.encode() == raw

    @pytest.mark.parametrize(
        ("raw", "line", "says"),
        [
            (b"x\ny\n# \xe9\n", 3, "byte 0xe9 is not utf-8, and no other encoding is declared"),
            (b"x\r\ny\rz # \xe9\n", 3, "byte 0xe9"),
            (b"\xff\xfex\0\n\0", 1, "byte 0xff"),
            (b"# coding: ascii\n\n# \xe9\n", 3, "byte 0xe9 is not ascii"),
            (BOM + b"x\n\xff", 2, "byte 0xff"),
            (b"# coding: no-such-thing\n", 1, "no-such-thing is unknown"),
            (b"\n# coding: no-such-thing\n", 2, "no-such-thing is unknown"),
            (BOM + b"#!python\n# coding: latin-1\n", 2, "latin-1 is declared after a UTF-8 BOM"),
        ],
    )
    def test_undecodable_names_the_line(self, raw, line, says):
        fault = fault_of(decode, raw)
        assert (fault.code, fault.line) == ("MP902", line)
        assert says in fault.message

    @pytest.mark.parametrize(
        "cookie",
        [
            "utf-16",
            "utf-16-le",
            "utf-32",
            "utf-7",
            "rot13",
            "hex",
            "base64",
            "unicode_escape",
            "raw_unicode_escape",
            "hz",
            "punycode",
            "cp037",
            "undefined",
            "bz2",
            "zlib",
            "uu",
            "quopri",
            "aliases",
        ],
    )
    def test_declared_encodings_that_are_not_for_source_are_refused(self, cookie):
        fault = fault_of(decode, f"\n# coding: {cookie}\nx = 1\n".encode())
        assert (fault.code, fault.line) == ("MP902", 2)

    def test_what_would_not_come_back_is_refused_with_its_line(self):
        # Two escape sequences in a row: the encoder writes neither.
        raw = b"# coding: iso-2022-jp\nx = 1\n# \x1b$B\x1b(B\n"
        fault = fault_of(decode, raw)
        assert (fault.code, fault.line) == ("MP902", 3)
        assert "byte for byte" in fault.message

    def test_new_text_that_the_encoding_lacks_is_refused_with_its_line(self):
        source = decode(b"# coding: latin-1\n")
        fault = fault_of(encode, source, "# coding: latin-1\n\n# \u20ac\n")
        assert (fault.code, fault.line) == ("MP902", 3)
        assert fault_of(encode, decode(b""), "\ud800").code == "MP902"

    def test_new_text_that_hides_or_adds_a_declaration_is_refused(self):
        latin = decode(b"# coding: latin-1\n# \xe9\n")
        assert fault_of(encode, latin, "import jax\n\n" + latin.text).code == "MP902"
        assert fault_of(encode, decode(b"x\n"), "# coding: latin-1\n# é\n").code == "MP902"

    @pytest.mark.parametrize("encoding", sorted(set(aliases.values())))
    def test_every_encoding_of_python_round_trips_or_is_refused(self, encoding):
        high = bytes(range(128, 256))
        for body in (
            b"x = 'a'\n",
            b"# " + high + b"\n",
            "# é漢".encode(encoding, "ignore")[:40] if encoding not in NOT_TEXT else b"",
        ):
            raw = b"# coding: " + encoding.encode() + b"\n" + body
            try:
                source = decode(raw)
            except FileFault as fault:
                assert fault.code == "MP902"
            else:
                assert encode(source, source.text) == raw
                assert encode(source, source.text + "\ny = '~\\\\'\n").startswith(raw)

    @given(
        before=st.sampled_from([b"", BOM, b"\n", b"#!x\r\n", b"# \xe9\r", b"x\n"]),
        cookie=st.sampled_from(sorted(aliases))
        | st.text(string.ascii_letters + "-_.8", max_size=9),
        body=st.binary(max_size=40),
    )
    def test_any_bytes_round_trip_or_are_refused(self, before, cookie, body):
        raw = before + f"# coding: {cookie}\n".encode() + body
        try:
            source = decode(raw)
        except FileFault as fault:
            assert fault.code == "MP902"
            assert 1 <= (fault.line or 0) <= raw.count(b"\n") + raw.count(b"\r") + 1
        else:
            assert source.bom + source.text.encode(source.encoding) == raw
            assert encode(source, source.text) == raw

    @given(
        first=st.sampled_from(
            [b"", b"\n", b"# a\n", b"x\n", b" \t\x0c\n", b"\r\n", BOM, BOM + b"#\n"]
        ),
        second=st.text("# \tcoding:=-latin1utf8\x0c", max_size=20),
    )
    def test_agrees_with_the_standard_library(self, first, second):
        raw = first + second.encode() + b"\nx\n"
        try:
            expected = tokenize.detect_encoding(BytesIO(raw).readline)[0].removesuffix("-sig")
        except SyntaxError:
            assert fault_of(decode, raw).code == "MP902"
        else:
            assert decode(raw).encoding == {"iso-8859-1": "iso8859-1"}.get(expected, expected)


NOT_TEXT = {f"{name}_codec" for name in ("base64", "bz2", "hex", "quopri", "uu", "zlib")} | {
    "rot_13",
    "mbcs",
}


class TestFaults:
    def test_pass_between_processes_whole(self):
        fault = FileFault("MP902", "why", 3, Path("a.py"))
        again = pickle.loads(pickle.dumps(fault))
        assert (again.code, again.message, again.line, again.path, str(again)) == (
            "MP902", "why", 3, Path("a.py"), "why",
        )  # fmt: skip


class TestRead:
    def test_gives_bytes_and_text(self):
        Path("a.py").write_bytes(BOM + b"x\r\n")
        source = read("a.py")
        assert (source.path, source.raw, source.text) == (Path("a.py"), BOM + b"x\r\n", "x\r\n")

    def test_faults_name_the_path(self):
        Path("a.py").write_bytes(b"\xff")
        assert fault_of(read, "a.py").path == Path("a.py")

    def test_what_is_no_file_is_never_opened(self):
        tree("directory/")
        os.mkfifo("pipe")  # Opening it would wait for a writer for ever.
        listening = socket.socket(socket.AF_UNIX)
        listening.bind("socket")
        os.symlink("nowhere", "dangling")
        os.symlink("loop", "loop")
        says = {
            "directory": "is a directory, not a file",
            "pipe": "is a named pipe, not a file",
            "socket": "is a socket, not a file",
            "/dev/null": "is a device, not a file",
            "dangling": "No such file or directory",
            "loop": "Too many levels of symbolic links",
            "gone": "No such file or directory",
        }
        for name, reason in says.items():
            fault = fault_of(read, name)
            assert (fault.code, fault.path) == ("MP903", Path(name))
            assert reason in fault.message
        listening.close()

    def test_unreadable_is_a_fault(self, monkeypatch):
        # Root may read anything, so that the mode cannot be relied on here.
        tree("a.py")
        monkeypatch.setattr(os, "open", failing(PermissionError(errno.EACCES, "Permission denied")))
        assert fault_of(read, "a.py").message == "cannot be read: Permission denied"


def failing(error):
    def fail(*arguments, **options):
        raise error

    return fail


class TestDiscover:
    def test_walks_for_python_files_in_the_order_of_git(self):
        tree(
            "b.py", "a/z.py", "a.py", "a-b/c.py", "a/b/c.py", "c.pyi", "d.txt", "e", "f.PY", "g.pyc"
        )
        assert found(".") == ["a-b/c.py", "a.py", "a/b/c.py", "a/z.py", "b.py"]

    def test_takes_a_named_file_whatever_it_is_called(self):
        tree("script", "stub.pyi", ".hidden/a.py", "node_modules/a.py")
        named = ["script", "stub.pyi", ".hidden/a.py", "node_modules/a.py"]
        assert found(*named) == named
        assert found(".hidden") == [".hidden/a.py"]

    def test_does_not_enter_what_is_not_the_users(self):
        tree(".git/hooks/a.py", ".hidden/a.py", "node_modules/a.py", "x/site-packages/a.py")
        tree("__pycache__/a.py", "v/pyvenv.cfg", "v/a.py", "c/conda-meta/", "c/bin/a.py")
        tree("venv/mine.py", ".hidden.py")
        assert found(".") == [".hidden.py", "venv/mine.py"]

    def test_enters_an_environment_given_by_name(self):
        tree("v/pyvenv.cfg", "v/a.py", "v/lib/site-packages/b.py")
        assert found("v") == ["v/a.py"]

    def test_any_name_is_possible(self):
        names = [os.fsdecode(name) for name in (b"\xff\xe9.py", b"a b.py", b"a\nb.py", b"-x.py")]
        tree(*names, "dir\n \udce9/x.py")
        assert set(found(".")) == {*names, "dir\n \udce9/x.py"}
        for name in names:
            source = read(name)
            write(source, "y\n", ["."])
            assert Path(name).read_bytes() == b"y\n"

    def test_a_file_comes_out_once(self):
        tree("a/b.py", "a/c.py")
        os.link("a/b.py", "a/other-name.py")
        os.symlink("c.py", "a/link.py")
        assert found("a/c.py", "a", "./a/../a", os.path.abspath("a")) == ["a/c.py", "a/b.py"]
        assert found("a/link.py", "a") == ["a/link.py", "a/b.py"]

    def test_paths_keep_the_users_spelling(self):
        tree("a/b.py")
        assert found("./a/") == ["a/b.py"]
        assert found(os.path.abspath("a")) == [os.path.abspath("a/b.py")]

    def test_a_link_in_a_walk_stands_for_a_target_that_a_walk_may_come_to(self):
        tree("root/tool", "root/in.py", "root/.h/tool", "root/out/tool", "root/v/tool", "else/tool")
        tree("else/x.py", "root/v/pyvenv.cfg")
        put("root/.gitignore", "out/\n")
        targets = [
            "in.py",
            ".h/tool",
            "out/tool",
            "v/tool",
            "../else/tool",
            "../else/x.py",
            "nowhere",
        ]
        for number, target in enumerate([*targets, "tool", "pipe"]):
            os.symlink(target, f"root/link{number}.py")
        os.mkfifo("root/pipe")
        assert found("root") == ["root/in.py", "root/tool"]
        assert found("root", "else") == ["root/in.py", "else/tool", "root/tool", "else/x.py"]
        assert "else/tool" not in found("root", "else", exclude=["else"])

    def test_links_to_directories_are_followed_only_by_name(self):
        tree("a/b.py")
        os.symlink(".", "a/loop")
        os.symlink("a", "link")
        assert found(".") == ["a/b.py"]
        assert found("link") == ["link/b.py"]

    def test_what_cannot_be_used_is_a_fault_and_the_rest_goes_on(self):
        tree("a.py", "d/p.py")
        os.mkfifo("pipe.py")
        os.mkfifo("d/pipe.py")
        os.symlink("nowhere", "dangling.py")
        os.symlink("nowhere", "d/dangling.py")
        assert found("gone", "pipe.py", "/dev/null", "dangling.py", "nul\0", "d", "a.py") == [
            ("MP903", "gone"),
            ("MP903", "pipe.py"),
            ("MP903", "/dev/null"),
            ("MP903", "dangling.py"),
            ("MP903", "nul\0"),
            "d/p.py",
            "a.py",
        ]

    def test_a_directory_that_cannot_be_listed_is_a_fault_and_one_that_vanished_is_none(
        self, monkeypatch
    ):
        tree("a/x.py", "b/x.py", "c/x.py")
        listing = os.scandir
        errors = {"a": PermissionError(errno.EACCES, "Permission denied"), "b": FileNotFoundError()}

        def scandir(path):
            if path in errors:
                raise errors[path]
            return listing(path)

        monkeypatch.setattr(os, "scandir", scandir)
        assert found(".") == [("MP903", "a"), "c/x.py"]
        assert found("a", "c") == [("MP903", "a"), "c/x.py"]

    def test_a_tree_may_vanish_while_it_is_walked(self):
        tree("a/x.py", "a/y.py", "b/x.py", "c.py")
        search = discover(["."])
        assert next(search) == Path("a/x.py")
        for name in ("a/y.py", "b/x.py", "c.py"):
            os.remove(name)
        os.rmdir("b")
        assert list(search) == []

    def test_depth_is_no_limit(self):
        depth = 200
        tree("d/" * depth + "x.py")
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(len(inspect.stack()) + depth // 2)
        try:
            assert found(".") == ["d/" * depth + "x.py"]
        finally:
            sys.setrecursionlimit(limit)

    def test_memory_holds_little_for_each_file(self):
        for directory in range(20):
            tree(*(f"{directory}/{file}.py" for file in range(100)))
        tracemalloc.start()
        assert sum(1 for _ in discover(["."])) == 2000
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 2000 * 300


class TestExclude:
    def test_is_a_glob_of_gitignore_from_the_working_directory(self):
        tree("a.py", "b.py", "d/a.py", "d/b.py", "d/e/a.py", "tests/a.py")
        assert found(exclude=["a.py"]) == ["b.py", "d/b.py"]
        assert found(exclude=["/a.py", "tests/"]) == ["b.py", "d/a.py", "d/b.py", "d/e/a.py"]
        assert found(exclude=["./a.py", "d/**/a.py"]) == ["b.py", "d/b.py", "tests/a.py"]
        assert found(exclude=["*.py", "!b.py"]) == ["b.py", "d/b.py"]
        assert found("d", exclude=["d/e"]) == ["d/a.py", "d/b.py"]
        assert found(os.path.abspath("d"), exclude=["/d/e", "b.py"]) == [os.path.abspath("d/a.py")]

    def test_holds_for_names_too(self):
        tree("a.py", "d/e/a.py", "b.py")
        assert found("a.py", "d/e/a.py", "d", "b.py", exclude=["d", "a*"]) == ["b.py"]
        assert found(".", exclude=[".*"]) == ["a.py", "b.py", "d/e/a.py"]
        os.chdir("d")
        assert found("../b.py", "e", exclude=["b.py"]) == ["e/a.py"]

    def test_is_not_undone_by_a_gitignore(self):
        tree("a.py", "b.py")
        put(".gitignore", "!a.py\n")
        assert found(exclude=["a.py"]) == ["b.py"]
        assert found(exclude=["a.py"], gitignore=False) == ["b.py"]


def git(*arguments):
    done = subprocess.run(["git", *arguments], check=True, capture_output=True)
    return [os.fsdecode(name) for name in done.stdout.split(b"\0") if name]


def unignored():
    return git("ls-files", "-z", "-o", "-c", "--exclude-standard", "--", "*.py")


class TestGitignore:
    def test_can_be_turned_off(self):
        tree("a.py", "b.py")
        put(".gitignore", "a.py\n")
        assert found() == ["b.py"]
        assert found(gitignore=False) == ["a.py", "b.py"]

    def test_a_named_path_is_taken_even_if_ignored(self):
        git("init", "-q")
        tree("build/a.py", "build/b.py")
        put(".gitignore", "build/\nb.py\n")
        assert found("build/b.py") == ["build/b.py"]
        assert found("build") == ["build/a.py"]

    def test_rules_above_count_up_to_the_top_of_the_repository(self):
        put(".gitignore", "a.py\n")
        tree("repo/sub/a.py", "repo/sub/b.py", "repo/sub/c.py", "repo/sub/d.py")
        git("init", "-q", "repo")
        put("repo/.gitignore", "/sub/b.py\n/c.py\n")
        put("repo/.git/info/exclude", "sub/d.py\n")
        assert found("repo/sub") == ["repo/sub/a.py", "repo/sub/c.py"]
        os.chdir("repo/sub")
        assert found() == ["a.py", "c.py"]

    def test_without_a_repository_only_rules_in_the_tree_count(self):
        put(".gitignore", "a.py\n")
        tree("t/a.py", "t/d/b.py", "t/d/c.py")
        put("t/d/.gitignore", "b.py\n")
        assert found("t") == ["t/a.py", "t/d/c.py"]

    def test_a_repository_in_the_tree_has_only_its_own_rules(self):
        git("init", "-q")
        put(".gitignore", "a.py\n")
        tree("inner/a.py", "inner/b.py")
        git("init", "-q", "inner")
        put("inner/.gitignore", "b.py\n")
        assert found() == ["inner/a.py"]

    def test_a_linked_worktree_has_the_rules_of_its_repository(self):
        git("init", "-q", "main")
        commit = ["-c", "user.name=n", "-c", "user.email=e", "commit", "-q", "--allow-empty", "-mm"]
        git("-C", "main", *commit)
        git("-C", "main", "worktree", "add", "-q", "../tree")
        put("main/.git/info/exclude", "a.py\n")
        tree("tree/a.py", "tree/b.py")
        assert found("tree") == ["tree/b.py"]

    def test_the_users_own_rules_count_and_may_be_a_link(self, tmp_path):
        put(tmp_path / "dotfiles", "a.py\nb.py\n")
        (tmp_path / "config/git").mkdir(parents=True)
        (tmp_path / "config/git/ignore").symlink_to(tmp_path / "dotfiles")
        git("init", "-q")
        put(".gitignore", "!b.py\n")
        tree("a.py", "b.py")
        assert found() == unignored() == ["b.py"]

    def test_an_ignore_file_that_is_no_file_is_none(self):
        tree("a.py")
        put("rules", "a.py\n")
        os.symlink("rules", ".gitignore")
        assert found() == ["a.py"]
        os.remove(".gitignore")
        os.mkfifo(".gitignore")
        assert found() == ["a.py"]

    def test_a_line_that_is_no_pattern_takes_nothing_from_the_others(self):
        tree("a.py", "b.py", "c.py")
        put(".gitignore", "a.py\n[z-x].py\n!\n//\n[[:alpha:]\n\nb.py\n")
        assert found() == ["c.py"]

    @pytest.mark.usefixtures("_project_on_the_path")
    def test_pathspec_is_imported_only_if_there_are_rules(self):
        tree("a.py")
        script = "import sys; from migrate_pallas.files import discover; list(discover(['.']))\n"
        script += "print('pathspec' in sys.modules)"
        for expected in ("False\n", "True\n"):
            done = subprocess.run(
                [sys.executable, "-W", "error", "-c", script], capture_output=True, check=True
            )
            assert done.stdout.decode() == expected
            put(".gitignore", "[[:alpha:]].py\n")

    # Beside each pattern, what makes it hard.
    @pytest.mark.parametrize(
        "rules",
        [
            "*\n!*/\n!x.py\n",  # A negated directory does not take its files back.
            "*.py\n!d/\n",
            "d/*\n!d/x.py\n",
            "d/\n!d/x.py\n",  # Nothing below an ignored directory comes back.
            "d/**\n!d/x.py\n",  # d/** does not match d.
            "d/**/x.py\n",
            "**/d/x.py\n",
            "/**/e\n",
            "d**x.py\n",
            "**/\n",
            "/*/\n",
            "/*\n!/d\n",
            "[x-y].py\n",
            "[!x].py\n[^y].py\n",
            "[]x].py\n",
            "[--x].py\n[a-c-y].py\n[::].py\n",
            "\\x.py\n\\!y.py\ny.py\\\n",
            "#x.py\n\\#.py\n!y.py\n\\!.py\n",
            "x.py   \ny.py\\ \n",
            "sp ace.py\n d\n",
            "x.py\r\ny.py",
            "x.py\r",
            "\ufeffx.py\n",
            "?.py\n",  # One byte, not one character.
            "??.py\n",
            "\u00e9.py\n",
            "/\n//\n!\nx.py//\n",
            "*x*y*.py\n",
            "e/\n",
            "d/e\n",
            "/d/*/x.py\n",
            "*.py\n!*.py\n",
        ],
    )
    def test_patterns_mean_what_they_mean_to_git(self, rules):
        git("init", "-q")
        tree(
            "x.py", "y.py", "#.py", "!.py", "!y.py", "].py", "-.py", "\u00e9.py", "ab.py", "x.y.py"
        )
        tree("sp ace.py", " d/x.py", "y.py ", "d/x.py", "d/y.py", "d/e/x.py", "d/e/f/x.y.py")
        tree("e/x.py", "dx.py", "d e/x.py", "f/d/x.py", "x/x.py", "x\n.py", ":.py", "f/e/y.py")
        Path(".gitignore").write_bytes(rules.encode())
        assert found() == unignored()

    @pytest.mark.parametrize("seed", range(12))
    def test_generated_trees_are_seen_as_git_sees_them(self, seed):
        draw = random.Random(seed)
        git("init", "-q")
        names = ["a", "b", "ab", "c.d"]
        for _ in range(60):
            steps = [draw.choice(names) for _ in range(draw.randint(0, 3))]
            tree("/".join([*steps, draw.choice(names) + ".py"]))
        bits = [
            "a",
            "b",
            "*",
            "**",
            "?",
            "[ab]",
            "[!a]",
            "a*",
            "*.py",
            "a.py",
            "b.py",
            "c.d",
            "**.py",
        ]
        places = [".", *draw.sample([str(path) for path in Path().rglob("*") if path.is_dir()
                                     and ".git" not in path.parts], 5)]  # fmt: skip
        for place in places:
            lines = [
                draw.choice(["", "", "!"])
                + draw.choice(["", "", "/"])
                + "/".join(draw.choice(bits) for _ in range(draw.choice([1, 1, 2, 3])))
                + draw.choice(["", "", "/"])
                for _ in range(draw.randint(1, 5))
            ]
            put(Path(place, ".gitignore"), "\n".join(lines))
        assert found() == unignored()


class TestFilesFrom:
    def test_is_one_name_a_line(self):
        assert files_from(b"a.py\nb c.py\r\n\n d.py") == ["a.py", "b c.py", " d.py"]
        assert files_from(b"") == []

    def test_is_nul_separated_when_there_is_a_nul(self):
        assert files_from(b"a\nb.py\0c.py\0") == ["a\nb.py", "c.py"]

    def test_names_need_not_be_utf_8(self):
        assert files_from(b"\xff.py\n") == [os.fsdecode(b"\xff.py")]


class TestWrite:
    def test_replaces_in_one_step_and_keeps_what_belongs_to_the_file(self):
        Path("a.py").write_bytes(BOM + b"x\r\n")
        os.chmod("a.py", 0o754)
        os.setxattr("a.py", "user.note", b"kept")
        if os.geteuid() == 0:
            os.chown("a.py", 12345, 23456)
        before = os.stat("a.py")
        write(read("a.py"), "y\r\n", ["."])
        after = os.stat("a.py")
        assert Path("a.py").read_bytes() == BOM + b"y\r\n"
        assert (after.st_mode, after.st_uid, after.st_gid) == (
            before.st_mode, before.st_uid, before.st_gid,
        )  # fmt: skip
        assert os.getxattr("a.py", "user.note") == b"kept"
        assert after.st_ino != before.st_ino
        assert names_in() == ["a.py"]

    def test_the_new_file_is_private_until_it_has_its_mode(self, monkeypatch):
        tree("a.py")
        seen = []
        chmod = os.chmod
        monkeypatch.setattr(
            os, "chmod", lambda path, mode: (seen.append(os.stat(path)), chmod(path, mode))
        )
        write(read("a.py"), "y\n", ["."])
        assert [stat.S_IMODE(status.st_mode) for status in seen] == [0o600]

    def test_is_flushed_before_it_is_seen(self, monkeypatch):
        tree("a.py")
        calls = []
        fsync, replace = os.fsync, os.replace
        monkeypatch.setattr(os, "fsync", lambda fd: (calls.append("fsync"), fsync(fd)))
        monkeypatch.setattr(os, "replace", lambda a, b: (calls.append("replace"), replace(a, b)))
        write(read("a.py"), "y\n", ["."])
        assert calls == ["fsync", "replace"]

    def test_leaves_an_unchanged_file_alone(self):
        tree("a.py")
        before = os.stat("a.py")
        write(read("a.py"), "x = 1\n", ["."])
        assert os.stat("a.py") == before

    def test_a_link_stays_a_link(self):
        tree("d/a.py")
        os.symlink("d/a.py", "link.py")
        write(read("link.py"), "y\n", ["link.py"])
        assert os.readlink("link.py") == "d/a.py"
        assert Path("d/a.py").read_text() == "y\n"
        assert names_in() == ["d", "link.py"]
        assert names_in("d") == ["a.py"]

    def test_a_target_outside_the_paths_given_is_refused(self):
        tree("out.py", "in/a.py", "in-too/b.py")
        os.symlink("../out.py", "in/link.py")
        os.symlink("../in-too/b.py", "in/link2.py")
        for link, target in (("in/link.py", "out.py"), ("in/link2.py", "in-too/b.py")):
            fault = fault_of(write, read(link), "y\n", ["in"])
            assert fault.code == "MP903"
            assert "not in the paths given" in fault.message
            assert Path(target).read_text() == "x = 1\n"

    def test_a_root_may_be_a_link_or_a_file(self):
        tree("in/a.py", "b.py")
        os.symlink("in", "alias")
        write(read("alias/a.py"), "y\n", ["alias"])
        write(read("b.py"), "y\n", ["alias", "./b.py"])
        assert Path("b.py").read_text() == "y\n"
        assert Path("in/a.py").read_text() == "y\n"

    def test_many_roots_are_followed_once(self, monkeypatch):
        names = [f"{number}.py" for number in range(20)]
        tree(*names)
        followed = []
        realpath = os.path.realpath
        monkeypatch.setattr(
            os.path, "realpath", lambda path: (followed.append(path), realpath(path))[1]
        )
        for name in names:
            write(read(name), "y\n", names)
        assert len(followed) == 2 * len(names)

    @pytest.mark.parametrize("mode", [0o444, 0o000, 0o464])
    def test_a_read_only_file_is_refused(self, mode):
        tree("a.py")
        source = read("a.py")
        os.chmod("a.py", mode)
        fault = fault_of(write, source, "y\n", ["."])
        assert (fault.code, fault.message) == ("MP903", "is read-only")

    def test_a_file_that_changed_or_went_is_left(self):
        tree("a.py", "b.py", "c.py")
        a, b, c = read("a.py"), read("b.py"), read("c.py")
        Path("a.py").write_text("x = 2\n")
        os.remove("b.py")
        os.remove("c.py")
        os.mkdir("c.py")
        faults = [fault_of(write, source, "y\n", ["."]) for source in (a, b, c)]
        assert [fault.code for fault in faults] == ["MP904"] * 3
        assert Path("a.py").read_text() == "x = 2\n"
        assert names_in() == ["a.py", "c.py"]

    @pytest.mark.parametrize("linked", [False, True], ids=["one name", "two names"])
    def test_a_change_in_the_last_moment_is_noticed(self, monkeypatch, linked):
        tree("a.py")
        if linked:
            os.link("a.py", "b.py")
        names = names_in()
        source = read("a.py")
        fsync = os.fsync
        monkeypatch.setattr(os, "fsync", lambda fd: (fsync(fd), Path("a.py").write_text("other\n")))
        assert fault_of(write, source, "y\n", ["."]).code == "MP904"
        assert Path("a.py").read_text() == "other\n"
        assert names_in() == names

    def test_a_file_saved_again_with_the_same_content_is_written(self):
        tree("a.py")
        source = read("a.py")
        Path("new").write_bytes(source.raw)
        os.replace("new", "a.py")
        write(source, "y\n", ["."])
        assert Path("a.py").read_text() == "y\n"

    def test_what_cannot_be_encoded_is_not_written(self):
        Path("a.py").write_bytes(b"# coding: ascii\n")
        assert fault_of(write, read("a.py"), "# coding: ascii\n# é\n", ["."]).code == "MP902"
        assert names_in() == ["a.py"]

    def test_a_long_name_is_no_obstacle(self):
        name = "n" * 252 + ".py"
        tree(name)
        write(read(name), "y\n", ["."])
        assert Path(name).read_text() == "y\n"

    def test_other_names_of_a_file_keep_it(self):
        tree("a.py")
        os.link("a.py", "b.py")
        os.chmod("a.py", 0o640)
        before = os.stat("a.py")
        for text in ("longer = 'than before'\n", "s\n"):
            write(read("a.py"), text, ["."])
            assert Path("b.py").read_text() == text
        after = os.stat("b.py")
        assert (after.st_ino, after.st_nlink, after.st_mode) == (
            before.st_ino, 2, before.st_mode,
        )  # fmt: skip
        assert names_in() == ["a.py", "b.py"]

    def test_the_backup_is_flushed_before_a_file_is_written_in_place(self, monkeypatch):
        tree("a.py")
        os.link("a.py", "b.py")
        seen = []
        fsync = os.fsync

        def watched(descriptor):
            [backup] = Path().glob(".migrate-pallas-*")
            seen.append((backup.read_text(), Path("a.py").read_text()))
            fsync(descriptor)

        monkeypatch.setattr(os, "fsync", watched)
        write(read("a.py"), "y\n", ["."])
        # The backup, the directory that names it, the file.
        assert seen == [("x = 1\n", "x = 1\n"), ("x = 1\n", "x = 1\n"), ("x = 1\n", "y\n")]


def at_call(number, error, function):
    """`function`, but for its call of that number, which raises `error` instead."""
    calls = iter(range(1000))

    def wrapped(*arguments, **options):
        if next(calls) == number:
            raise error
        return function(*arguments, **options)

    return wrapped


def outcome_of(function, *arguments):
    """What the call raised, or None."""
    try:
        function(*arguments)
    except BaseException as error:
        return error
    return None


FULL = OSError(errno.ENOSPC, "No space left on device")


class TestInterruptedAndFailedWrites:
    @pytest.mark.parametrize("error", [FULL, KeyboardInterrupt()], ids=["full", "interrupt"])
    @pytest.mark.parametrize("linked", [False, True], ids=["one name", "two names"])
    @pytest.mark.parametrize(
        ("call", "number"),
        [*((call, number) for call in ("open", "fsync") for number in range(3))]
        + [(call, 0) for call in ("replace", "chmod", "fstat")],
    )
    def test_leave_the_file_as_it_was_and_nothing_beside_it(
        self, monkeypatch, error, linked, call, number
    ):
        tree("a.py")
        if linked:
            os.link("a.py", "b.py")
        names = names_in()
        source = read("a.py")
        with monkeypatch.context() as patch:
            patch.setattr(os, call, at_call(number, error, getattr(os, call)))
            outcome = outcome_of(write, source, "y\n", ["."])
        text = Path("a.py").read_text()
        if outcome is None:
            assert text == "y\n"
        elif outcome is error:
            assert text in ("x = 1\n", "y\n")
        else:
            assert text == "x = 1\n"
            assert outcome.code == "MP903"
            assert outcome.message.endswith("No space left on device; it is as it was")
        assert names_in() == names

    @pytest.mark.parametrize("linked", [False, True], ids=["one name", "two names"])
    def test_survive_a_write_that_the_system_cuts_short(self, linked):
        tree("a.py")
        if linked:
            os.link("a.py", "b.py")
        names = names_in()
        source = read("a.py")
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
        try:
            fault = fault_of(write, source, "y\n" * 1000, ["."])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert fault.message == "cannot be written: File too large; it is as it was"
        assert Path("a.py").read_text() == "x = 1\n"
        assert names_in() == names

    def test_name_a_backup_that_cannot_be_removed(self, monkeypatch):
        tree("a.py")
        os.link("a.py", "b.py")
        monkeypatch.setattr(os, "unlink", failing(FULL))
        fault = fault_of(write, read("a.py"), "y\n", ["."])
        [backup] = Path().glob(".migrate-pallas-*")
        assert fault.code == "MP903"
        assert fault.message == f"left {backup.absolute()} behind: No space left on device"
        assert Path("a.py").read_text() == "y\n"

    @pytest.mark.parametrize("linked", [False, True], ids=["one name", "two names"])
    @pytest.mark.parametrize("call", ["open", "fsync", "chmod", "replace", "unlink"])
    def test_an_interrupt_waits_for_the_end_of_a_write(self, monkeypatch, call, linked):
        tree("a.py")
        if linked:
            os.link("a.py", "b.py")
        names = names_in()
        source = read("a.py")
        function = getattr(os, call)
        sent = []

        def interrupted(*arguments):
            sent.append(os.kill(os.getpid(), signal.SIGINT))
            return function(*arguments)

        with monkeypatch.context() as patch:
            patch.setattr(os, call, interrupted)
            outcome = outcome_of(write, source, "y\n", ["."])
        assert isinstance(outcome, KeyboardInterrupt) is bool(sent)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert Path("a.py").read_text() == "y\n"
        assert names_in() == names

    def test_a_write_works_in_any_thread(self):
        tree("a.py")
        thread = threading.Thread(target=write, args=(read("a.py"), "y\n", ["."]))
        thread.start()
        thread.join()
        assert Path("a.py").read_text() == "y\n"

    def test_leave_and_name_the_backup_of_a_file_that_cannot_be_restored(self, monkeypatch):
        tree("a.py")
        os.link("a.py", "b.py")
        monkeypatch.setattr(files, "_overwrite", failing(FULL))
        fault = fault_of(write, read("a.py"), "y\n", ["."])
        [backup] = Path().glob(".migrate-pallas-*")
        assert fault.code == "MP903"
        assert str(backup) in fault.message
        assert backup.read_text() == "x = 1\n"

    def test_leave_the_backup_if_restoring_is_interrupted(self, monkeypatch):
        tree("a.py")
        os.link("a.py", "b.py")
        monkeypatch.setattr(files, "_overwrite", failing(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            write(read("a.py"), "y\n", ["."])
        [backup] = Path().glob(".migrate-pallas-*")
        assert backup.read_text() == "x = 1\n"


ENDLESS = """
import sys
from migrate_pallas.files import read, write
letter = 0
print("ready", flush=True)
while True:
    letter = 1 - letter
    for number in range(5):
        write(read(f"{number}.py"), "ab"[letter] * SIZE, ["."])
"""


@pytest.fixture(scope="module")
def _project_on_the_path():
    root = str(Path(files.__file__).parents[1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", root)
        yield


@pytest.mark.usefixtures("_project_on_the_path")
@pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGINT])
def test_a_stopped_process_leaves_each_file_old_or_new(stop):
    size = 50_000
    for number in range(5):
        Path(f"{number}.py").write_text("a" * size)
    script = ENDLESS.replace("SIZE", str(size))
    draw = random.Random(stop)
    for _ in range(200):
        child = subprocess.Popen(
            [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        child.stdout.readline()
        # It is somewhere in a write when this many more files came into their place.
        wanted, last = draw.randint(1, 40), None
        while wanted:
            inode = os.stat(f"{draw.randrange(5)}.py").st_ino
            wanted, last = wanted - (inode != last), inode
        child.send_signal(stop)
        child.communicate()
        for number in range(5):
            assert Path(f"{number}.py").read_text() in ("a" * size, "b" * size)
        if stop == signal.SIGINT:
            assert names_in() == [f"{number}.py" for number in range(5)]
