"""Files of torch.save go to C++ and come back, bit for bit."""

import pickle
import struct
import zipfile
from collections import Counter, OrderedDict

import pytest
import torch
from torch import nn

PLAIN = [
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
    torch.complex32,
    torch.complex64,
    torch.complex128,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2fnuz,
    torch.float8_e8m0fnu,
    torch.float4_e2m1fn_x2,
]


def load(path):
    return torch.load(path, weights_only=True)


@pytest.fixture
def through(driver, tmp_path):
    """`value` after Python has saved it, and C++ read and saved it again."""

    def run(value):
        torch.save(value, tmp_path / "python.pt")
        driver("torch_copy", tmp_path / "python.pt", tmp_path / "ampkit.pt")
        return load(tmp_path / "ampkit.pt")

    return run


def random_tensor(dtype, *shape):
    """Random bits: NaNs with payloads and all."""
    if dtype == torch.bool:
        return torch.rand(shape) < 0.5
    raw = torch.randint(0, 256, (*shape[:-1], shape[-1] * dtype.itemsize))
    return raw.to(torch.uint8).view(dtype)


def bits(tensor):
    return tensor.contiguous().flatten().view(torch.uint8)


def assert_same(found, expected):
    """Equal in type and value, tensors bit for bit."""
    assert type(found) is type(expected)
    if isinstance(expected, torch.Tensor):
        assert found.dtype == expected.dtype
        assert found.shape == expected.shape
        assert found.stride() == expected.stride()
        assert found.requires_grad == expected.requires_grad
        assert torch.equal(bits(found.detach()), bits(expected.detach()))
    elif isinstance(expected, dict):
        assert list(found) == list(expected)
        for key in expected:
            assert_same(found[key], expected[key])
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        for one, other in zip(found, expected):
            assert_same(one, other)
    else:
        assert found == expected


@pytest.mark.parametrize("dtype", PLAIN, ids=str)
def test_dtype_survives_both_ways(through, dtype):
    torch.manual_seed(0)
    tensors = {
        "matrix": random_tensor(dtype, 3, 5),
        "transposed": random_tensor(dtype, 4, 2).t(),
        "empty": torch.empty((0, 4), dtype=dtype),
        "dtype": dtype,
    }
    if dtype != torch.float4_e2m1fn_x2:  # a pair of values has no 0-d tensor
        tensors["scalar"] = random_tensor(dtype, 1).reshape(())
    assert_same(through(tensors), tensors)


def test_containers_and_scalars_survive_both_ways(through):
    value = OrderedDict(
        none=None,
        flags=[True, False],
        numbers=(0, 255, 256, 65536, -1, 2**31, -(2**63), 2**63 - 1),
        reals=[0.1, -0.0, float("inf"), float("-inf")],
        texts=["", "größer ∞", "a" * 300, "same", "same"],
        nested={0: {"deep": [{}, [], (), ((),)]}, -5: "minus five"},
    )
    assert_same(through(value), value)


def test_many_names_survive_both_ways(through):
    """More than the 256 that the short opcodes of a pickle can recall."""
    value = {f"layer.{i}.weight": torch.full((1,), i) for i in range(700)}
    again = {f"layer.{i}.weight": i for i in range(700)}
    assert_same(through([value, again]), [value, again])


def test_size_becomes_a_tuple(through):
    assert through([torch.Size([2, 3])]) == [(2, 3)]


def test_states_of_schedulers_survive_both_ways(through):
    optimizer = torch.optim.SGD([torch.ones(1)], lr=0.1, momentum=0.9)
    schedulers = torch.optim.lr_scheduler
    made = [
        schedulers.MultiStepLR(optimizer, [2, 2, 5]),  # has a Counter
        schedulers.OneCycleLR(optimizer, 0.1, total_steps=10),
        schedulers.ReduceLROnPlateau(optimizer),  # has an infinity
        schedulers.SequentialLR(
            optimizer,
            [schedulers.ConstantLR(optimizer), schedulers.ExponentialLR(optimizer, 1)],
            [3],
        ),
    ]
    states = [scheduler.state_dict() for scheduler in made]
    assert type(states[0]["milestones"]) is Counter
    assert_same(through(states), states)


def test_versions_of_modules_survive_both_ways(through):
    state = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)).state_dict()
    found = through(state)
    assert_same(found, state)
    assert found._metadata == state._metadata


def test_parameters_become_tensors_that_require_gradients(through):
    found = through([nn.Parameter(torch.ones(2)), torch.ones(2)])
    assert type(found[0]) is torch.Tensor
    assert [tensor.requires_grad for tensor in found] == [True, False]


def test_file_of_cpp_can_be_mapped_into_memory(through, tmp_path):
    value = {"a": torch.randn(100), "b": torch.randn(3).half(), "c": torch.arange(5)}
    through(value)
    mapped = torch.load(tmp_path / "ampkit.pt", weights_only=True, mmap=True)
    assert_same(mapped, value)
    for tensor in mapped.values():
        assert tensor.data_ptr() % 64 == 0  # as torch.save aligns them


def test_tied_tensors_stay_tied(through):
    weight = torch.randn(4, 6)
    found = through({"embedding": weight, "output": weight.t(), "row": weight[1]})
    assert found["output"].stride() == (1, 6)
    found["row"].fill_(7)
    assert (found["embedding"][1] == 7).all()
    assert (found["output"][:, 1] == 7).all()


def test_conjugate_and_negative_views_keep_their_values(through):
    conj = torch.randn(3, dtype=torch.complex64).conj()
    neg = torch.randn(3, dtype=torch.complex64).conj().imag
    found = through({"conj": conj, "neg": neg})
    assert conj.is_conj() and torch.equal(found["conj"], conj)
    assert neg.is_neg() and torch.equal(found["neg"], neg)


@pytest.mark.parametrize(
    "value, text",
    [
        (torch.eye(2).to_sparse(), "to_dense()"),
        (torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8), "dequantize"),
        (torch.empty(2, device="meta"), "meta"),
        (nn.Linear(2, 2), "state_dict()"),
        ({(1, 2): 3}, "key of a dict"),
        (2**70, "64 bits"),
        (torch.ones(1).numpy(), "from_numpy"),
        ({1, 2}, "set"),
    ],
    ids=["sparse", "quantised", "meta", "module", "key", "integer", "numpy", "set"],
)
def test_what_has_no_place_is_refused_by_name(through, value, text):
    with pytest.raises(AssertionError, match="python.pt") as error:
        through(value)
    assert text in str(error.value)


class Command:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        import os

        return os.system, (f"touch {self.marker}",)


def test_pickle_that_runs_a_command_is_refused(driver, tmp_path):
    torch.save({"w": Command(tmp_path / "ran")}, tmp_path / "bad.pt")
    with pytest.raises(pickle.UnpicklingError):
        load(tmp_path / "bad.pt")
    with pytest.raises(AssertionError, match="posix.system"):
        driver("torch_copy", tmp_path / "bad.pt", tmp_path / "copy.pt")
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "copy.pt").exists()


def test_old_and_scripted_files_are_refused_by_name(driver, tmp_path):
    path = tmp_path / "old.pt"
    torch.save({"w": torch.ones(1)}, path, _use_new_zipfile_serialization=False)
    with pytest.raises(AssertionError, match="before 1.6"):
        driver("torch_copy", path, tmp_path / "copy.pt")
    torch.jit.script(nn.Linear(1, 1)).save(path)
    with pytest.raises(AssertionError, match="TorchScript"):
        driver("torch_copy", path, tmp_path / "copy.pt")


def test_flipped_byte_that_python_does_not_notice_is_refused(driver, tmp_path):
    path = tmp_path / "file.pt"
    torch.save({"w": torch.zeros(1000)}, path)
    content = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as file:
        start = file.getinfo("file/data/0").header_offset
    content[start + 2000] ^= 1
    path.write_bytes(content)
    assert load(path)["w"].count_nonzero() == 1
    with pytest.raises(AssertionError, match="data/0.*checksum"):
        driver("torch_copy", path, tmp_path / "copy.pt")


def with_64_bit_directory(content):
    """The same zip file, with sizes and offsets as for more than 4 GiB."""
    end = content.rindex(b"PK\5\6")
    count, _, start = struct.unpack("<HII", content[end + 10 : end + 20])
    entries, at = b"", start
    for _ in range(count):
        fields = list(struct.unpack("<4s6H3I5H2I", content[at : at + 46]))
        packed, size, name, extra, offset = (fields[i] for i in (8, 9, 10, 11, 16))
        fields[8] = fields[9] = fields[16] = 0xFFFFFFFF
        fields[11] = 28
        text = content[at + 46 : at + 46 + name]
        entries += struct.pack("<4s6H3I5H2I", *fields) + text
        entries += struct.pack("<HHQQQ", 1, 24, size, packed, offset)
        at += 46 + name + extra
    large = start + len(entries)
    numbers = (44, 45, 45, 0, 0, count, count, len(entries), start)
    tail = struct.pack("<4sQHHIIQQQQ", b"PK\6\6", *numbers)
    tail += struct.pack("<4sIQI", b"PK\6\7", 0, large, 1)
    tail += struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, *[2**32 - 1] * 2, 0)
    return content[:start] + entries + tail


def test_directory_of_more_than_4_gib_is_read(driver, tmp_path):
    value = {"weight": torch.randn(20), "count": torch.arange(3)}
    torch.save(value, tmp_path / "small.pt")
    large = with_64_bit_directory((tmp_path / "small.pt").read_bytes())
    (tmp_path / "large.pt").write_bytes(large)
    assert_same(load(tmp_path / "large.pt"), value)
    driver("torch_copy", tmp_path / "large.pt", tmp_path / "copy.pt")
    assert_same(load(tmp_path / "copy.pt"), value)
