"""When a gate runs, and what it sees: the process's default backend, once that has started."""

import socket

import jax
import pytest

from .kernels import NUMBERS, SIMULATOR, abstract_tpu, add_one, call, fresh_python

STARTED = "from jax._src import xla_bridge; print(xla_bridge.backends_are_initialized())"


def test_nothing_that_a_rewrite_writes_at_module_level_starts_the_backend():
    lines = fresh_python(
        f"""
        def on_tpu() -> bool:
            return jax.default_backend() == "tpu"

        pltpu.get_tpu_info_for_chip(pltpu.ChipVersion.TPU_V6E, 1)
        {STARTED}
        on_tpu()
        {STARTED}
        """
    )
    assert lines == ["False", "True"]


TOO_LATE = {
    "jax_num_cpu_devices": "jax.config.update('jax_num_cpu_devices', 3)",
    "initialize": "jax.distributed.initialize('localhost:{port}', num_processes=1, process_id=0)",
}


@pytest.mark.parametrize("setting", TOO_LATE)
@pytest.mark.parametrize("gate", ["jax.default_backend()", "None"])
def test_asking_for_the_backend_at_import_makes_later_settings_fail(setting, gate):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    lines = fresh_python(
        f"""
        {gate}
        try:
            {TOO_LATE[setting].format(port=port)}
            print("set")
        except RuntimeError as error:
            print(error)
        """
    )
    if gate == "None":
        assert lines == ["set"]
    else:
        assert setting in lines[0]
        assert "before" in lines[0]


def lowered(interpret):
    kernel = jax.jit(lambda x: call(add_one, interpret)(x))
    return kernel.trace(NUMBERS).lower(lowering_platforms=("tpu",)).as_text()


def exported(interpret):
    kernel = jax.jit(lambda x: call(add_one, interpret)(x))
    return jax.export.export(kernel, platforms=["tpu"])(NUMBERS).mlir_module()


@pytest.mark.parametrize("for_tpu", [lowered, exported])
def test_a_gate_gives_interpreted_code_to_a_tpu_that_is_lowered_for_on_cpu(for_tpu):
    with jax.sharding.use_abstract_mesh(abstract_tpu("TPU v6 lite")):
        assert "tpu_custom_call" in for_tpu(False)
        assert "tpu_custom_call" not in for_tpu(jax.default_backend() != "tpu")


@pytest.mark.parametrize("for_tpu", [lowered, exported])
def test_the_simulator_can_not_be_lowered_for_another_platform(for_tpu):
    with pytest.raises(ValueError, match="different from the lowering platform tpu"):
        for_tpu(SIMULATOR)


def test_the_simulator_can_not_be_exported_and_the_generic_interpreter_can():
    def export(interpret):
        return jax.export.export(jax.jit(lambda x: call(add_one, interpret)(x)))(NUMBERS)

    assert export(True).platforms == ("cpu",)
    with pytest.raises(NotImplementedError, match="serialization of host_callbacks"):
        export(SIMULATOR)


def test_default_device_is_not_seen_by_default_backend():
    with jax.default_device("tpu"):
        assert jax.default_backend() == "cpu"
