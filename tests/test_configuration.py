"""Settings in pyproject.toml and setup.cfg: where they are found, what they may be, and that the command line wins."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from migrate_pallas import configuration as settings_files
from migrate_pallas.cli import command
from migrate_pallas.configuration import BadSettings, configuration

KERNELS = """\
from jax.experimental import pallas as pl


def double(x, kernel):
    return pl.pallas_call(kernel, out_shape=x)(x)
"""
WRAPPED = """\
from mylib.compat import pallas_call
import mylib


def double(x, kernel):
    return pallas_call(kernel, out_shape=x)(x), mylib.launch(kernel, out_shape=x)(x)


def scoped(body, ref):
    mylib.scratch(body, ref, collective_axes="i")
"""


@pytest.fixture(autouse=True)
def _in_a_repository(tmp_path, monkeypatch):
    (tmp_path / "repo/.git").mkdir(parents=True)
    (tmp_path / "repo/src/pkg").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "repo")
    Path("src/pkg/a.py").write_text(KERNELS)


def toml(text, name="pyproject.toml"):
    Path(name).write_text(f'[project]\nname = "x"\n\n[tool.migrate-pallas]\n{text}\n')


def cfg(text, name="setup.cfg"):
    Path(name).write_text(f"[metadata]\nname = x\n\n[migrate-pallas]\n{text}\n")


def migrate(*arguments):
    return CliRunner().invoke(command, [*arguments], standalone_mode=False)


def refusal(*arguments):
    done = migrate("--check", *(arguments or ["."]))
    assert done.exception is not None and done.exception.exit_code == 2
    return done.exception.format_message()


class TestFinding:
    def test_they_are_looked_for_from_the_first_path_upwards(self):
        toml('to = "cpu"')
        assert configuration(["src/pkg/a.py", "/"]).values == {"to": "cpu"}
        assert configuration(["src/pkg/gone.py"]).path == "pyproject.toml"

    @pytest.mark.parametrize("paths", [(), ("-",)])
    def test_or_from_the_working_directory(self, paths, monkeypatch):
        toml('to = "cpu"')
        monkeypatch.chdir("src")
        assert configuration(paths).path == "../pyproject.toml"

    def test_the_nearest_ones_count_alone(self):
        toml('to = "cpu"\nstrict = true')
        cfg("to = interpret", "src/setup.cfg")
        assert configuration(["src/pkg"]).values == {"to": "interpret"}

    def test_a_file_without_them_is_passed_over(self):
        toml('to = "cpu"')
        Path("src/pyproject.toml").write_text('[project]\nname = "migrate-pallas-user"\n')
        Path("src/setup.cfg").write_text("[metadata]\nname = migrate-pallas-user\n")
        assert configuration(["src/pkg"]).path == "pyproject.toml"

    def test_those_outside_of_the_repository_do_not_count(self):
        toml('to = "cpu"', "../pyproject.toml")
        assert configuration(["src"]) is None

    def test_what_has_none_of_our_name_is_not_even_parsed(self):
        Path("pyproject.toml").write_text("this is = = no TOML")
        Path("setup.cfg").write_text("neither is this")
        assert configuration(["src"]) is None

    def test_both_files_of_a_directory_contradict_each_other(self):
        toml('to = "cpu"')
        cfg("to = cpu")
        assert "both pyproject.toml and setup.cfg have settings" in refusal()


class TestReading:
    def test_both_files_say_the_same(self):
        toml(
            'to = "cpu"\nselect = ["MP1", "MP2"]\nno-gitignore = true\njobs = 2\n'
            'exclude = ["a b", "c"]\nwrappers = ["m.f=kernel"]'
        )
        in_toml = configuration(["."]).values
        Path("pyproject.toml").unlink()
        cfg(
            "to = cpu\nselect = MP1, MP2\nno-gitignore = yes\njobs = 2\n"
            "exclude =\n    a b\n    c\nwrappers = m.f=kernel"
        )
        assert configuration(["."]).values == in_toml

    def test_a_percent_sign_is_one(self):
        cfg("exclude = a%b")
        assert configuration(["."]).values == {"exclude": ["a%b"]}

    def test_every_key_is_an_option(self):
        options = {option.lstrip("-") for one in command.params for option in one.opts}
        assert settings_files.KEYS.keys() - {"wrappers"} <= options

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ('selct = ["MP1"]', "pyproject.toml:5: unknown key 'selct'"),
            ('selct = ["MP1"]', "did you mean 'select'?"),
            ('gate_import = "a:b"', "did you mean 'gate-import'?"),
            ("zzz = 1", "there are to, strategy, gate"),
            ('to = ["cpu"]', "pyproject.toml:5: 'to' must be a string, not ['cpu']"),
            ('select = "MP1"', "'select' must be a list of strings, not 'MP1'"),
            ("select = [1]", "'select' must be a list of strings, not [1]"),
            ("strict = 1", "'strict' must be true or false, not 1"),
            ("jobs = true", "'jobs' must be a whole number, not True"),
            ("to = cpu", "pyproject.toml: Invalid value"),
        ],
    )
    def test_what_is_wrong_in_pyproject_toml_is_named(self, text, says):
        toml(text)
        assert says in refusal()

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("selct = MP1", "setup.cfg:5: unknown key 'selct' in [migrate-pallas]"),
            ("strict = perhaps", "setup.cfg:5: 'strict' must be true or false, not 'perhaps'"),
            ("jobs = many", "'jobs' must be a whole number, not 'many'"),
            ("to = cpu\nto = cpu", "setup.cfg"),
        ],
    )
    def test_what_is_wrong_in_setup_cfg_is_named(self, text, says):
        cfg(text)
        assert says in refusal()

    def test_all_that_is_wrong_is_named_at_once(self):
        toml('selct = []\nto = 1\nstrict = "no"')
        assert [line.split(":")[1] for line in refusal().splitlines()] == ["5", "6", "7"]

    def test_a_section_that_is_none_is_named(self):
        Path("pyproject.toml").write_text('tool.migrate-pallas = "cpu"\n')
        assert "tool.migrate-pallas is no table" in refusal()

    def test_bytes_that_are_no_text_are_named(self):
        Path("pyproject.toml").write_bytes(b"[tool.migrate-pallas]\nto = '\xff'\n")
        with pytest.raises(BadSettings, match=r"pyproject\.toml: not UTF-8"):
            configuration(["."])


class TestUsing:
    def test_the_option_that_is_required_may_stand_there(self):
        toml('to = "cpu"')
        assert "interpret=jax.default_backend()" in migrate("--diff", ".").stdout

    def test_the_command_line_wins(self):
        toml('to = "cpu"\nselect = ["MP102"]\nstrict = true\nformat = "json"')
        done = migrate("--diff", "--to=interpret", "--select=MP110", "--format=text", ".")
        assert "interpret=True" in done.stdout

    def test_it_can_take_a_flag_back(self):
        text = KERNELS.replace("out_shape=x", "**a, **b")
        Path("src/pkg/a.py").write_text(text)
        toml('to = "cpu"\nstrict = true')
        assert migrate("--check", ".").return_value == 1
        assert migrate("--check", "--no-strict", ".").return_value == 0

    def test_a_gate_of_the_command_line_is_the_only_one(self):
        toml('to = "cpu"\ngate = "is_tpu"')
        assert migrate("--check", "--gate-import=m:on_tpu", ".").return_value == 1
        toml('to = "cpu"\ngate-import = "m:on_tpu"')
        assert migrate("--check", "--gate=is_tpu", ".").return_value == 1

    def test_two_gates_in_one_file_are_refused(self):
        toml('to = "cpu"\ngate = "a"\ngate-import = "m:b"')
        assert "name two gates: a and b" in refusal()

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ('to = "gpu"', "pyproject.toml: to: 'gpu' is not one of"),
            ('to = "cpu"\nselect = ["MP999"]', "pyproject.toml: select: no rule or finding"),
            ('to = "cpu"\njobs = 0', "pyproject.toml: jobs: 0 is not in the range"),
            ('to = "cpu"\nformat = "xml"', "pyproject.toml: format: 'xml' is not one of"),
            ('to = "cpu"\nwrappers = ["f"]', "pyproject.toml: wrappers: 'f' is no dotted path"),
            ('to = "cpu"\nwrappers = ["m.f"]', "'m.f' does not tell what it forwards to"),
        ],
    )
    def test_a_value_that_an_option_would_not_take_is_told_with_file_and_key(self, text, says):
        toml(text)
        assert says in refusal()

    def test_what_is_wrong_there_does_not_keep_help_and_explanations_away(self):
        toml("to = 1")
        for option in ("--help", "--version", "--explain"):
            assert migrate(option).exception is None

    def test_excludes_and_ignored_codes_hold(self):
        toml('to = "cpu"\nexclude = ["pkg"]')
        assert migrate("--check", ".").return_value == 0
        toml('to = "cpu"\nignore = ["MP110"]')
        assert migrate("--check", ".").return_value == 0


class TestWrappers:
    SETTINGS = 'wrappers = ["mylib.compat.pallas_call", "mylib.launch=pallas_call", "mylib.scratch=run_scoped"]'

    @pytest.fixture(autouse=True)
    def _wrapped(self):
        Path("src/pkg/a.py").write_text(WRAPPED)

    def test_without_them_a_function_of_ones_own_is_no_target(self):
        assert migrate("--to=interpret", "--check", ".").return_value == 0

    def test_they_are_treated_as_what_they_forward_to(self):
        toml(f'to = "interpret"\n{self.SETTINGS}')
        assert migrate("--write", ".").return_value == 0
        text = Path("src/pkg/a.py").read_text()
        assert text.count("out_shape=x, interpret=True)") == 2
        assert "mylib.scratch(body, ref)" in text
        assert migrate("--check", ".").return_value == 0

    def test_they_may_be_given_as_options(self):
        done = migrate("--to=interpret", "--diff", "--wrapper=mylib.launch=pallas_call", ".")
        assert done.stdout.count("+    return") == 1
        assert "mylib.launch(kernel, out_shape=x, interpret=True)" in done.stdout

    def test_through_every_import_that_names_them_in_full(self):
        for imported, found in (
            ("import mylib.compat as c\nf = c.pallas_call", 1),
            ("from mylib import compat\nf = compat.pallas_call", 1),
            ("from mylib.compat import *\nf = pallas_call", 0),
            ("from .compat import pallas_call\nf = pallas_call", 0),
        ):
            Path("src/pkg/a.py").write_text(f"{imported}\n\n\ndef g(x):\n    return f(x)\n")
            done = migrate("--to=interpret", "--check", "--wrapper=mylib.compat.pallas_call", ".")
            assert done.return_value == found, imported
