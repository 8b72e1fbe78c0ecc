"""ampkit doctor says what this machine is, beside what Python's torch says."""

import json
import os

import pytest
import torch


@pytest.fixture(scope="module")
def program(build):
    return build / "apps" / "ampkit" / "ampkit"


@pytest.fixture(scope="module")
def doctor(program, run):
    """The JSON of `ampkit doctor`, with some environment variables set."""

    def ask(**environment):
        env = {**os.environ, **environment}
        return json.loads(run([program, "doctor", "--json"], env=env).stdout)

    return ask


@pytest.fixture(scope="module")
def machine(doctor):
    return doctor()


def dtype(machine, name):
    return next(entry for entry in machine["dtypes"] if entry["name"] == name)


def test_facts_are_those_of_python(machine):
    assert machine["libtorch_version"] == torch.__version__.split("+")[0]
    assert machine["libtorch_kernels"] == torch.backends.cpu.get_cpu_capability()
    assert machine["logical_cores"] == os.cpu_count()
    assert machine["usable_cores"] <= len(os.sched_getaffinity(0))
    assert machine["threads"] == torch.get_num_threads()
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert abs(machine["memory_bytes"] - pages) < 0.01 * pages


def test_16_bit_units_are_those_that_python_sees(machine):
    has = torch.cpu.get_capabilities()
    bf16 = any(has.get(name) for name in ("avx512_bf16", "amx_bf16", "bf16"))
    fp16 = any(has.get(name) for name in ("avx512_fp16", "amx_fp16"))
    for name, units in (("bf16", bf16), ("fp16", fp16)):
        path = dtype(machine, name)["path"]
        # Measured far slower than fp32 in spite of its units: also said.
        allowed = ["native", "emulated (stock, slow)"] if units else ["through FP32"]
        assert path in allowed, (name, dtype(machine, name))


def test_speeds_are_measured(machine):
    for name in ("fp32", "bf16", "fp16"):
        assert dtype(machine, name)["matmul_gflops"] > 0
        assert dtype(machine, name)["conv_gflops"] > 0
    for entry in machine["dtypes"]:
        has_stock = entry["stock_matmul_gflops"] is not None
        assert has_stock == (entry["path"] == "through FP32")


def test_processor_held_below_its_units_is_through_fp32(doctor):
    # oneDNN's own limit makes every x86 processor one without 16-bit units.
    machine = doctor(ONEDNN_MAX_CPU_ISA="AVX2")
    for name in ("bf16", "fp16"):
        assert dtype(machine, name)["path"] == "through FP32"
        assert dtype(machine, name)["reason"]


def test_stock_kernels_asked_for_are_not_called_native_without_units(doctor):
    has = torch.cpu.get_capabilities()
    if has.get("avx512_fp16") or has.get("amx_fp16"):
        pytest.skip("this processor has fp16 units")
    entry = dtype(doctor(AMPKIT_CPU_16BIT="native"), "fp16")
    assert entry["path"] == "emulated (stock, slow)"
    assert "no fp16 units" in entry["reason"]


def test_wrong_environment_variable_is_an_error_that_lists_values(program, run):
    done = run(
        [program, "doctor"], status=2, env={**os.environ, "AMPKIT_CPU_16BIT": "fast"}
    )
    assert "AMPKIT_CPU_16BIT must be auto, native or fp32, got 'fast'" in done.stdout


def test_text_says_the_same(program, run, machine):
    text = run([program, "doctor"]).stdout
    assert f"LibTorch {machine['libtorch_version']}" in text
    assert machine["processor"] in text
    for name in ("fp32", "bf16", "fp16", "fp8"):
        assert f"\n  {name} " in text
    assert "issing" in text


def test_unknown_option_is_wrong_usage(program, run):
    done = run([program, "doctor", "--jsn"], status=2)
    assert "--jsn" in done.stdout
