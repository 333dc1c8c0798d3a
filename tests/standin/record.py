"""Run a module against the stand-in and tell what reached Pallas's entry points."""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import io
import sys
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

STANDIN = Path(__file__).parent

# Values that can be compared as they are; of all others the text is kept.
PLAIN = (str, bytes, int, float, bool, type(None))


@dataclass(frozen=True)
class Call:
    """One call of an entry point; or, under the name "raises", an exception of the module's code.

    Attributes:
        name: the entry point, by its own name whatever it was called in the module.
        positional: how many positional arguments reached it.
        keywords: keyword arguments, of which everything but plain values is text.
    """

    name: str
    positional: int
    keywords: Mapping[str, Any]


def record(
    source_path: Path,
    backend: str,
    neighbours: Mapping[str, types.ModuleType] | None = None,
) -> list[Call]:
    """What reaches the entry points when a module is imported and its functions are called.

    Every function and every method of the module is called once, in the order of definition,
    with inert values for the parameters that it requires.

    Args:
        source_path: the module, read as Python would read it (cookie, BOM).
        backend: "tpu", "cpu" or "gpu", which the stand-in then claims to run on.
        neighbours: modules that this one imports and that exist nowhere.

    Returns:
        The calls in their order; an exception stands in its place as `Call("raises", 0, ...)`.
    """
    with standing_in(backend, neighbours or {}) as recording:
        play(source_path, recording)
        return [
            Call(entry, positional, {key: plain(value, recording) for key, value in named.items()})
            for entry, positional, named in recording.reached
        ]


def outcomes(
    source_path: Path,
    backend: str,
    neighbours: Mapping[str, types.ModuleType] | None = None,
) -> dict[str, Any]:
    """What each function and method of the module returned, by its name; the arguments are those of `record`."""
    with standing_in(backend, neighbours or {}) as recording:
        returned = play(source_path, recording)
        return {place: plain(value, recording) for place, value in returned.items()}


def play(source_path: Path, recording: types.ModuleType) -> dict[str, Any]:
    """Import the module and call its functions; what those returned, by name, that did not raise."""
    module = types.ModuleType("recorded")
    module.__file__ = str(source_path)
    code = compile(source_path.read_bytes(), str(source_path), "exec")
    returned = {}
    with contextlib.redirect_stdout(io.StringIO()):
        run_and_note(recording, "import", lambda: exec(code, module.__dict__))
        for place, function in functions_of(module):
            returned[place] = run_and_note(
                recording, place, lambda function=function: recording.run(function)
            )
    return returned


def run_and_note(recording: types.ModuleType, place: str, action: Any) -> Any:
    """Do `action`, and return its outcome; an exception is remembered among the calls rather than raised."""
    try:
        outcome = action()
        if inspect.isgenerator(outcome):
            return list(outcome)
        if inspect.iscoroutine(outcome):
            with contextlib.suppress(StopIteration):
                outcome.send(None)
            return None
        return outcome
    except Exception as error:
        named = {"in": place, "error": f"{type(error).__name__}: {error}"}
        recording.remember("raises", 0, named)
        return None


def functions_of(module: types.ModuleType) -> Iterator[tuple[str, Any]]:
    """The module's own functions, partials and bound methods, with the name of each."""
    for name, value in list(vars(module).items()):
        if isinstance(value, types.FunctionType) and value.__module__ == module.__name__:
            yield name, value
        elif isinstance(value, type) and value.__module__ == module.__name__:
            with contextlib.suppress(TypeError):
                instance = value()
                for method, function in list(vars(value).items()):
                    if isinstance(function, types.FunctionType | staticmethod | classmethod) and (
                        not method.startswith("_")
                    ):
                        yield f"{name}.{method}", getattr(instance, method)


def plain(value: Any, recording: types.ModuleType) -> Any:
    """A value that equal programs leave equal: itself if it is plain, else its text."""
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, tuple):
        return tuple(plain(item, recording) for item in value)
    return recording.spelled(value)


@contextlib.contextmanager
def standing_in(
    backend: str, neighbours: Mapping[str, types.ModuleType]
) -> Iterator[types.ModuleType]:
    """While this lasts `import jax` finds the stand-in; then whatever was imported before is back.

    Yields:
        The stand-in's `jax._recording`, fresh, for the backend asked for.
    """
    before = {name: sys.modules.pop(name) for name in list(sys.modules) if is_jax(name)}
    hidden = {name: sys.modules[name] for name in neighbours if name in sys.modules}
    finder = StandinFinder()
    sys.meta_path.insert(0, finder)
    sys.modules.update(neighbours)
    try:
        recording = importlib.import_module("jax._recording")
        recording.backend = backend
        yield recording
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if is_jax(name) or name in neighbours]:
            del sys.modules[name]
        sys.modules.update(before | hidden)


def is_jax(name: str) -> bool:
    """Whether a module belongs to JAX."""
    return name.partition(".")[0] == "jax"


class StandinFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds `jax` in this directory, and an inert module for each part that is not written here."""

    def find_spec(
        self, name: str, path: Any, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The stand-in's file for `name`, or an inert module; None for what is not JAX."""
        if not is_jax(name):
            return None
        place = STANDIN.joinpath(*name.split("."))
        for file in (place / "__init__.py", place.with_suffix(".py")):
            if file.exists():
                package = [str(place)] if file.name == "__init__.py" else None
                return importlib.util.spec_from_file_location(
                    name, file, submodule_search_locations=package
                )
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        """An ordinary module."""
        return None

    def exec_module(self, module: types.ModuleType) -> None:
        """Give the module an inert value for every attribute that is asked of it."""
        inert = sys.modules["jax._recording"].Inert(module.__name__)

        def attribute(name: str) -> Any:
            return getattr(inert, name)

        module.__getattr__ = attribute  # type: ignore[method-assign]
