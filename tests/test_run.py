"""A run over many files: `migrate_pallas.run` and `migrate_pallas.workers`."""

import gc
import os
import pickle
import signal
import time
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import chain, count
from pathlib import Path

import pytest

from migrate_pallas import run as runs
from migrate_pallas import workers
from migrate_pallas.files import FileFault, read
from migrate_pallas.pipeline import examine
from migrate_pallas.run import Outcome, Task, piped, run, work
from migrate_pallas.settings import Settings
from migrate_pallas.workers import Work, in_order

BEFORE = b"""\
from jax.experimental import pallas as pl


def kernel(ref):
    pl.run_scoped(f, ref, collective_axes="i")
"""
AFTER = BEFORE.replace(b', collective_axes="i"', b"")
LOOK = Task(Settings(select=("MP101",)), write=False)
WRITE = replace(LOOK, write=True, roots=(".",))


@pytest.fixture(autouse=True)
def _in_an_empty_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def sources(number, content=BEFORE):
    """Make so many files; a number in each keeps them apart."""
    paths = [Path(f"{each:03}.py") for each in range(number)]
    for path in paths:
        path.write_bytes(content)
    return paths


def has_children():
    """Whether this process has a child that it has not waited for."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT | os.WNOHANG)
    except ChildProcessError:
        return False
    return True


class TestOneFile:
    def test_a_change_comes_with_its_diff_and_is_only_written_if_asked_for(self):
        [path] = sources(1)
        outcome = work(path, LOOK)
        assert [change.code for change in outcome.changes] == ["MP101"]
        assert outcome.diff.startswith(b"--- a/000.py\n+++ b/000.py\n")
        assert outcome.result == AFTER
        assert path.read_bytes() == BEFORE
        assert work(path, WRITE) == outcome
        assert path.read_bytes() == AFTER

    @pytest.mark.parametrize(
        ("content", "place"),
        [
            (BEFORE + b"x = = 1\n", ("MP901", BEFORE.count(b"\n") + 1)),
            (b"x = 1\n'\xff'\n", ("MP902", 2)),
        ],
    )
    def test_a_bad_file_is_a_fault_with_its_place(self, content, place):
        [path] = sources(1, content)
        fault = work(path, LOOK).fault
        assert (fault.code, fault.line) == place

    def test_a_fault_in_a_part_that_no_rule_looks_at_is_told_if_anything_is(self):
        broken = b"\n\ndef other():\n    x y\n"
        gpu = b"from jax.experimental.pallas import mosaic_gpu\n"
        nothing = BEFORE.replace(b', collective_axes="i"', b"") + b"    # collective_axes\n"
        for content, line in [(BEFORE, 9), (gpu + BEFORE, 10), (nothing, None)]:
            [path] = sources(1, content + broken)
            fault = work(path, replace(LOOK, settings=Settings())).fault
            assert (fault and (fault.code, fault.line)) == (line and ("MP901", line))

    def test_the_collector_is_paused_meanwhile_and_left_as_it_was(self, monkeypatch):
        seen = []
        monkeypatch.setattr(
            runs, "examine", lambda *asked: (seen.append(gc.isenabled()), examine(*asked))[1]
        )
        for path in sources(1) + sources(1, b"x = = 1\n# run_scoped collective_axes\n"):
            work(path, LOOK)
            assert gc.isenabled()
        gc.disable()
        try:
            work(path, LOOK)
            assert not gc.isenabled()
        finally:
            gc.enable()
        assert seen == [False, False, False]

    def test_parts_that_no_rule_looks_at_are_not_parsed(self):
        text = BEFORE.decode() + "\n\ndef other(x):\n    return x\n\n\nLIMIT = other(7)\n"
        tree = examine(text, LOOK.settings).module.tree
        assert [part.is_parsed for part in tree.parts] == [True, True, False, False]

    @pytest.mark.parametrize(
        "error",
        [RecursionError("maximum recursion depth exceeded"), MemoryError(), KeyError("a\nb")],
    )
    def test_an_error_of_ours_is_a_fault_and_the_file_is_as_it_was(self, monkeypatch, error):
        [path] = sources(1)
        monkeypatch.setattr(runs, "examine", raising(error))
        fault = work(path, WRITE).fault
        assert fault.code == "MP905"
        assert fault.message.startswith("internal error, the file is as it was: ")
        assert type(error).__name__ in fault.message
        assert "(at test_run.py:" in fault.message
        assert "\n" not in fault.message
        assert path.read_bytes() == BEFORE

    @pytest.mark.parametrize("step", ["proven", "encode", "unified", "write"])
    def test_an_error_at_any_step_leaves_the_file_as_it_was(self, monkeypatch, step):
        [path] = sources(1)
        monkeypatch.setattr(runs, step, raising(ZeroDivisionError()))
        assert work(path, WRITE).fault.code == "MP905"
        assert path.read_bytes() == BEFORE

    def test_an_interrupt_is_none_of_our_errors(self, monkeypatch):
        [path] = sources(1)
        monkeypatch.setattr(runs, "examine", raising(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            work(path, LOOK)

    def test_a_file_that_changes_between_reading_and_writing_is_a_fault(self, monkeypatch):
        [path] = sources(1)
        monkeypatch.setattr(
            runs, "encode", lambda source, text: (path.write_bytes(b"mine\n"), AFTER)[1]
        )
        outcome = work(path, WRITE)
        assert (outcome.fault.code, outcome.fault.message) == (
            "MP904", "has changed since it was read",
        )  # fmt: skip
        assert path.read_bytes() == b"mine\n"

    def test_a_file_that_vanishes_between_reading_and_writing_is_a_fault(self, monkeypatch):
        [path] = sources(1)
        monkeypatch.setattr(runs, "encode", lambda source, text: (path.unlink(), AFTER)[1])
        assert work(path, WRITE).fault.code == "MP904"
        assert not path.exists()

    def test_source_that_is_no_file_comes_back_whole_whatever_is_asked(self):
        assert piped(BEFORE, WRITE).result == AFTER
        assert piped(b"x = 1\r\n", WRITE).result == b"x = 1\r\n"
        assert piped(b"# \xff\n", WRITE).result == b""

    def test_outcomes_pass_between_processes(self):
        [path] = sources(1)
        outcome = work(path, LOOK)
        assert pickle.loads(pickle.dumps(outcome)) == outcome


def raising(error):
    def fail(*arguments):
        raise error

    return fail


class TestManyFiles:
    @pytest.mark.parametrize("jobs", [1, 2, 5])
    def test_outcomes_come_in_the_order_of_the_files(self, jobs):
        paths = sources(70)
        for path in paths[::3]:
            path.write_bytes(b"x = 1\n")
        paths[10].write_bytes(b"'\xff'\n")
        fault = FileFault("MP903", "is gone", None, Path("gone.py"))
        outcomes = list(run([*paths[:40], fault, *paths[40:]], WRITE, jobs))
        names = [path.name for path in paths]
        assert [outcome.path for outcome in outcomes] == [*names[:40], "gone.py", *names[40:]]
        assert [outcome.path for outcome in outcomes if outcome.fault] == ["010.py", "gone.py"]
        changed = [path.name for path in paths if path.read_bytes() == AFTER]
        assert [outcome.path for outcome in outcomes if outcome.changes] == changed
        assert len(changed) == 70 - 24 - 1
        # What nobody asked for is not sent from one process to another.
        assert any(outcome.result for outcome in outcomes) is (jobs == 1)

    def test_processes_need_not_be_forks(self, monkeypatch):
        monkeypatch.setattr("multiprocessing.get_all_start_methods", lambda: ["spawn"])
        paths = sources(40)
        child = os.fork()  # It leaves a process of multiprocessing's own behind.
        if not child:
            os._exit(not all(outcome.changes for outcome in run(paths, WRITE, 2)))
        assert os.waitpid(child, 0)[1] == 0
        assert {path.read_bytes() for path in paths} == {AFTER}

    def test_few_files_need_no_process(self, monkeypatch):
        monkeypatch.setattr(workers, "in_order", raising(AssertionError("processes were started")))
        assert len(list(run(sources(20), LOOK, 8))) == 20

    def test_a_long_file_is_a_chunk_of_its_own(self):
        paths = sources(6)
        paths[2].write_bytes(b"#" * 100_000)
        assert list(runs._chunks(paths)) == [paths[:2], paths[2:3], paths[3:]]

    def test_chunks_are_bounded(self):
        assert [len(chunk) for chunk in runs._chunks(sources(70))] == [32, 32, 6]
        assert [len(chunk) for chunk in runs._chunks(sources(5, b"#" * 30_000))] == [2, 2, 1]

    def test_a_fault_of_the_search_takes_no_part_in_sizes(self):
        faults = [FileFault("MP903", "why", None, Path("gone")), FileFault("MP903", "why")]
        assert list(runs._chunks([*faults, Path("gone.py")])) == [[*faults, Path("gone.py")]]
        assert [outcome.path for outcome in run(faults, LOOK, 1)] == ["gone", ""]


# Work that the tests give to processes. Where an item says so, something goes wrong.


def kill(item, times):
    """Kill this process, so many times for an item; a file counts."""
    with Path(f"deaths-{item}").open("ab") as deaths:
        deaths.write(b"x")
        deaths.flush()
        if deaths.tell() <= times:
            os.kill(os.getpid(), signal.SIGKILL)


def ten_times(item, deaths=None):
    if deaths and item in deaths:
        kill(item, deaths[item])
    return item * 10 if item % 2 else None


def no_result(pid, item, last):
    assert not Path(f"/proc/{pid}").exists()
    return -item if last else None


def results_of(chunks, deaths=None, jobs=2):
    do = Work(partial(ten_times, deaths=deaths), no_result)
    return list(in_order(iter(chunks), do, jobs))


CHUNKS = [[1, 2, 3], [4], [5, 6, 7, 8], [9, 10], [11]]
DONE = [[10, None, 30], [None], [50, None, 70, None], [90, None], [110]]


class TestProcesses:
    @pytest.mark.parametrize("jobs", [1, 2, 9])
    def test_results_come_in_order_and_nothing_stays_behind(self, jobs):
        assert results_of(CHUNKS, jobs=jobs) == DONE
        assert not has_children()

    def test_the_last_items_are_handed_out_one_by_one_the_largest_first(self):
        chunks = [[1, 2, 30], [40, 5, 6], [7, 80, 9], [10, 11, 12]]

        def do(item):
            time.sleep(0.02)
            return time.monotonic(), item

        results = in_order(iter(chunks), Work(do, no_result, size=lambda item: item), 2)
        order = [item for _, item in sorted(chain.from_iterable(results))]
        assert set(order[:6]) == {1, 2, 30, 40, 5, 6}
        assert [set(order[6:8]), set(order[8:10]), set(order[10:])] == [{80, 12}, {11, 10}, {9, 7}]

    def test_there_are_no_more_processes_than_chunks(self, monkeypatch):
        started = []
        start = workers._Team._start
        monkeypatch.setattr(
            workers._Team, "_start", lambda team: (started.append(1), start(team))[1]
        )
        assert results_of([[1], [2]], jobs=50) == [[10], [None]]
        assert len(started) <= 2

    @pytest.mark.parametrize("item", range(1, 12))
    def test_what_a_killed_process_had_is_done_again(self, item):
        assert results_of(CHUNKS, {item: 1}) == DONE
        assert not has_children()

    def test_an_item_that_kills_twice_is_given_up_and_the_others_are_done(self):
        deaths = {3: 2, 4: 2, 6: 2, 11: 1}
        expected = [[10, None, -3], [-4], [50, -6, 70, None], [90, None], [110]]
        assert results_of(CHUNKS, deaths) == expected
        assert Path("deaths-3").stat().st_size == 2

    def test_all_may_kill(self):
        items = [item for chunk in CHUNKS for item in chunk]
        expected = [[-item for item in chunk] for chunk in CHUNKS]
        assert results_of(CHUNKS, dict.fromkeys(items, 2), jobs=3) == expected

    def test_an_idle_process_may_be_killed(self):
        def chunks():
            for item in (1, 2, 3):
                yield [item]
            for child in children_of(os.getpid()):
                os.kill(child, signal.SIGKILL)
                os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
            for item in (4, 5, 6):
                yield [item]

        # Those deaths are no fault of item 5, which has one of its own.
        expected = [[10], [None], [30], [None], [50], [None]]
        assert results_of(chunks(), {5: 1}, jobs=3) == expected

    def test_without_another_process_the_work_is_done_here(self, monkeypatch):
        monkeypatch.setattr(workers._Team, "_start", raising(BlockingIOError()))
        assert results_of(CHUNKS) == DONE

    def test_a_result_that_cannot_be_sent_is_given_up(self):
        do = Work(lambda item: (lambda: None) if item == 2 else item, no_result)
        assert list(in_order(iter([[1, 2, 3]]), do, 1)) == [[1, -2, 3]]

    def test_one_long_item_does_not_keep_the_others_from_being_done(self):
        # It waits for the last but one; others go on, though it has to come out first.
        def do(item):
            if item == 0:
                while not Path("19").exists():
                    time.sleep(0.001)
            Path(str(item)).touch()
            return item

        chunks = ([item] for item in range(21))
        assert list(in_order(chunks, Work(do, no_result), 2)) == [[item] for item in range(21)]

    def test_chunks_are_not_read_far_ahead_of_what_is_taken(self):
        read_so_far = count()
        chunks = ([next(read_so_far)] for _ in range(10_000))
        with closing(in_order(chunks, Work(lambda item: item, no_result), 2)) as results:
            assert next(results) == [0]
            assert next(read_so_far) <= 2 * 2 * workers._AHEAD

    def test_closing_ends_processes_at_once_whatever_they_do(self):
        def do(item):
            if item:
                signal.pause()
            return item

        with closing(in_order(([item] for item in range(9)), Work(do, no_result), 3)) as results:
            assert next(results) == [0]
        assert not has_children()

    def test_an_interrupt_of_the_source_of_chunks_ends_processes(self):
        def chunks():
            yield [1]
            yield [2]
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            results_of(chunks())
        assert not has_children()


def children_of(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def work_and_die(item, task, deaths):
    """As a process that is killed between the making of a new file and its taking effect."""
    if item.name in deaths:
        replaced = os.replace
        os.replace = lambda *names: (kill(item.name, deaths[item.name]), replaced(*names))
    return runs._worth_telling(item, task)


class TestDeathsWhileWriting:
    @pytest.fixture
    def outcomes(self):
        def of(paths, deaths):
            do = Work(
                partial(work_and_die, task=WRITE, deaths=deaths),
                partial(runs._after_death, task=WRITE),
            )
            [outcomes] = in_order(iter([paths]), do, 2)
            return outcomes

        return of

    def test_leave_nothing_beside_the_files_and_lose_none(self, outcomes):
        paths = sources(4)
        done = outcomes(paths, {"001.py": 1})
        assert [path.read_bytes() for path in paths] == [AFTER] * 4
        assert all(outcome.changes for outcome in done)
        assert sorted(path.name for path in Path().iterdir()) == sorted(
            ["deaths-001.py", *(path.name for path in paths)]
        )

    def test_twice_are_a_fault_that_names_the_file(self, outcomes):
        paths = sources(4)
        done = outcomes(paths, {"002.py": 9})
        assert [path.read_bytes() for path in paths] == [AFTER, AFTER, BEFORE, AFTER]
        assert (done[2].path, done[2].fault.code) == ("002.py", "MP903")
        assert "was killed" in done[2].fault.message
        assert not list(Path().glob(".migrate-pallas*"))

    def test_a_file_of_two_names_is_put_back_from_its_backup(self):
        [path] = sources(1)
        Path("other.py").hardlink_to(path)
        child = os.fork()
        if not child:
            flushes = count()
            flush = os.fsync

            def die_at_the_third(descriptor):  # the backup, its directory, the file itself
                if next(flushes) == 2:
                    os.ftruncate(descriptor, 3)
                    os.kill(os.getpid(), signal.SIGKILL)
                flush(descriptor)

            os.fsync = die_at_the_third
            work(path, WRITE)
            os._exit(0)
        os.waitpid(child, 0)
        assert path.read_bytes() == AFTER[:3]
        assert runs._after_death(child, path, last=False, task=WRITE) is None
        assert path.read_bytes() == Path("other.py").read_bytes() == BEFORE
        assert sorted(path.name for path in Path().iterdir()) == ["000.py", "other.py"]

    def test_a_backup_that_cannot_be_put_back_is_named(self, monkeypatch):
        [path] = sources(1)
        backup = Path(f".migrate-pallas-7-{path.stat().st_ino}-0.orig")
        backup.mkdir()
        outcome = runs._after_death(7, path, last=False, task=WRITE)
        assert outcome.fault.code == "MP903"
        assert str(backup) in outcome.fault.message

    def test_what_others_left_is_not_touched(self):
        [path] = sources(1)
        theirs = [Path(".migrate-pallas-8-1-0.tmp"), Path(".migrate-pallas-7-1-0.orig")]
        for other in theirs:
            other.touch()
        assert runs._after_death(7, path, last=False, task=WRITE) is None
        assert all(other.exists() for other in theirs)

    def test_a_file_that_is_gone_needs_no_cleaning(self):
        assert runs._after_death(7, Path("gone.py"), last=False, task=WRITE) is None

    def test_a_fault_of_the_search_stays_one(self):
        fault = FileFault("MP903", "why", None, Path("gone"))
        assert runs._after_death(7, fault, last=False, task=WRITE).fault.message == "why"


def test_reading_what_was_written_finds_nothing_more():
    paths = sources(3)
    assert all(outcome.changes for outcome in run(paths, WRITE, 1))
    assert list(run(paths, WRITE, 1)) == [Outcome(path.name) for path in paths]
    assert read(paths[0]).raw == AFTER
