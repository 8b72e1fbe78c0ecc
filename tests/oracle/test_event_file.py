"""TensorBoard reads ampkit's event files."""

import json
import math

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


@pytest.fixture
def write(driver, tmp_path):
    """Writes one event file into `tmp_path`/run; returns that folder."""

    def write(scalars=(), texts=(), purge_step=None):
        events = tmp_path / "events.json"
        events.write_text(
            json.dumps(
                {
                    "scalars": list(scalars),
                    "texts": list(texts),
                    "purge_step": purge_step,
                }
            )
        )
        driver("event_file", tmp_path / "run", events)
        return tmp_path / "run"

    return write


def read(folder):
    accumulator = EventAccumulator(str(folder))
    accumulator.Reload()
    return accumulator


def test_scalars_come_back_with_step_and_single_precision(write):
    scalars = [["train/loss", 1 / (step + 3), step] for step in range(50)]
    scalars += [["lr", 3e-4, 2**40], ["größe", -0.0, 0]]
    accumulator = read(write(scalars))
    assert set(accumulator.Tags()["scalars"]) == {"train/loss", "lr", "größe"}
    loss = accumulator.Scalars("train/loss")
    assert [event.step for event in loss] == list(range(50))
    assert [event.value for event in loss] == [
        float(np.float32(value)) for _, value, _ in scalars[:50]
    ]
    assert accumulator.Scalars("lr")[0].step == 2**40


def test_non_finite_scalars_are_kept(write):
    events = read(write([["x", "nan", 0], ["x", "inf", 1], ["x", "-inf", 2]]))
    values = [event.value for event in events.Scalars("x")]
    assert math.isnan(values[0])
    assert values[1:] == [math.inf, -math.inf]


def test_texts_are_for_the_text_plugin(write):
    text = "a **note**\nß" * 100  # a length of two bytes
    accumulator = read(write(texts=[["note", text, 3]]))
    event = accumulator.Tensors("note")[0]
    assert event.step == 3
    assert event.tensor_proto.string_val[0].decode() == text
    plugin = accumulator.SummaryMetadata("note").plugin_data.plugin_name
    assert plugin == "text"


def test_purge_step_hides_what_an_earlier_file_says_of_later_steps(write):
    write([["loss", float(step), step] for step in range(10)])
    folder = write([["loss", 100.0 + step, step] for step in (6, 7)], purge_step=6)
    loss = read(folder).Scalars("loss")
    assert [event.step for event in loss] == list(range(8))
    assert [event.value for event in loss[6:]] == [106.0, 107.0]


def test_a_torn_last_record_loses_only_itself(write):
    folder = write([["loss", float(step), step] for step in range(10)])
    (path,) = folder.iterdir()
    path.write_bytes(path.read_bytes()[:-3])
    loss = read(folder).Scalars("loss")
    assert [event.step for event in loss] == list(range(9))
