"""The program as a whole: options, exit statuses, streams, hostile trees, signals."""

# Trees that no user would make by hand are made by calls of the system.
# ruff: noqa: PTH211

import errno
import os
import pty
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import migrate_pallas
from migrate_pallas import cli, execution, files
from migrate_pallas import run as runs

ROOT = Path(migrate_pallas.__file__).parents[1]
FIXTURES = ROOT / "fixtures"

BEFORE = b"""\
from jax.experimental import pallas as pl


def kernel(ref):
    pl.run_scoped(f, ref, collective_axes="i")
"""
AFTER = BEFORE.replace(b', collective_axes="i"', b"")
NOT_PYTHON = BEFORE + b"x = = 1\n"
TO = ("--to=interpret", "--select=MP101")


@pytest.fixture(autouse=True)
def _in_an_empty_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")


def put(name, content=BEFORE):
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


class Done:
    """How a run of the program ended: its status, what it printed, what it said."""

    def __init__(self, status, out, err):
        self.status, self.out, self.err = status, out, os.fsdecode(err)

    @property
    def lines(self):
        """What was said of files, without the summary, which is the last line."""
        return self.err.splitlines()[:-1]

    @property
    def codes(self):
        """The code of each fault or finding, with the file and line."""
        return re.findall(r"^(.*?:\d+):\d+: (MP\d+) ", self.err, re.MULTILINE)


@pytest.fixture
def migrate(capfdbinary, monkeypatch):
    """Run the program in this process."""

    def run(*arguments, stdin=b""):
        given = os.memfd_create("stdin")
        os.write(given, stdin)
        os.lseek(given, 0, os.SEEK_SET)
        interrupt = signal.getsignal(signal.SIGINT)
        with monkeypatch.context() as patch, os.fdopen(given) as file:
            patch.setattr(sys, "argv", ["migrate-pallas", *map(str, arguments)])
            patch.setattr(sys, "stdin", file)
            with pytest.raises(SystemExit) as ended:
                cli.main()
        signal.signal(signal.SIGINT, interrupt)
        return Done(ended.value.code, *capfdbinary.readouterr())

    return run


def program(*arguments, path=None, **options):
    """Run the program as a user does; what is in `path` is found by its imports."""
    done = subprocess.run(
        [sys.executable, "-m", "migrate_pallas", *arguments],
        capture_output=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, filter(None, (path, ROOT))))},
        check=False,
        **options,
    )
    return Done(done.returncode, done.stdout, done.stderr)


class TestOptions:
    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            (["."], "Missing option '--to'"),
            (["--to=gpu", "."], "'gpu' is not one of 'interpret', 'cpu'"),
            (["--to=cpu"], "No PATH given"),
            (["--to=cpu", "--strategy=keep", "."], "'keep' is not one of"),
            (["--to=cpu", "--gate=a b", "."], "'a b' can't be the name of a function"),
            (["--to=cpu", "--gate=", "."], "'' can't be the name of a function"),
            (["--to=cpu", "--gate=lambda", "."], "'lambda' can't be the name of a function"),
            (["--to=cpu", "--gate-import=a.b", "."], "'a.b' is not MODULE:NAME"),
            (["--to=cpu", "--gate-import=:f", "."], "':f' is not MODULE:NAME"),
            (["--to=cpu", "--gate-import=a..b:f", "."], "'a..b:f' is not MODULE:NAME"),
            (["--to=cpu", "--gate-import=a:class", "."], "'a:class' is not MODULE:NAME"),
            (["--to=cpu", "--gate=f", "--gate-import=a:g", "."], "name two gates: f and g"),
            (["--to=cpu", "--select=MP999", "."], "begins with 'MP999'"),
            (["--to=cpu", "--ignore=MP101,x", "."], "begins with 'X'"),
            (["--to=cpu", "--select=M101", "."], "did you mean MP101?"),
            (["--to=cpu", "--select=MP101", "--ignore=MP1", "."], "leave no rule or finding"),
            (["--to=cpu", "--write", "--diff", "."], "exclude each other"),
            (["--to=cpu", "--write", "--check", "."], "exclude each other"),
            (["--to=cpu", "--check", "--diff", "."], "exclude each other"),
            (["--to=cpu", "-", "."], "can't be mixed with other paths"),
            (["--to=cpu", "--files-from=-", "-"], "can't be mixed with other paths"),
            (["--to=cpu", "--files-from=gone"], "--files-from: gone: No such file"),
            (["--to=cpu", "--files-from=."], "--files-from: .: Is a directory"),
            (["--to=cpu", "--jobs=0", "."], "0 is not in the range"),
            (["--to=cpu", "--jobs=many", "."], "'many' is not a valid integer"),
            (["--to=cpu", "--wirte", "."], "No such option"),
        ],
    )
    def test_bad_usage_is_told_and_nothing_is_done(self, migrate, arguments, says):
        path = put("a.py")
        done = migrate(*arguments)
        assert done.status == 2
        assert says in done.err
        assert done.err.startswith("Usage: ")
        assert done.out == b""
        assert path.read_bytes() == BEFORE

    @pytest.mark.parametrize("gate", ["lib:f", "lib.sub:f", ".near:f", "..lib:f"])
    def test_a_gate_may_be_imported_from_any_module(self, migrate, gate):
        put("a.py")
        done = migrate("--to=cpu", "--select=MP101", f"--gate-import={gate}", "--gate=f", ".")
        assert done.status == 0
        assert f"+from {gate.partition(':')[0]} import f\n".encode() in done.out

    def test_help_and_version_are_printed(self, migrate):
        assert migrate("--version").out.split()[-1] == migrate_pallas.__version__.encode()
        done = migrate("--help")
        assert (done.status, done.err) == (0, "")
        for option in (b"--to", b"--write", b"--diff", b"--check", b"--files-from", b"--jobs"):
            assert option in done.out

    def test_the_package_runs_as_a_module(self):
        done = program("--to=interpret", "-", input=BEFORE)
        assert (done.status, done.out) == (0, AFTER)
        assert program().status == 2


class TestModes:
    def test_a_diff_is_the_default_and_writes_nothing(self, migrate):
        path = put("a.py")
        for arguments in ([], ["--diff"]):
            done = migrate(*TO, *arguments, "a.py")
            assert done.status == 0
            assert done.out.startswith(b"--- a/a.py\n+++ b/a.py\n@@ -2,4 +2,4 @@\n")
            assert done.err == "would change 1 argument in 1 of 1 file, 0 findings\n"
        assert path.read_bytes() == BEFORE

    def test_write_changes_files_and_prints_nothing(self, migrate):
        path = put("a.py")
        done = migrate(*TO, "--write", ".")
        assert (done.status, done.out) == (0, b"")
        assert done.lines == ["changed a.py"]
        assert path.read_bytes() == AFTER
        again = migrate(*TO, "--write", ".")
        assert (again.status, again.lines) == (0, [])

    def test_check_lists_what_would_change_and_exits_with_1(self, migrate):
        put("a.py")
        put("b.py", AFTER)
        done = migrate(*TO, "--check", ".")
        assert (done.status, done.out, done.lines) == (1, b"", ["would change a.py"])
        assert migrate(*TO, "--check", "b.py").status == 0

    def test_a_bad_file_makes_the_status_2_and_the_others_are_done(self, migrate):
        good, bad = put("b.py"), put("a.py", NOT_PYTHON)
        for mode, status in (("--check", 2), ("--diff", 2), ("--write", 2)):
            done = migrate(*TO, mode, ".")
            assert done.status == status
            assert done.codes == [("a.py:6", "MP901")]
            assert done.err.endswith("1 file failed\n")
        assert (good.read_bytes(), bad.read_bytes()) == (AFTER, NOT_PYTHON)

    def test_no_such_path_is_a_fault_and_the_others_are_done(self, migrate):
        path = put("a.py")
        done = migrate(*TO, "--write", "gone.py", "a.py", "gone/")
        assert done.status == 2
        assert done.codes == [("gone.py:1", "MP903"), ("gone:1", "MP903")]
        assert "No such file or directory" in done.err
        assert path.read_bytes() == AFTER

    def test_an_error_of_ours_outside_of_files_is_told_without_a_traceback(
        self, migrate, monkeypatch
    ):
        put("a.py")
        monkeypatch.setattr(execution, "discover", lambda *paths, **options: [1 / 0])
        done = migrate(*TO, "--write", ".")
        assert done.status == 2
        assert re.fullmatch(
            r"internal error: ZeroDivisionError: .* \(at test_cli.py:\d+\); please report it\n",
            done.err,
        )

    def test_an_error_of_ours_is_told_and_the_others_are_done(self, migrate, monkeypatch):
        put("a.py", b"bug\n")
        path = put("b.py")
        examine = runs.examine

        def endless(text, settings):
            return endless(text, settings) if text == "bug\n" else examine(text, settings)

        monkeypatch.setattr(runs, "examine", endless)
        done = migrate(*TO, "--write", ".")
        assert done.status == 2
        assert done.codes == [("a.py:1", "MP905")]
        assert "RecursionError" in done.err and "please report it" in done.err
        assert path.read_bytes() == AFTER


class TestPipe:
    @pytest.mark.parametrize(
        "how",
        [
            lambda raw: raw,
            lambda raw: raw.replace(b"\n", b"\r\n"),
            lambda raw: raw.replace(b"\n", b"\r"),
            lambda raw: b"\xef\xbb\xbf" + raw,
            lambda raw: b"# coding: latin-1\n# \xe9\n" + raw,
            lambda raw: raw.removesuffix(b"\n"),
            lambda raw: raw.replace(b"\n\n", b"\n\x0c\n"),
        ],
        ids=["plain", "crlf", "cr", "bom", "latin-1", "no final newline", "form feed"],
    )
    def test_bytes_that_do_not_change_come_out_as_they_went_in(self, migrate, how):
        done = migrate(*TO, "-", stdin=how(BEFORE))
        assert (done.status, done.out, done.err) == (0, how(AFTER), "")
        assert migrate(*TO, "-", stdin=how(AFTER)).out == how(AFTER)

    def test_modes_print_a_diff_or_nothing_or_the_source(self, migrate):
        assert migrate(*TO, "--diff", "-", stdin=BEFORE).out.startswith(b"--- a/<stdin>\n")
        assert migrate(*TO, "--write", "-", stdin=BEFORE).out == AFTER
        done = migrate(*TO, "--check", "-", stdin=BEFORE)
        assert (done.status, done.out) == (1, b"")
        assert migrate(*TO, "--check", "-", stdin=AFTER).status == 0

    @pytest.mark.parametrize(
        ("raw", "code"),
        [(NOT_PYTHON, ("<stdin>:6", "MP901")), (BEFORE + b"#\xff\n", ("<stdin>:6", "MP902"))],
    )
    def test_what_cannot_be_done_gives_no_output(self, migrate, raw, code):
        done = migrate(*TO, "-", stdin=raw)
        assert (done.status, done.out, done.codes) == (2, b"", [code])

    def test_nothing_in_gives_nothing_out(self, migrate):
        done = migrate(*TO, "-")
        assert (done.status, done.out, done.err) == (0, b"", "")


class TestChoiceOfFiles:
    @pytest.mark.parametrize("names", [b"a.py\nd e.py\n", b"a.py\r\n\nd e.py", b"a.py\0d e.py\0"])
    def test_files_may_be_listed(self, migrate, names):
        for name in ("a.py", "d e.py", "other.py"):
            put(name)
        listed = put("list", names)
        expected = ["would change a.py", "would change d e.py"]
        assert migrate(*TO, "--check", f"--files-from={listed}").lines == expected
        assert migrate(*TO, "--check", "--files-from=-", stdin=names).lines == expected
        done = migrate(*TO, "--check", "--files-from=-", "other.py", stdin=names)
        assert done.lines == ["would change other.py", *expected]

    def test_listed_names_may_hold_newlines_dashes_and_any_bytes(self, migrate):
        names = [b"-", b"a\nb.py", b"\xff.py"]
        for name in names:
            put(os.fsdecode(name))
        done = migrate(*TO, "--write", "--files-from=-", stdin=b"\0".join(names))
        assert done.status == 0
        assert all(Path(os.fsdecode(name)).read_bytes() == AFTER for name in names)

    def test_an_empty_list_is_no_file(self, migrate):
        done = migrate(*TO, "--check", "--files-from=-")
        assert (done.status, done.lines) == (0, [])

    def test_what_git_ignores_is_left_out_unless_asked_for(self, migrate):
        put("a.py")
        put("build/b.py")
        put(".gitignore", b"build/\n")
        assert migrate(*TO, "--check", ".").lines == ["would change a.py"]
        everything = ["would change a.py", "would change build/b.py"]
        assert migrate(*TO, "--check", "--no-gitignore", ".").lines == everything

    def test_what_is_excluded_is_left_out(self, migrate):
        for name in ("a.py", "b.py", "d/c.py"):
            put(name)
        done = migrate(*TO, "--check", "--exclude=d/", "--exclude=b.*", ".")
        assert done.lines == ["would change a.py"]


def git(*arguments, stdin=None):
    done = subprocess.run(["git", *arguments], input=stdin, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


NAMES = [
    b"plain.py",
    b"with space.py",
    b"trailing /a.py",
    b"'single' \"double\".py",
    b"back\\slash.py",
    b"tab\tnewline\n.py",
    "\u00e9\u6f22.py".encode(),
    b"latin-\xe9.py",
    b"-dash.py",
    b"deep/er/still/a.py",
]


class TestDiffs:
    def applied(self, migrate, *paths):
        """Apply the diff of a run with git, and return the run."""
        git("init", "-q")
        done = migrate(*TO, "--diff", *paths)
        git("apply", "--whitespace=nowarn", "-", stdin=done.out)
        return done

    def test_git_applies_them_whatever_a_file_is_called(self, migrate):
        for name in NAMES:
            put(os.fsdecode(name))
        done = self.applied(migrate, ".")
        assert done.status == 0
        assert all(Path(os.fsdecode(name)).read_bytes() == AFTER for name in NAMES)

    def test_names_are_said_as_they_are(self, migrate):
        for name in NAMES:
            put(os.fsdecode(name), NOT_PYTHON)
        done = migrate(*TO, "--write", ".")
        assert done.status == 2
        said = os.fsencode(done.err)
        assert all(name + b":6:" in said for name in NAMES)

    def test_git_applies_them_whatever_a_file_holds(self, migrate):
        kinds = {
            "crlf.py": BEFORE.replace(b"\n", b"\r\n"),
            "mixed.py": BEFORE.replace(b"\n\n\n", b"\r\n\n\r\n"),
            "bom.py": b"\xef\xbb\xbf" + BEFORE,
            "latin.py": b"# coding: latin-1\n" + BEFORE.replace(b"f, ref", b"f, ref, '\xe9'"),
            "open.py": BEFORE.removesuffix(b"\n"),
            "open-crlf.py": BEFORE.replace(b"\n", b"\r\n").removesuffix(b"\r\n"),
            "feed.py": BEFORE.replace(b"\n\n", b"\n\x0c\n"),
        }
        for name, raw in kinds.items():
            put(name, raw)
        assert self.applied(migrate, ".").status == 0
        for name, raw in kinds.items():
            assert Path(name).read_bytes() == raw.replace(b', collective_axes="i"', b""), name

    def test_names_are_relative_to_the_working_directory(self, migrate, monkeypatch):
        path = put("sub/a.py").absolute()
        done = self.applied(migrate, path)
        assert done.out.startswith(b"--- a/sub/a.py\n")
        assert path.read_bytes() == AFTER

    @pytest.mark.parametrize("target", ["interpret", "cpu"])
    def test_applied_to_all_fixtures_they_are_what_write_does(self, migrate, target):
        git("init", "-q")
        before = sorted(FIXTURES.rglob("before.py"))
        assert before
        for path in before:
            for side in ("diffed", "written"):
                put(side / path.relative_to(FIXTURES), path.read_bytes())
        done = migrate(f"--to={target}", "--diff", "diffed")
        assert done.status == 0
        assert migrate(f"--to={target}", "--write", "written").status == 0
        git("apply", "--whitespace=nowarn", "-", stdin=done.out)
        for path in before:
            name = path.relative_to(FIXTURES)
            assert ("diffed" / name).read_bytes() == ("written" / name).read_bytes(), name


class TestHostileTrees:
    def test_what_is_no_file_is_passed_over_in_a_walk(self, migrate):
        good, outside = put("tree/good.py"), put("outside/x.py")
        os.mkfifo("tree/pipe.py")
        os.symlink("/dev/zero", "tree/device.py")
        os.symlink("nowhere", "tree/dangling.py")
        os.symlink("loop.py", "tree/loop.py")
        os.symlink(".", "tree/again")
        os.symlink("../outside/x.py", "tree/out.py")
        os.symlink("../outside", "tree/outside")
        done = migrate(*TO, "--write", "tree")
        assert (done.status, done.lines) == (0, ["changed tree/good.py"])
        assert (good.read_bytes(), outside.read_bytes()) == (AFTER, BEFORE)

    def test_what_is_no_file_is_told_if_it_is_named(self, migrate):
        os.mkfifo("pipe.py")
        os.symlink("nowhere", "dangling.py")
        os.symlink("loop.py", "loop.py")
        good = put("good.py")
        done = migrate(*TO, "--write", "pipe.py", "dangling.py", "loop.py", "/dev/null", "good.py")
        assert done.status == 2
        assert [code for _, code in done.codes] == ["MP903"] * 4
        for reason in ("a named pipe", "a link that leads nowhere", "levels of", "a device"):
            assert reason in done.err
        assert good.read_bytes() == AFTER

    def test_each_bad_file_is_told_with_its_line_and_the_others_are_done(self, migrate):
        put("binary.py", BEFORE + b"\0\n")
        put("empty.py", b"")
        put("encoding.py", b"# coding: nonsense\n" + BEFORE)
        put("latin.py", BEFORE + b"# \xe9\n")
        put("syntax.py", NOT_PYTHON)
        put("utf16.py", BEFORE.decode().encode("utf-16"))
        read_only, good = put("read-only.py"), put("good.py")
        read_only.chmod(0o444)
        done = migrate(*TO, "--write", ".")
        assert done.status == 2
        assert done.codes == [
            ("binary.py:6", "MP901"),
            ("encoding.py:1", "MP902"),
            ("latin.py:6", "MP902"),
            ("read-only.py:1", "MP903"),
            ("syntax.py:6", "MP901"),
            ("utf16.py:1", "MP902"),
        ]
        assert (good.read_bytes(), read_only.read_bytes()) == (AFTER, BEFORE)
        assert done.err.endswith("6 files failed\n")

    def test_an_unreadable_file_is_told(self, migrate, monkeypatch):
        # Root may read anything, so that the mode cannot be relied on here.
        put("a.py")
        good = put("b.py")
        opened = os.open

        def refuse(path, *arguments, **options):
            if os.fspath(path) == "a.py":
                raise PermissionError(errno.EACCES, "Permission denied")
            return opened(path, *arguments, **options)

        monkeypatch.setattr(files.os, "open", refuse)
        done = migrate(*TO, "--write", "--jobs=1", ".")
        assert (done.status, done.codes) == (2, [("a.py:1", "MP903")])
        assert "cannot be read: Permission denied" in done.err
        assert good.read_bytes() == AFTER

    @pytest.mark.parametrize(
        ("meanwhile", "says"),
        [
            (lambda path: path.write_bytes(b"mine\n"), "has changed since it was read"),
            (lambda path: path.unlink(), "is gone since it was read"),
            (lambda path: (path.unlink(), path.mkdir()), "has become a directory since"),
            (lambda path: (path.unlink(), os.mkfifo(path)), "has become a named pipe since"),
        ],
    )
    def test_a_file_that_changes_under_our_hands_is_told_and_left(
        self, migrate, monkeypatch, meanwhile, says
    ):
        path, good = put("a.py"), put("b.py")
        proven = runs.proven

        def slow(*arguments):
            if good.exists() and not hasattr(slow, "called"):
                slow.called = meanwhile(path) or True
            return proven(*arguments)

        monkeypatch.setattr(runs, "proven", slow)
        done = migrate(*TO, "--write", ".")
        assert (done.status, done.codes) == (2, [("a.py:1", "MP904")])
        assert says in done.err
        assert good.read_bytes() == AFTER


def copies(number):
    """A tree of small files that are to change: where each is, what it holds, what it will hold."""
    kinds = sorted(FIXTURES.glob("MP101/*/before.py"))
    assert kinds
    paths = [Path("tree", f"{each:04}", "a.py") for each in range(number)]
    before = {path: kinds[n % len(kinds)].read_bytes() for n, path in enumerate(paths)}
    for path, raw in before.items():
        put(path, raw)
    after = {path: runs.piped(raw, TASK).result for path, raw in before.items()}
    return before, after


TASK = runs.Task(runs.Settings(select=("MP101",)), write=False)


class Running:
    """The program in a process of its own, the first of a group, as a shell would start it.

    A copy of this process runs it, which spares every round the time to import.
    """

    def __init__(self, *arguments, stderr=None):
        self.said = Path("said")
        with self.said.open("wb") as said:
            self.pid = os.fork()
            if self.pid == 0:
                os.setpgid(0, 0)
                os.dup2(said.fileno(), 1)
                os.dup2(said.fileno() if stderr is None else stderr, 2)
                self._main(arguments)

    def _main(self, arguments):
        sys.argv = ["migrate-pallas", *arguments]
        sys.stdout, sys.stderr = (open(stream, "w", closefd=False) for stream in (1, 2))  # noqa: SIM115
        status = 99
        try:
            cli.main()
        except SystemExit as ended:
            status = ended.code
        finally:
            os._exit(status)

    def workers(self):
        try:
            children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text()
        except OSError:
            return []
        return [int(child) for child in children.split()]

    def wait_until(self, condition):
        """Wait until something holds, or the program has ended."""
        while not condition():
            if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG):
                return

    def end(self):
        """Wait for the end of the program and of all its processes; return its status."""
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        patience = time.monotonic() + 30
        while left := in_group(self.pid):
            assert time.monotonic() < patience, left
        return status


def in_group(group):
    """The processes of a group that still run."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, its_group = stat.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue  # It has just ended.
        if int(its_group) == group and state not in "ZX":
            found.append(stat)
    return found


class TestSignals:
    """Moments are chosen by how many files have changed, so that each round is another."""

    ROUNDS = range(12)
    FILES = 60

    @pytest.fixture
    def tree(self, monkeypatch):
        monkeypatch.setattr(runs, "_MOST_FILES", 8)
        before, after = copies(self.FILES)
        return [path for path in before if before[path] != after[path]], before, after

    def started(self, changing, before, seed, jobs):
        for path, raw in before.items():
            path.write_bytes(raw)
        inodes = {path: path.stat().st_ino for path in changing}
        running = Running(*TO, "--write", f"--jobs={jobs}", "tree")
        last = random.Random(seed).choice(changing[:-10])
        running.wait_until(lambda: last.stat().st_ino != inodes[last])
        return running

    @staticmethod
    def states(before, after):
        """Whether each file is as it was, or as it should be; nothing else is there."""
        found = {path: path.read_bytes() for path in Path("tree").rglob("*") if path.is_file()}
        assert found.keys() == before.keys()
        for path, raw in found.items():
            assert raw in (before[path], after[path]), path
        return found

    def test_an_interrupt_ends_all_and_leaves_each_file_old_or_new(self, tree):
        changing, before, after = tree
        for seed in self.ROUNDS:
            running = self.started(changing, before, seed, jobs=1 + seed % 3)
            os.killpg(running.pid, signal.SIGINT)
            status = running.end()
            found = self.states(before, after)
            said = running.said.read_text()
            if status == 0:
                assert found == after
            else:
                assert status == 130, said
                assert said.endswith("interrupted: files are as they were, or wholly changed\n")
            # An empty line ends the one in which a terminal shows ^C.
            others = [line for line in said.splitlines() if not line.startswith("changed ")]
            assert len(others) <= 2 and "" in (*others[:-1], ""), said

    def test_an_interrupt_may_come_while_the_program_is_imported(self):
        Path("click.py").write_text("raise KeyboardInterrupt")
        done = program("--version", path=Path.cwd())
        assert (done.status, done.err) == (130, "interrupted: files are as they were\n")

    def test_an_interrupt_needs_nobody_who_listens(self, migrate, monkeypatch):
        def interrupted(*arguments, **options):
            raise KeyboardInterrupt

        monkeypatch.setattr(execution, "discover", interrupted)
        assert migrate(*TO, ".").status == 130

        def closed(line):
            raise cli.OutputClosed

        monkeypatch.setattr(cli, "say", closed)
        assert migrate(*TO, ".").status == 130

    def test_an_interrupt_of_the_first_process_alone_ends_all(self, tree):
        changing, before, after = tree
        running = self.started(changing, before, 0, jobs=2)
        os.kill(running.pid, signal.SIGINT)
        assert running.end() in (130, 0)
        self.states(before, after)
        assert "Traceback" not in running.said.read_text()

    def test_a_killed_worker_loses_nothing(self, tree):
        changing, before, after = tree
        killed = 0
        for seed in self.ROUNDS:
            running = self.started(changing, before, seed, jobs=2)
            for worker in running.workers()[:1]:
                os.kill(worker, signal.SIGKILL)
                killed += 1
            status, said = running.end(), running.said.read_text()
            assert status == 0, said
            assert self.states(before, after) == after
            assert "Traceback" not in said
        assert killed > len(self.ROUNDS) // 2

    def test_killed_as_a_whole_it_leaves_each_file_old_or_new(self, tree):
        changing, before, after = tree
        for seed in self.ROUNDS:
            running = self.started(changing, before, seed, jobs=2)
            os.kill(running.pid, signal.SIGKILL)
            assert running.end() in (-signal.SIGKILL, 0)
            self.states(before, after)
            assert "Traceback" not in running.said.read_text()

    def test_a_reader_that_goes_away_is_no_error(self):
        copies(100)
        for arguments in ([*TO, "--diff", "tree"], [*TO, "--diff", "--jobs=1", "tree"]):
            command = [sys.executable, "-m", "migrate_pallas", *arguments]
            running = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )
            running.stdout.read(10)
            running.stdout.close()
            assert running.stderr.read() == b""
            assert running.wait() == 141


class TestProgress:
    def test_is_seen_on_a_terminal_and_gone_in_the_end(self, monkeypatch):
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setattr("migrate_pallas.progress._PATIENCE", 0)
        monkeypatch.setattr("migrate_pallas.progress._INTERVAL", 0)
        for name in ("a.py", "c.py"):
            put(name)
        put("b.py", NOT_PYTHON)
        ours, its = pty.openpty()
        running = Running(*TO, "--diff", "--color=never", ".", stderr=its)
        os.close(its)
        written = all_of(ours)
        assert running.end() == 2
        assert b"1 file done" in written and b"3 files done" in written
        lines = seen(written)
        assert lines[0].startswith("b.py:6:5: MP901 ")
        assert lines[1:] == [
            "would change 2 arguments in 2 of 3 files, 0 findings, 1 file failed",
            "",
        ]
        diffs = running.said.read_bytes()
        assert b"done" not in diffs and b"\x1b" not in diffs
        assert diffs.count(b"\n--- a/") == 1 and diffs.startswith(b"--- a/a.py\n")

    def test_is_not_seen_elsewhere(self, migrate, monkeypatch):
        monkeypatch.setattr("migrate_pallas.progress._PATIENCE", 0)
        put("a.py")
        assert "done" not in migrate(*TO, "--check", ".").err


def all_of(terminal):
    """What comes from a terminal until its other side is closed, which Linux tells as an error."""
    written = b""
    while True:
        try:
            written += os.read(terminal, 4096)
        except OSError:
            return written


def seen(written):
    """The lines that stay on a screen."""
    lines = written.decode().replace("\r\n", "\n").split("\n")
    return [re.sub(r"^.*\r\x1b\[K", "", line) for line in lines]
