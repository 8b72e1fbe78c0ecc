"""Pixels and batches are those that numpy, Pillow and PyTorch make of a file."""

import gzip
import json
import pathlib

import numpy
import pytest
import torch
from PIL import Image, ImageOps
from safetensors.torch import load_file

FASHION_MNIST = pathlib.Path("/usr/share/datasets/fashion-mnist")


@pytest.fixture
def read(driver, tmp_path):
    """What the driver's image_data makes of a folder."""

    def run(**settings):
        channels = 1 if settings["format"] == "idx" else 3
        settings = {
            "split": "train",
            "batch": 16,
            "mean": [0.1 * (c + 1) for c in range(channels)],
            "std": [0.3 * (c + 1) for c in range(channels)],
            **settings,
        }
        (tmp_path / "settings.json").write_text(json.dumps(settings))
        driver("image_data", tmp_path / "settings.json", tmp_path / "output")
        found = load_file(tmp_path / "output")
        check_batch(found, settings)
        return found

    return run


def check_batch(found, settings):
    """The batch is what PyTorch's arithmetic gives, to the last bit."""
    count = min(settings["batch"], len(found["pixels"]))
    scaled = found["pixels"][:count].float().div(255)
    planes = [
        scaled[:, channel].sub(mean).div(std)
        for channel, (mean, std) in enumerate(zip(settings["mean"], settings["std"]))
    ]
    assert torch.equal(found["input"], torch.stack(planes, 1))
    assert torch.equal(found["target"], found["labels"][:count])


def check_normalization(found):
    pixels = found["pixels"].double().div(255)
    assert torch.allclose(found["mean"], pixels.mean((0, 2, 3)), rtol=1e-9)
    assert torch.allclose(
        found["std"], pixels.std((0, 2, 3), correction=0), rtol=1e-9
    )


@pytest.mark.skipif(
    not FASHION_MNIST.exists(), reason="dataset-fashion-mnist is not installed"
)
@pytest.mark.parametrize("split, prefix", [("train", "train"), ("test", "t10k")])
def test_fashion_mnist(read, split, prefix):
    def content(kind, start):
        with gzip.open(FASHION_MNIST / f"{prefix}-{kind}-ubyte.gz") as file:
            return numpy.frombuffer(file.read(), numpy.uint8, offset=start)

    found = read(format="idx", dir=str(FASHION_MNIST), split=split)
    images = content("images-idx3", 16).reshape(-1, 1, 28, 28)
    assert numpy.array_equal(found["pixels"], images)
    assert numpy.array_equal(found["labels"], content("labels-idx1", 8))
    check_normalization(found)


@pytest.mark.parametrize("split", ["train", "test"])
def test_cifar10(read, tmp_path, split):
    random = numpy.random.default_rng(0)
    names = ["test_batch"]
    if split == "train":
        names = [f"data_batch_{i}" for i in range(1, 6)]
    records = random.integers(0, 256, (len(names), 10000, 3073), numpy.uint8)
    records[..., 0] %= 10
    for name, part in zip(names, records):
        (tmp_path / f"{name}.bin").write_bytes(part.tobytes())
    found = read(format="cifar10", dir=str(tmp_path), split=split)
    records = records.reshape(-1, 3073)
    assert numpy.array_equal(found["labels"], records[:, 0])
    images = records[:, 1:].reshape(-1, 3, 32, 32)
    assert numpy.array_equal(found["pixels"], images)
    check_normalization(found)


def picture(height, width, seed):
    """Smooth colours with noise on them, [height, width, 4]."""
    random = numpy.random.default_rng(seed)
    y, x = numpy.mgrid[0:height, 0:width]
    waves = [numpy.sin(y / (5 + c) + seed) + numpy.cos(x / (7 + c)) for c in range(4)]
    smooth = 127 + 50 * numpy.stack(waves, -1)
    noise = random.normal(0, 20, smooth.shape)
    return numpy.clip(smooth + noise, 0, 255).astype(numpy.uint8)


SIZES = [(64, 64), (100, 75), (31, 97), (7, 300), (1, 1), (3, 2), (40, 48), (333, 500)]
JPEG_OPTIONS = [
    {"quality": 95, "subsampling": 0},
    {"quality": 80, "subsampling": 1},
    {"quality": 75, "subsampling": 2},
    {"quality": 60, "progressive": True},
    {"quality": 85, "optimize": True, "restart_marker_blocks": 3},
]


def expected_pixels(image, height, width):
    fitted = ImageOps.fit(image.convert("RGB"), (width, height), Image.Resampling.BILINEAR)
    return numpy.asarray(fitted).transpose(2, 0, 1)


def check_folder(read, folder, height, width, opened=Image.open):
    found = read(format="folder", dir=str(folder), height=height, width=width)
    paths = sorted(folder.glob("*/*"))
    labels = sorted({path.parent.name for path in paths})
    for i, path in enumerate(paths):
        expected = expected_pixels(opened(path), height, width)
        assert numpy.array_equal(found["pixels"][i], expected), path.name
        assert labels[found["labels"][i]] == path.parent.name
    assert len(found["pixels"]) == len(paths)


@pytest.fixture
def folder(tmp_path):
    for name in ("cat", "dog"):
        (tmp_path / "images" / name).mkdir(parents=True)
    return tmp_path / "images"


@pytest.mark.parametrize("height, width", [(32, 32), (64, 48), (224, 224)])
def test_png_folder(read, folder, height, width):
    for i, size in enumerate(SIZES):
        pixels = picture(*size, i)
        for mode in ("RGB", "RGBA", "L", "LA", "P", "1"):
            source = Image.fromarray(pixels, "RGBA")
            source = source if mode == "RGBA" else source.convert("RGB").convert(mode)
            source.save(folder / ("cat", "dog")[i % 2] / f"{i}-{mode}.png")
    check_folder(read, folder, height, width)


@pytest.mark.parametrize("height, width", [(32, 32), (64, 48), (224, 224)])
def test_jpeg_folder(read, folder, height, width):
    for i, size in enumerate(SIZES):
        pixels = picture(*size, i)
        for j, options in enumerate(JPEG_OPTIONS):
            image = Image.fromarray(pixels[..., :3], "RGB")
            image.save(folder / "cat" / f"{i}-{j}.jpg", **options)
        Image.fromarray(pixels[..., 0], "L").save(folder / "dog" / f"{i}-grey.jpeg")
        Image.fromarray(pixels, "CMYK").save(folder / "dog" / f"{i}-cmyk.JPG")
    check_folder(read, folder, height, width)


def test_16_bit_grey_png_keeps_the_upper_byte(read, folder):
    values = picture(40, 40, 0)[..., 0].astype(numpy.uint16) * 256 + 77
    Image.fromarray(values).save(folder / "cat" / "1.png")
    Image.fromarray(values).save(folder / "dog" / "1.png")

    def upper_byte(path):
        return Image.fromarray((numpy.asarray(Image.open(path)) >> 8).astype("uint8"))

    check_folder(read, folder, 20, 20, upper_byte)


def test_palette_with_transparency(read, folder):
    image = Image.fromarray(picture(30, 30, 1)[..., :3], "RGB").quantize(16)
    image.save(folder / "cat" / "1.png", transparency=3, bits=4)
    image.save(folder / "dog" / "1.png")
    check_folder(read, folder, 30, 30)


@pytest.mark.parametrize("ending", ["jpg", "png"])
def test_damaged_image_ends_the_epoch_with_its_name(read, folder, ending):
    for name in ("cat", "dog"):
        Image.fromarray(picture(50, 50, 1)[..., :3], "RGB").save(
            folder / name / f"1.{ending}"
        )
    path = folder / "dog" / f"1.{ending}"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(AssertionError, match=f"dog/1.{ending} is a damaged"):
        read(format="folder", dir=str(folder), height=8, width=8)
