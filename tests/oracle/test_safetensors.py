"""Files go to and fro between ampkit and Python's safetensors, bit for bit."""

import json

import pytest
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file

DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.uint16,
    torch.int16,
    torch.uint32,
    torch.int32,
    torch.uint64,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2fnuz,
    torch.float8_e8m0fnu,
    torch.float4_e2m1fn_x2,
]


def random_tensor(dtype, *shape):
    """Random bits: NaNs with payloads and all."""
    if dtype == torch.bool:
        return torch.rand(shape) < 0.5
    raw = torch.randint(0, 256, (*shape[:-1], shape[-1] * dtype.itemsize))
    return raw.to(torch.uint8).view(dtype)


def bits(tensor):
    return tensor.contiguous().flatten().view(torch.uint8)


def header_names(path):
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        return [n for n in json.loads(file.read(length)) if n != "__metadata__"]


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype, name
        assert found[name].shape == tensor.shape, name
        assert torch.equal(bits(found[name]), bits(tensor)), name


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtype_survives_both_ways(driver, tmp_path, dtype):
    torch.manual_seed(0)
    tensors = {
        "matrix": random_tensor(dtype, 3, 5),
        "vector": random_tensor(dtype, 7),
        "empty": torch.empty((0, 4), dtype=dtype),
    }
    if dtype != torch.float4_e2m1fn_x2:  # a pair of values has no 0-d tensor
        tensors["scalar"] = random_tensor(dtype, 1).reshape(())
    save_file(tensors, tmp_path / "python")
    driver("safetensors_copy", tmp_path / "python", tmp_path / "ampkit")
    assert_same(load_file(tmp_path / "ampkit"), tensors)


def test_all_dtypes_in_one_file_are_aligned(driver, tmp_path):
    torch.manual_seed(1)
    tensors = {str(d): random_tensor(d, 3) for d in DTYPES}
    save_file(tensors, tmp_path / "python")
    driver("safetensors_copy", tmp_path / "python", tmp_path / "ampkit")
    assert_same(load_file(tmp_path / "ampkit"), tensors)
    # Python lays the values out by falling alignment too: same file, same
    # order of names.
    assert header_names(tmp_path / "ampkit") == header_names(tmp_path / "python")


def test_metadata_survives_both_ways(driver, tmp_path):
    metadata = {"format": "pt", "quoted \" name": "größer ∞\n", "": ""}
    save_file({"w": torch.ones(2)}, tmp_path / "python", metadata)
    driver("safetensors_copy", tmp_path / "python", tmp_path / "ampkit")
    with safe_open(tmp_path / "ampkit", framework="pt") as file:
        assert file.metadata() == metadata


def test_checkpoint_is_a_safetensors_file(driver, tmp_path):
    torch.manual_seed(2)
    tensors = {"model.w": torch.randn(3, 2).half(), "master.w": torch.randn(3, 2)}
    save_file(tensors, tmp_path / "python")
    driver("checkpoint_save", tmp_path / "python", tmp_path / "ampkit")
    assert_same(load_file(tmp_path / "ampkit"), tensors)
    with safe_open(tmp_path / "ampkit", framework="pt") as file:
        metadata = file.metadata()
    assert metadata["epoch"] == "2"
    entries = json.loads(metadata["ampkit.entries"])
    assert entries[0] == ["step", "integer", 3]
    assert entries[-1] == ["scale", "real", 65536.0]
    assert {e[0] for e in entries if e[1] == "tensor"} == set(tensors)


def damaged_headers():
    entry = '{"dtype":"U8","shape":[2],"data_offsets":[0,2]}'
    return {
        "truncated": ('{"w":' + entry + "}", 1),
        "longer": ('{"w":' + entry + "}", 3),
        "overlap": ('{"v":' + entry + ',"w":' + entry + "}", 2),
        "shape": ('{"w":' + entry.replace("[2]", "[3]") + "}", 2),
        "json": ('{"w":' + entry, 2),
        "dtype": ('{"w":' + entry.replace("U8", "U9") + "}", 2),
    }


@pytest.mark.parametrize("kind", damaged_headers())
def test_what_python_refuses_ampkit_refuses(driver, tmp_path, kind):
    header, size = damaged_headers()[kind]
    path = tmp_path / "file"
    path.write_bytes(len(header).to_bytes(8, "little") + header.encode() + bytes(size))
    with pytest.raises(SafetensorError):
        load_file(path)
    with pytest.raises(AssertionError, match=str(path)):
        driver("safetensors_copy", path, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
