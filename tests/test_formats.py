"""How results are reported: text, JSON, annotations of GitHub, SARIF; counts; what a finding does to the status."""

import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import jsonschema
import pytest
from sarif_subset import SARIF

import migrate_pallas
from migrate_pallas import cli, formats
from migrate_pallas.changes import Status
from migrate_pallas.report import Totals, painted_diff, percent
from migrate_pallas.screens import Paint

ROOT = Path(migrate_pallas.__file__).parents[1]
SCHEMA = json.loads((ROOT / "migrate_pallas/json_report.schema.json").read_text())

KERNELS = '''\
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def kernel(x_ref, o_ref):
    """α"""; pl.run_scoped(body, pltpu.VMEM((8,), "f"), collective_axes="i")


def double(x, **kw):
    return pl.pallas_call(kernel, out_shape=x)(x)


def same(x):
    return pl.pallas_call(kernel, out_shape=x, interpret=True)(x)


def unclear(x, a, b):
    return pl.pallas_call(kernel, **a, **b)(x)
'''
GPU = """\
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


def launch(x):
    return plgpu.kernel(body, out_shape=x)(x), pl.pallas_call(body, compiler_params=plgpu.CompilerParams())(x)
"""
BROKEN = KERNELS + "x = = 1\n"


@pytest.fixture(autouse=True)
def _in_a_repository(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("NO_COLOR", "GITHUB_WORKSPACE"):
        monkeypatch.delenv(name, raising=False)
    Path(".git").mkdir()
    Path("pkg").mkdir()
    Path("pkg/kernels.py").write_text(KERNELS, encoding="utf-8")


def program(*arguments, stdin=b"", **environment):
    """Run the program in this process, with streams that are no terminals."""
    streams = [io.TextIOWrapper(io.BytesIO(raw)) for raw in (stdin, b"", b"")]
    interrupt = signal.getsignal(signal.SIGINT)
    with pytest.MonkeyPatch.context() as patch:
        for name, stream in zip(("stdin", "stdout", "stderr"), streams, strict=True):
            patch.setattr(sys, name, stream)
        patch.setattr(sys, "argv", ["migrate-pallas", *arguments])
        for name, value in environment.items():
            patch.setenv(name, value)
        with pytest.raises(SystemExit) as ended:
            cli.main()
    signal.signal(signal.SIGINT, interrupt)
    out, err = (stream.buffer.getvalue() for stream in streams[1:])
    return subprocess.CompletedProcess(arguments, ended.value.code, out, err)


def as_json(*arguments, **options):
    done = program("--format=json", *arguments, **options)
    document = json.loads(done.stdout)
    jsonschema.validate(document, SCHEMA)
    return done, document


def as_sarif(*arguments, **options):
    done = program("--format=sarif", *arguments, **options)
    document = json.loads(done.stdout)
    jsonschema.validate(document, SARIF)
    [run] = document["runs"]
    return done, run


def applied(text, replacements):
    """`text` with the replacements of a fix made, each by lines and columns."""
    starts = [0, *(found.end() for found in re.finditer("\n", text))]

    def offset(region, end):
        return starts[region[f"{end}Line"] - 1] + region[f"{end}Column"] - 1

    for one in reversed(replacements):
        region = one["deletedRegion"]
        first, last = offset(region, "start"), offset(region, "end")
        text = text[:first] + one["insertedContent"]["text"] + text[last:]
    return text


class TestJson:
    def test_says_of_each_file_what_would_change_and_why(self):
        done, document = as_json("--to=interpret", "--check", ".")
        assert (done.returncode, document["mode"]) == (1, "check")
        [file] = document["files"]
        assert (file["path"], file["status"], file["error"]) == (
            "pkg/kernels.py",
            "would_change",
            None,
        )
        axes, interpret = file["changes"]
        assert (axes["code"], axes["line"], axes["column"]) == ("MP101", 6, 57)
        assert axes["before"].endswith('"f"), collective_axes="i")\n')
        assert axes["after"] == axes["before"].replace(', collective_axes="i"', "")
        assert interpret["first_line"] == 10
        assert interpret["after"].endswith("out_shape=x, interpret=True)(x)\n")
        assert [(one["code"], one["line"]) for one in file["findings"]] == [("MP202", 18)]
        assert [one["status"] for one in file["kernels"]] == ["migrated", "portable", "person"]

    def test_has_the_totals(self):
        Path("broken.py").write_text(BROKEN)
        totals = as_json("--to=interpret", "--check", ".")[1]["totals"]
        assert totals["codes"] == {"MP101": 1, "MP110": 1, "MP202": 1, "MP901": 1}
        assert [totals[key] for key in ("files", "files_changed", "changes")] == [2, 1, 2]
        assert [totals[key] for key in ("findings", "errors")] == [1, 1]
        assert totals["kernels"] == {"migrated": 1, "portable": 1, "person": 1, "gpu": 0}

    def test_takes_the_place_of_the_diff_and_holds_it(self):
        diff = program("--to=cpu", "--diff", ".").stdout.decode()
        document = as_json("--to=cpu", "--diff", ".")[1]
        assert document["files"][0]["diff"] == diff != ""

    def test_tells_what_was_written(self):
        document = as_json("--to=cpu", "--write", ".")[1]
        assert (document["mode"], document["files"][0]["status"]) == ("write", "changed")
        assert as_json("--to=cpu", "--check", ".")[1]["totals"]["changes"] == 0

    def test_findings_of_a_written_file_are_where_they_are_now(self):
        written = as_json("--to=cpu", "--write", ".")[1]
        again = as_json("--to=cpu", "--check", ".")[1]
        assert written["files"][0]["findings"] == again["files"][0]["findings"] != []

    def test_a_file_that_failed_says_why(self):
        Path("pkg/kernels.py").write_text(BROKEN)
        done, document = as_json("--to=interpret", "--write", ".")
        [file] = document["files"]
        assert (done.returncode, file["status"]) == (2, "failed")
        assert (file["error"]["code"], file["error"]["line"]) == ("MP901", 19)

    def test_of_nothing_is_a_document_too(self):
        Path("pkg/kernels.py").write_text("x = 1\n")
        done, document = as_json("--to=interpret", "--check", ".")
        assert (done.returncode, document["files"]) == (0, [])
        assert document["totals"]["files"] == 1

    def test_of_stdin_takes_the_place_of_the_migrated_source(self):
        document = as_json("--to=interpret", "-", stdin=KERNELS.encode())[1]
        assert document["mode"] == "diff"
        assert [one["path"] for one in document["files"]] == ["<stdin>"]

    def test_a_diff_in_another_encoding_is_read_in_it(self):
        cookie = "# -*- coding: latin-1 -*-\n"
        Path("pkg/kernels.py").write_bytes((cookie + KERNELS.replace("α", "é")).encode("latin-1"))
        document = as_json("--to=interpret", "--diff", ".")[1]
        assert "é" in document["files"][0]["diff"]

    def test_a_name_that_is_no_text_survives(self):
        Path("pkg/kernels.py").rename(os.fsdecode(b"pkg/k\xff.py"))
        document = as_json("--to=interpret", "--check", ".")[1]
        assert os.fsencode(document["files"][0]["path"]) == b"pkg/k\xff.py"

    def test_nothing_else_goes_to_stdout(self):
        done, _ = as_json("--to=interpret", "--check", "--statistics", "gone", ".")
        assert done.returncode == 2
        assert b"MP110 interpret" in done.stderr


class TestSarif:
    def test_has_a_result_for_each_change_finding_and_fault(self):
        Path("broken.py").write_text(BROKEN)
        done, run = as_sarif("--to=interpret", "--check", ".")
        told = {(one["ruleId"], one["level"]) for one in run["results"]}
        assert told == {
            ("MP101", "warning"),
            ("MP110", "warning"),
            ("MP202", "warning"),
            ("MP901", "error"),
        }
        assert (done.returncode, run["invocations"][0]["executionSuccessful"]) == (2, False)

    def test_each_result_leads_to_its_rule(self):
        _, run = as_sarif("--to=interpret", "--check", ".")
        rules = run["tool"]["driver"]["rules"]
        assert run["results"]
        for result in run["results"]:
            assert rules[result["ruleIndex"]]["id"] == result["ruleId"]

    def test_each_fix_alone_gives_sound_code(self):
        _, run = as_sarif("--to=cpu", "--diff", ".")
        fixes = [fix for result in run["results"] for fix in result.get("fixes", ())]
        assert len(fixes) == 2
        for fix in fixes:
            [change] = fix["artifactChanges"]
            text = applied(KERNELS, change["replacements"])
            compile(text, "fixed", "exec")
            assert text.count("def on_tpu() -> bool:") == 1
            assert text.count("if on_tpu() else ()") + text.count("interpret=not on_tpu()") == 1

    def test_what_was_written_is_nothing_left_to_do(self):
        _, run = as_sarif("--to=cpu", "--write", ".")
        assert "MP110" not in {one["ruleId"] for one in run["results"]}
        assert "MP202" in {one["ruleId"] for one in run["results"]}

    def test_places_are_uris(self, tmp_path):
        Path("pkg/kernels.py").rename("pkg/a b#%ü.py")
        _, run = as_sarif("--to=interpret", "--check", ".")
        [uri] = {uri_of(result) for result in run["results"]}
        assert unquote(uri) == "pkg/a b#%ü.py"
        os.chdir("pkg")
        outside = tmp_path / "other.py"
        outside.write_text(KERNELS)
        _, run = as_sarif("--to=interpret", "--check", "../other.py")
        [uri] = {uri_of(result) for result in run["results"]}
        assert Path(unquote(urlsplit(uri).path)) == outside.resolve()


def uri_of(result):
    return result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]


class TestGithub:
    def annotations(self, *arguments, **environment):
        done = program("--to=interpret", "--format=github", *arguments, **environment)
        return done, [line for line in done.stderr.decode().splitlines() if line.startswith("::")]

    def test_annotates_what_is_to_do_in_the_order_of_the_lines(self):
        done, lines = self.annotations("--check", ".")
        assert done.returncode == 1
        assert [line.partition("::")[2].partition(",col")[0] for line in lines] == [
            "warning file=pkg/kernels.py,line=6",
            "warning file=pkg/kernels.py,line=10",
            "warning file=pkg/kernels.py,line=18",
        ]
        assert ",col=57,title=MP101 collective-axes::run_scoped has collective axes" in lines[0]

    def test_a_change_that_was_written_is_a_notice_and_a_fault_an_error(self):
        Path("broken.py").write_text(BROKEN)
        _, lines = self.annotations("--write", ".")
        assert [line.split()[0] for line in lines] == [
            "::error",
            "::notice",
            "::notice",
            "::warning",
        ]

    def test_what_would_end_a_property_or_a_line_is_escaped(self):
        Path("pkg/kernels.py").rename("pkg/a,b:c%.py")
        _, lines = self.annotations("--check", ".")
        assert all(line.split("::")[1].startswith("warning file=pkg/a%2Cb%3Ac%25.py,") for line in lines)  # fmt: skip
        assert formats._escaped("a%\r\n::,") == "a%25%0D%0A::,"

    def test_files_are_named_from_the_checkout(self, tmp_path, monkeypatch):
        monkeypatch.chdir("pkg")
        _, lines = self.annotations("--check", ".", GITHUB_WORKSPACE=str(tmp_path))
        assert lines and all("file=pkg/kernels.py," in line for line in lines)

    def test_the_diff_stays_clean(self):
        done, lines = self.annotations("--diff", ".")
        assert lines
        assert done.stdout == program("--to=interpret", "--diff", ".").stdout != b""


class TestText:
    PLACE = b"pkg/kernels.py:18:26: MP202 "

    def test_is_plain_where_there_is_no_terminal(self):
        done = program("--to=interpret", "--diff", ".")
        assert self.PLACE in done.stderr
        assert b"\x1b" not in done.stdout + done.stderr

    def test_is_coloured_where_that_is_asked_for(self):
        done = program("--to=interpret", "--diff", "--color=always", ".", NO_COLOR="1")
        assert b"\x1b[1mpkg/kernels.py\x1b[0m:18:26: \x1b[33mMP202\x1b[0m " in done.stderr
        assert b"\x1b[1m--- a/pkg/kernels.py\x1b[0m\n" in done.stdout
        assert b"\n\x1b[36m@@ -3,11 +3,11 @@\x1b[0m\n" in done.stdout
        plain = re.sub(rb"\x1b\[[0-9;]*m", b"", done.stdout)
        assert plain == program("--to=interpret", "--diff", ".").stdout

    @pytest.mark.parametrize(
        ("choice", "environment", "coloured"),
        [
            ("auto", {"TERM": "xterm"}, True),
            ("auto", {"TERM": "xterm", "NO_COLOR": ""}, True),
            ("auto", {"TERM": "xterm", "NO_COLOR": "1"}, False),
            ("auto", {"TERM": "dumb"}, False),
            ("never", {"TERM": "xterm"}, False),
            ("always", {"TERM": "dumb", "NO_COLOR": "1"}, True),
        ],
    )
    def test_on_a_terminal_colours_depend(self, choice, environment, coloured):
        ours, its = os.openpty()
        subprocess.run(
            [sys.executable, "-m", "migrate_pallas", "--to=interpret", f"--color={choice}", "--check", "."],
            stderr=its,
            env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
            check=False,
        )  # fmt: skip
        os.close(its)
        said = b""
        try:
            while piece := os.read(ours, 1 << 16):
                said += piece
        except OSError:  # how a terminal ends
            os.close(ours)
        assert (b"\x1b[" in said) is coloured

    def test_a_painted_diff_keeps_every_byte(self):
        diff = b"--- a/x\n+++ b/x\n@@ -1 +1 @@\n-\xff\r\n+\xfe\x85\r\n same\n\\ No newline at end of file\n"
        painted = painted_diff(diff, Paint(True))
        assert re.sub(rb"\x1b\[[0-9;]*m", b"", painted) == diff
        assert b"\x1b[31m-\xff\x1b[0m\r\n" in painted


class TestStatistics:
    def test_count_codes_and_entry_points(self):
        Path("gpu.py").write_text(GPU)
        done = program("--to=interpret", "--check", "--statistics", "--select=MP1,MP2", ".")
        lines = done.stderr.decode().splitlines()
        assert lines[-6:] == [
            "1 MP101 collective-axes",
            "1 MP110 interpret",
            "1 MP202 interpret-unclear",
            "2 MP204 gpu-kernel",
            "5 entry points: 1 migrated, 1 already portable, 1 needs a person, 2 for GPU, left alone",
            "2 of 3 that are not for GPU need no help: 67%",
        ]

    def test_of_a_second_run_all_that_was_migrated_is_portable(self):
        program("--to=cpu", "--write", ".")
        totals = as_json("--to=cpu", "--check", ".")[1]["totals"]
        assert totals["kernels"] == {"migrated": 0, "portable": 2, "person": 1, "gpu": 0}

    def test_a_kernel_that_no_interpreter_serves_needs_a_person(self):
        text = KERNELS.replace("pl.run_scoped(body,", "pltpu.stochastic_round(x_ref[...],")
        Path("pkg/kernels.py").write_text(text)
        totals = as_json("--to=cpu", "--check", ".")[1]["totals"]
        assert totals["kernels"]["person"] == 3

    def test_a_kernel_that_needs_a_gate_at_import_needs_a_person(self):
        at_import = "call = pl.pallas_call(kernel, out_shape=x)\n"
        Path("pkg/kernels.py").write_text(KERNELS.partition("def double")[0] + at_import)
        totals = as_json("--to=cpu", "--check", ".")[1]["totals"]
        assert totals["kernels"] == {"migrated": 0, "portable": 0, "person": 1, "gpu": 0}

    def test_where_there_is_no_kernel_there_is_no_share(self):
        assert Totals().share is None
        assert Totals(kernels={Status.GPU: 1, Status.PERSON: 0}).share is None

    @pytest.mark.parametrize(
        ("share", "told"), [(0, "0%"), (0.001, "1%"), (2 / 3, "67%"), (0.999, "99%"), (1, "100%")]
    )
    def test_only_all_is_100_percent(self, share, told):
        assert percent(share) == told


class TestStrict:
    @pytest.fixture(autouse=True)
    def _only_findings_left(self):
        program("--to=interpret", "--write", ".")

    @pytest.mark.parametrize(
        ("arguments", "status"),
        [
            (["--check"], 0),
            (["--check", "--strict"], 1),
            (["--check", "--strict", "--ignore=MP2"], 0),
            # These say whether something failed, so that a diff may be applied with `&&`.
            (["--diff", "--strict"], 0),
            (["--write", "--strict"], 0),
        ],
    )
    def test_a_finding_is_something_left_to_check(self, arguments, status):
        assert program("--to=interpret", *arguments, ".").returncode == status

    def test_holds_for_stdin_too(self):
        text = Path("pkg/kernels.py").read_bytes()
        assert program("--to=interpret", "--check", "--strict", "-", stdin=text).returncode == 1


@pytest.mark.parametrize("option", ["--format=json", "--statistics", "--html=page.html"])
def test_a_review_tells_by_itself_what_it_does(option):
    ours, its = os.openpty()
    done = subprocess.run(
        [sys.executable, "-c", "from migrate_pallas import cli; cli._on_terminals = lambda: True; cli.main()",
         "--to=cpu", "--review", option, "."],
        stdin=its, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False,
    )  # fmt: skip
    os.close(ours)
    os.close(its)
    assert done.returncode == 2
    assert b"--review tells by itself" in done.stderr
    assert not Path("page.html").exists()


def test_help_needs_none_of_the_modules_that_few_runs_need():
    code = (
        "import sys; from migrate_pallas.cli import command\n"
        "try: command(['--help'])\n"
        "finally: print(sorted({'html', 'tomllib', 'tomli', 'configparser', 'json', 'migrate_pallas.formats',"
        " 'migrate_pallas.html_report', 'migrate_pallas.review'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert done.stdout.splitlines()[-1] == b"[]"
