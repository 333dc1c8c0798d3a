"""What `--explain` prints: of each code what it means, why, before and after."""

import pytest
from click.testing import CliRunner

from migrate_pallas import explain, parsing
from migrate_pallas.cli import command
from migrate_pallas.rules import all_rules

ALL = explain.explanations().values()


def run(*arguments):
    return CliRunner().invoke(command, arguments)


@pytest.mark.parametrize("one", ALL, ids=lambda one: one.code)
class TestEveryExplanation:
    def test_has_a_first_paragraph_and_the_five_parts_in_order(self, one):
        assert one.summary and not one.summary.startswith(explain.PARTS)
        assert tuple(one.parts) == explain.PARTS
        assert all(one.parts.values())

    def test_fits_a_terminal(self, one):
        assert all(len(line) <= 120 for line in one.text.splitlines())
        assert len(one.summary) <= 120 and one.summary.endswith(".")


def test_there_is_one_for_every_rule_and_every_fault():
    rules = [rule.code for rule in all_rules()]
    faults = [f"MP90{digit}" for digit in range(1, 6)]
    assert [one.code for one in ALL] == [*rules, *faults]
    assert len({one.name for one in ALL}) == len(ALL)


@pytest.mark.parametrize("one", [o for o in ALL if o.what != "fault"], ids=lambda one: one.code)
def test_examples_are_python(one):
    for part in ("Example", "Use instead"):
        code = [line[4:] for line in one.parts[part].splitlines() if line.startswith("    ")]
        parsing.parse("\n".join([*code, ""]))


def test_a_code_is_explained_without_any_other_option():
    done = run("--explain", "MP110")
    assert done.exit_code == 0
    assert done.stdout.startswith("MP110 interpret (rule)\n\nAn entry point")
    assert "interpret=not on_tpu()" in done.stdout


def test_a_code_may_be_in_small_letters():
    assert run("--explain=mp901").stdout == run("--explain", "MP901").stdout


def test_without_a_code_there_is_a_line_for_each():
    lines = run("--explain").stdout.splitlines()
    assert [line.split()[:2] for line in lines] == [[one.code, one.name] for one in ALL]


def test_an_unknown_code_is_bad_usage_with_a_suggestion():
    done = run("--explain", "MP111")
    assert done.exit_code == 2
    assert "no rule, finding or fault has the code 'MP111'; did you mean MP1" in done.output
