"""What reaches Pallas, before and after: on TPU a gate changes nothing, elsewhere only what it should."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from standin.record import Call, record

from migrate_pallas.changes import Finding
from migrate_pallas.pipeline import examine, proven
from migrate_pallas.settings import CPU, GATE, INTERPRET, REMOVE, Settings
from properties.examples import examples
from properties.modules import modules

TO_CPU = Settings(to=CPU, strategy=GATE)
TO_INTERPRET = Settings(to=INTERPRET, strategy=REMOVE)
# With one of these, a site was left as it was.
LEFT = ("MP201", "MP202", "MP203", "MP204", "MP206", "MP208")


def calls(directory: Path, text: str, backend: str) -> list[Call]:
    """What reaches the entry points from a module with this text."""
    path = directory / "module.py"
    path.write_bytes(text.encode())
    return record(path, backend)


def migrated(text: str, settings: Settings) -> tuple[str, tuple[Finding, ...]]:
    examined = examine(text, settings)
    return proven(examined, examined.changes, settings), examined.findings


def normal(call: Call) -> Call:
    """The call with `()` for axes of None, which MP102 writes on every backend, and without an `interpret` of no."""
    kept = {
        name: () if name == "collective_axes" and value is None else value
        for name, value in call.keywords.items()
        if name != "interpret" or value
    }
    return Call(call.name, call.positional, kept)


def unguarded(call: Call) -> Call:
    """The call without what a migration may change of it."""
    freed = ("collective_axes", "interpret")
    kept = {name: value for name, value in call.keywords.items() if name not in freed}
    return Call(call.name, call.positional, kept)


def is_safe(call: Call) -> bool:
    """Whether the call works on a CPU."""
    if call.name == "pallas_call":
        return bool(call.keywords.get("interpret"))
    return call.keywords.get("collective_axes", ()) == ()


@given(modules())
@examples(25)
def test_a_gate_keeps_every_call_on_tpu(tmp_path: Path, text: str) -> None:
    result, _ = migrated(text, TO_CPU)
    before = calls(tmp_path, text, "tpu")
    assert [normal(call) for call in calls(tmp_path, result, "tpu")] == [
        normal(call) for call in before
    ]


@pytest.mark.parametrize("settings", [TO_CPU, TO_INTERPRET], ids=["gate", "remove"])
@given(modules())
@examples(25)
def test_on_cpu_every_call_that_was_reached_still_is_and_is_safe_where_nothing_was_left(
    tmp_path: Path, settings: Settings, text: str
) -> None:
    result, findings = migrated(text, settings)
    # As a TPU: there nothing that asks for its figures raises before other calls are reached.
    before = calls(tmp_path, text, "tpu")
    after = calls(tmp_path, result, "cpu")
    assert [unguarded(call) for call in after] == [unguarded(call) for call in before]
    if not any(finding.code in LEFT for finding in findings):
        assert [call for call in after if not is_safe(call)] == []


@given(modules())
@examples(15)
def test_without_a_gate_every_backend_gets_the_same_calls(tmp_path: Path, text: str) -> None:
    result, findings = migrated(text, TO_INTERPRET)
    if not any(finding.code in LEFT for finding in findings):
        assert calls(tmp_path, result, "cpu") == calls(tmp_path, result, "tpu")


@given(modules())
@examples(15)
def test_generated_modules_run_and_reach_pallas(tmp_path: Path, text: str) -> None:
    reached = calls(tmp_path, text, "tpu")
    assert [call.keywords["error"] for call in reached if call.name == "raises"] == []
