"""What the README says of codes, options and commands is what the program has."""

import re
from pathlib import Path

from migrate_pallas.cli import command
from migrate_pallas.explain import explanations

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
SHELL = re.findall(r"```sh\n(.*?)\n```", README, re.DOTALL)


def rows(begin):
    """The cells of the rows of every table whose first cell matches `begin`."""
    lines = (line for line in README.splitlines() if line.startswith("|"))
    cells = ([cell.strip() for cell in line.strip("|").split(" | ")] for line in lines)
    return [row for row in cells if re.match(begin, row[0])]


def test_the_tables_of_codes_say_what_the_docstrings_say():
    told = {code: (what, summary) for code, what, summary in rows(r"MP\d{3}$")}
    known = explanations().values()
    assert told == {e.code: (e.name, e.summary.replace("|", "\\|")) for e in known}


def test_every_option_is_in_the_readme():
    options = [name for parameter in command.params for name in parameter.opts]
    missing = [name for name in options if name.startswith("--") and f"`{name}" not in README]
    assert [name for name in missing if name not in ("--version", "--help")] == []


def test_every_error_leads_to_a_rule_that_there_is():
    errors = rows("`[A-Z][A-Za-z]+Error: ")
    assert len(errors) == 8
    for row in errors:
        assert set(re.findall(r"MP\d{3}", row[-1])) & set(explanations())


def test_ci_runs_the_second_command_to_the_letter():
    assert SHELL[1] in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
