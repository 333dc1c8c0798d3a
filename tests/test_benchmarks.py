"""The benchmark's own code: its peers find the same calls, and its tables say what was measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from migrate_pallas.settings import CPU, GATE, Settings

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

import compare
import exhaustive
from processes import Failed, Timed, Watched, timed, watched

KERNELS = """\
from jax.experimental import pallas as pl
from jax.experimental.pallas import pallas_call, run_scoped


def scoped(x):
    pl.run_scoped(body, x, collective_axes="i")
    run_scoped(body, x, collective_axes=("i", "j"),)
    run_scoped(body, x)
    other.nd_loop((1,), collective_axes="i")


def called(x):
    twice = pl.pallas_call(kernel, out_shape=x)(x) + pallas_call(kernel)(x)
    return pl.pallas_call(
        kernel,
        out_shape=twice,
        interpret=False,
    )(twice)
"""


@pytest.fixture
def tree(tmp_path) -> Path:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner/kernels.py").write_text(KERNELS)
    (tmp_path / "none.py").write_text("call = 'run' + '_scoped(collective' + '_axes=1)'\n")
    (tmp_path / "kernels.txt").write_text(KERNELS)
    return tmp_path


@pytest.fixture(scope="session")
def peers() -> list[compare.Contender]:
    try:
        return compare.peers(compare.peers_environment())
    except subprocess.CalledProcessError as error:
        if "No matching distribution" in str(error.stderr) and not os.environ.get("CI"):
            pytest.skip("can't install the peers: no network")
        raise


def test_all_peers_find_the_same_calls_and_change_no_file(peers, tree):
    found = {}
    for peer in peers:
        run = timed([*peer.command, str(tree)], compare.variables(tree / "caches"))
        found[peer.name] = compare.calls(run.output, tree)
    expected = Counter(
        {("inner/kernels.py", "pallas_call"): 3, ("inner/kernels.py", "run_scoped"): 2}
    )
    assert found == {peer.name: expected for peer in peers}
    assert (tree / "inner/kernels.py").read_text() == KERNELS


def test_the_table_has_medians_and_ratios_to_the_first_row():
    rows = [
        compare.Row("this", (1.0, 2.0, 9.0), (1.0, 1.0, 1.0), (4.0,), 50_000_000, 80_000_000, None),
        compare.Row("that", (7.0, 3.0, 5.0), (), (6.0, 8.0), 1_234_000_000, 2_000_000_000, 1234),
    ]
    *_, this, that = compare.comparison_table(rows).splitlines()
    assert this == (
        "| this | 2.00 (1.00 to 9.00) | 1.00 (1.00 to 1.00) | 1.00 | 4.00 | 50.0 | 80.0 |  |"
    )
    assert that == ("| that | 5.00 (3.00 to 7.00) |  | 2.50 | 7.00 | 1,234.0 | 2,000.0 | 1,234 |")


def test_a_row_has_every_time_and_the_peaks_of_the_run_that_was_watched(tmp_path):
    found = json.dumps({"file": str(tmp_path / "a.py"), "ruleId": "pallas_call"})
    cold, again = [Timed(2.0, 4.0, found)], [Timed(1.0, 3.0, found)]
    one = compare.Contender("peer", ("peer",))
    measured = compare.row(one, cold, again, Watched(3.0, 40, 70), tmp_path)
    assert measured == compare.Row("peer", (2.0,), (1.0,), (4.0, 3.0), 40, 70, 1)


def test_growth_is_told_for_each_hundred_megabytes():
    table = compare.growth_table(iter([(1000, 50_000_000, Watched(2.0, 30_000_000, 90_000_000))]))
    assert table.splitlines()[-1] == "| 1,000 | 50.0 | 2.0 | 4.00 | 30.0 | 90.0 |"


def test_a_tree_grows_by_copies_that_share_nothing(tree, tmp_path_factory):
    into = tmp_path_factory.mktemp("grown")
    size = compare.grown(sorted(tree.rglob("*.py")), 5, into)
    copies = list(into.rglob("*.py"))
    assert len(copies) == 5
    assert size == sum(path.stat().st_size for path in copies)
    assert {path.stat().st_nlink for path in copies} == {1}


def test_a_command_that_fails_is_told_with_its_errors():
    command = [sys.executable, "-c", "import sys; sys.exit(print('why', file=sys.stderr) or 2)"]
    for run in (timed, watched):
        with pytest.raises(Failed, match="why"):
            run(command, dict(os.environ))


def test_a_file_without_words_is_compared_as_if_it_had_them(tree):
    settings = Settings(to=CPU, strategy=GATE)
    kernels, none = tree / "inner/kernels.py", tree / "none.py"
    assert exhaustive.compare(kernels, settings) == exhaustive.Compared(kernels, skipped=False)
    assert exhaustive.compare(none, settings) == exhaustive.Compared(none, skipped=True)


def test_results_that_words_would_hide_are_told(tree, monkeypatch):
    monkeypatch.setattr(exhaustive.pipeline, "applicable", lambda text, settings: ())
    kernels = tree / "inner/kernels.py"
    compared = exhaustive.compare(kernels, Settings(to=CPU, strategy=GATE))
    assert compared.skipped
    assert compared.differing
    assert compared.wordless == ("MP101", "MP110", "MP211")
    told = exhaustive.summary([compared], tree)
    assert "- 1 with different results" in told
    assert "- inner/kernels.py: MP110 found without its words" in told


def test_memory_of_children_is_counted_beside_that_of_the_parent():
    hold = "held = bytearray(b'1') * 60_000_000; sum(range(4_000_000))"
    children = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {hold!r}])"
    run = watched([sys.executable, "-c", children], dict(os.environ))
    assert run.first < 60_000_000 < run.together
