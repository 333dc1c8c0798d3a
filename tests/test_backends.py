"""Backend tests: what an expression says of the platform, and which code is reached on it."""

from __future__ import annotations

from textwrap import dedent

import pytest

from migrate_pallas.backends import CPU, GPU, PLATFORMS, TPU, Backends
from migrate_pallas.calls import unwrapped
from migrate_pallas.names import Names
from migrate_pallas.parts import in_parts

IMPORTS = """
import functools, os, platform, sys
import jax
from jax.experimental.pallas import tpu as pltpu
from jax._src import test_util as jtu
from jax.extend import backend as jex_backend
"""


def truths(expression: str, before: str = "") -> tuple[bool | None, ...]:
    """What `expression` is on CPU, GPU and TPU, in a function after the statements `before`."""
    tree = in_parts(f"{IMPORTS}{dedent(before)}\ndef asked():\n    return (\n{expression}\n)\n")
    names = Names(tree)
    returned = tree.children[-2].children[-1].children[-2].children[0].children[1]
    backends = Backends(names, "on_tpu")
    return tuple(backends.truth(unwrapped(returned), platform) for platform in PLATFORMS)


ON_TPU = (False, False, True)
NOT_ON_TPU = (True, True, False)
ON_CPU = (True, False, False)
NOT_ON_CPU = (False, True, True)
ON_GPU = (False, True, False)
UNKNOWN = (None, None, None)


@pytest.mark.parametrize(
    "expression, expected",
    [
        ('jax.default_backend() == "tpu"', ON_TPU),
        ('"tpu" == jax.default_backend()', ON_TPU),
        ('jax.default_backend() != "tpu"', NOT_ON_TPU),
        ('not jax.default_backend() == "tpu"', NOT_ON_TPU),
        ('jax.default_backend() == "cpu"', ON_CPU),
        ('jax.default_backend() != "cpu"', NOT_ON_CPU),
        ('jax.default_backend() == "gpu"', (False, None, False)),
        ('jax.default_backend() in ("gpu", "cuda", "rocm")', ON_GPU),
        ('jax.default_backend() in ("tpu",)', ON_TPU),
        ('jax.default_backend() in ["tpu", "cpu"]', (True, False, True)),
        ('jax.default_backend() in {"tpu"}', ON_TPU),
        ('jax.default_backend() not in ("tpu",)', NOT_ON_TPU),
        ('"tpu" in jax.default_backend()', ON_TPU),
        ('jax.default_backend().lower() == "tpu"', ON_TPU),
        ('jax.default_backend().upper() == "TPU"', ON_TPU),
        ('jax.default_backend().startswith("tpu")', ON_TPU),
        ('jax.default_backend().startswith(("tpu", "axon"))', ON_TPU),
        ('jax.devices()[0].platform == "tpu"', ON_TPU),
        ('jax.local_devices()[0].platform == "tpu"', ON_TPU),
        ('jax.devices()[-1].platform != "cpu"', NOT_ON_CPU),
        ('next(iter(jax.devices())).platform == "tpu"', ON_TPU),
        ('any(d.platform == "tpu" for d in jax.devices())', ON_TPU),
        ('all(d.platform == "cpu" for d in jax.devices())', ON_CPU),
        ('any([d.platform == "tpu" for d in jax.local_devices()])', ON_TPU),
        ('jax.devices()[0].device_kind.startswith("TPU")', ON_TPU),
        ('"TPU" in jax.devices()[0].device_kind', ON_TPU),
        ('jax.devices()[0].device_kind == "TPU v5 lite"', (False, False, None)),
        ('jax.devices()[0].device_kind == "cpu"', ON_CPU),
        ('jax.devices()[0].device_kind.lower().startswith("tpu v5")', (False, False, None)),
        ('getattr(jax.devices()[0], "platform") == "tpu"', ON_TPU),
        ('getattr(jax.devices()[0], "device_kind", "").startswith("TPU")', ON_TPU),
        ('mesh.devices.flat[0].platform == "tpu"', ON_TPU),
        ('self.mesh.devices[0, 0].platform == "tpu"', ON_TPU),
        ('mesh.local_devices[0].platform == "tpu"', ON_TPU),
        ('jex_backend.get_backend().platform == "tpu"', ON_TPU),
        ("pltpu.is_tpu_device()", ON_TPU),
        ("not pltpu.is_tpu_device()", NOT_ON_TPU),
        ("jtu.is_device_tpu()", ON_TPU),
        ("jtu.is_cloud_tpu()", ON_TPU),
        ("jtu.is_device_cuda()", ON_GPU),
        ("jtu.is_device_tpu_at_least(5)", (False, False, None)),
        ('jtu.test_device_matches(["tpu"])', ON_TPU),
        ('jtu.test_device_matches(["cpu", "gpu"])', NOT_ON_TPU),
        ('jtu.device_under_test() == "tpu"', ON_TPU),
        ('bool(jax.default_backend() == "tpu")', ON_TPU),
        ('(jax.default_backend() == "tpu") is True', ON_TPU),
        ('(jax.default_backend() == "tpu") is not True', NOT_ON_TPU),
        ('(jax.default_backend() == "tpu") == False', NOT_ON_TPU),
        ('True if jax.default_backend() == "tpu" else False', ON_TPU),
        ('False if jax.default_backend() == "tpu" else True', NOT_ON_TPU),
        ('(found := jax.default_backend()) == "tpu"', ON_TPU),
        ('(found := jax.default_backend() == "tpu")', ON_TPU),
    ],
)
def test_each_platform_source_with_its_polarity(expression, expected):
    assert truths(expression) == expected


@pytest.mark.parametrize(
    "expression, expected",
    [
        ('jax.default_backend() == "tpu" and jax.device_count() > 1', (False, False, None)),
        ('jax.device_count() > 1 and jax.default_backend() == "tpu"', (False, False, None)),
        ('jax.default_backend() == "tpu" or debug', (None, None, True)),
        ('not (jax.default_backend() == "tpu" or debug)', (None, None, False)),
        ('jax.default_backend() == "tpu" and jax.default_backend() != "cpu"', ON_TPU),
        ('jax.default_backend() == "tpu" if debug else jax.default_backend() == "tpu"', ON_TPU),
        (
            'jax.default_backend() == "tpu" if debug else jax.default_backend() == "cpu"',
            (None, False, None),
        ),
    ],
)
def test_what_depends_on_something_else_too_is_known_where_that_does_not_matter(
    expression, expected
):
    assert truths(expression) == expected


@pytest.mark.parametrize(
    "before, expression, expected",
    [
        ('ON = jax.default_backend() == "tpu"', "ON", ON_TPU),
        ('ON = jax.default_backend() == "tpu"', "not ON", NOT_ON_TPU),
        ("NAME = jax.default_backend()", 'NAME == "tpu"', ON_TPU),
        ('WORD = "tpu"', "jax.default_backend() == WORD", ON_TPU),
        ('WORDS = ("tpu", "cpu")', "jax.default_backend() in WORDS", (True, False, True)),
        ("DEVICE = jax.devices()[0]", 'DEVICE.platform == "tpu"', ON_TPU),
        ("DEVICES = jax.devices()", 'DEVICES[0].platform == "tpu"', ON_TPU),
        ("KIND = jax.devices()[0].device_kind", 'KIND.startswith("TPU")', ON_TPU),
        ('A = jax.default_backend() == "tpu"\nB = A', "B", ON_TPU),
        ('def t(): return jax.default_backend() == "tpu"', "t()", ON_TPU),
        ('t = lambda: jax.default_backend() == "tpu"', "t()", ON_TPU),
        ("def t(): return jax.default_backend()", 't() == "tpu"', ON_TPU),
        ("t = jax.default_backend", 't() == "tpu"', ON_TPU),
        ('@functools.cache\ndef t(): return jax.default_backend() == "tpu"', "t()", ON_TPU),
        (
            '@functools.lru_cache(None)\ndef t(): return jax.default_backend() == "tpu"',
            "t()",
            ON_TPU,
        ),
        (
            'def t():\n    if jax.default_backend() == "tpu":\n        return True\n    return False',
            "t()",
            ON_TPU,
        ),
        (
            'def t():\n    if jax.default_backend() != "tpu":\n        return False\n    else:\n        return True',
            "t()",
            ON_TPU,
        ),
        (
            'def t():\n    """On TPU?"""\n    kind = jax.devices()[0].platform\n    return kind == "tpu"',
            "t()",
            ON_TPU,
        ),
        (
            'def t():\n    try:\n        return jax.devices()[0].platform == "tpu"\n'
            "    except RuntimeError:\n        return False",
            "t()",
            ON_TPU,
        ),
        ("from my_project import on_tpu", "on_tpu()", ON_TPU),
        ("import my_project", "my_project.on_tpu()", ON_TPU),
    ],
)
def test_names_and_functions_of_the_module_are_followed(before, expression, expected):
    assert truths(expression, before) == expected


@pytest.mark.parametrize(
    "before, expression",
    [
        ("", 'os.environ.get("JAX_PLATFORMS") == "tpu"'),
        ("", 'os.environ["JAX_PLATFORMS"] == "tpu"'),
        ("", 'os.getenv("ON_TPU") == "tpu"'),
        ("", 'jax.config.jax_platforms == "tpu"'),
        ("", 'config.platform == "tpu"'),
        ("", 'self.platform == "tpu"'),
        ("", 'platform == "tpu"'),
        ("", 'backend == "tpu"'),
        ("", 'sys.platform == "tpu"'),
        ("", 'platform.system() == "tpu"'),
        ("", 'platform.machine() == "tpu"'),
        ("", 'jax.__version__ == "tpu"'),
        ("", "jax.__version_info__ > (0, 6)"),
        ("", 'jax.version.__version__.startswith("tpu")'),
        ("", 'spec.device_kind == "TPU v5 lite"'),
        ("", "jax.default_backend() == wanted"),
        ("", "jax.default_backend() is wanted"),
        ("", "jax.default_backend() in wanted"),
        ("", "jax.default_backend()"),
        ("", "jax.default_backend"),
        ("", 'jax.default_backend == "tpu"'),
        ("", 'jax.devices("tpu")'),
        ("", "len(jax.devices()) > 1"),
        ("", "jax.device_count() == 1"),
        ("", 'mine.default_backend() == "tpu"'),
        ("", "mine.is_tpu_device()"),
        ("", "on_tpu()"),
        ("", 'jax.default_backend() < "tpu"'),
        ("", 'jax.default_backend()[0] == "t"'),
        ("", "any([jax.default_backend()])"),
        ("", 'any([jax.default_backend() == "tpu", debug])'),
        ("", 'jax.default_backend().replace("x", "tpu") == "tpu"'),
        ("", 'jax.default_backend().endswith("pu")'),
        ("from my_project import use_tpu", "use_tpu()"),
        ("from my_project import on_tpu", "on_tpu"),
        ("from my_project import on_tpu", "on_tpu(1)"),
        ('ON = jax.default_backend() == "tpu"\nON = False', "ON"),
        ('def t(x): return jax.default_backend() == "tpu"', "t(1)"),
        ('async def t(): return jax.default_backend() == "tpu"', "t()"),
        ('@mine\ndef t(): return jax.default_backend() == "tpu"', "t()"),
        ('def t():\n    yield jax.default_backend() == "tpu"', "t()"),
        (
            'def t():\n    for x in y:\n        return True\n    return jax.default_backend() == "tpu"',
            "t()",
        ),
        ("def t(): return t()", "t()"),
        ("A = B\nB = A", "A"),
    ],
)
def test_near_misses_are_unknown(before, expression):
    assert truths(expression, before) == UNKNOWN


@pytest.mark.parametrize(
    "source, on_cpu, on_gpu, on_tpu",
    [
        ("if T:\n    HERE\n", True, True, False),
        ("if not T:\n    HERE\n", False, False, True),
        ("if T:\n    pass\nelse:\n    HERE\n", False, False, True),
        ("if x:\n    pass\nelif T:\n    HERE\n", True, True, False),
        ("if T:\n    pass\nelif x:\n    HERE\n", False, False, True),
        ("if T and x:\n    HERE\n", True, True, False),
        ("if T or x:\n    HERE\n", False, False, False),
        ("if T or x:\n    pass\nelse:\n    HERE\n", False, False, True),
        ("if T:\n    if x:\n        for y in z:\n            HERE\n", True, True, False),
        ("while T:\n    HERE\n", True, True, False),
        ("HERE if T else x\n", True, True, False),
        ("x if T else HERE\n", False, False, True),
        ("HERE if x else T\n", False, False, False),
        ("T and HERE\n", True, True, False),
        ("x and T and HERE\n", True, True, False),
        ("HERE and T\n", False, False, False),
        ("T or HERE\n", False, False, True),
        ("def f():\n    if not T:\n        return 1\n    HERE\n", True, True, False),
        ("def f():\n    if T:\n        raise E\n    HERE\n", False, False, True),
        ("def f():\n    if T:\n        x\n    HERE\n", False, False, False),
        (
            "def f():\n    if not T:\n        return 1\n    def g():\n        HERE\n",
            True,
            True,
            False,
        ),
        ("if T:\n    x\nHERE\n", False, False, False),
        ("if HERE:\n    T\n", False, False, False),
    ],
)
def test_code_that_backend_tests_keep_from_running(source, on_cpu, on_gpu, on_tpu):
    source = source.replace("T", '(jax.default_backend() == "tpu")')
    tree = in_parts(f"import jax\n{source}")
    here = next(leaf for leaf in tree.leaves() if leaf.value == "HERE")
    backends = Backends(Names(tree), "on_tpu")
    found = {platform: backends.unreached(here, platform) for platform in PLATFORMS}
    assert found == {CPU: on_cpu, GPU: on_gpu, TPU: on_tpu}


@pytest.mark.parametrize(
    "source, has_one",
    [
        ("try:\n    HERE\nexcept Exception:\n    x\n", True),
        ("try:\n    HERE\nexcept:\n    x\n", True),
        ("try:\n    HERE\nexcept NotImplementedError as e:\n    x\n", True),
        ("try:\n    HERE\nexcept (TypeError, ValueError):\n    x\n", True),
        ("try:\n    HERE\nexcept KeyError:\n    x\nexcept ValueError:\n    x\n", True),
        ("try:\n    if x:\n        HERE\nexcept ValueError: x\n", True),
        ("try:\n    HERE\nexcept KeyError:\n    x\n", False),
        ("try:\n    HERE\nexcept ValueError:\n    raise\n", False),
        ("try:\n    HERE\nexcept ValueError as e:\n    x\n    raise E from e\n", False),
        ("try:\n    HERE\nfinally:\n    x\n", False),
        ("try:\n    x\nexcept ValueError:\n    HERE\n", False),
        ("try:\n    x\nexcept ValueError:\n    x\nelse:\n    HERE\n", False),
        ("try:\n    def f():\n        HERE\nexcept ValueError:\n    x\n", False),
        ("try:\n    f = lambda: HERE\nexcept ValueError:\n    x\n", False),
    ],
)
def test_a_try_with_a_fallback(source, has_one):
    tree = in_parts(source)
    here = next(leaf for leaf in tree.leaves() if leaf.value == "HERE")
    assert Backends(Names(tree), "on_tpu").has_fallback(here) is has_one
