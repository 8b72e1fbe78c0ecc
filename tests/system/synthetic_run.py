"""Makes a folder like that of a training run, without training."""

import json
import math
import random

CONFIG = """\
[model]
name = "resnet_small"

[data]
format = "idx"
batch_size = 256

[precision]
preset = "fp16-mixed"
init_scale = 65536.0

[optimizer]
name = "adamw"
lr = 0.004
betas = [0.9, 0.999]

[train]
epochs = 5
accumulate = 1
"""

MACHINE = {
    "ampkit_version": "0.1.0",
    "libtorch_version": "2.13.0",
    "libraries": ["oneDNN 3.11.3", "OpenMP 4.5"],
    "system": "Linux 6.1.0 x86_64",
    "processor": "Example 9000",
    "logical_cores": 2,
    "usable_cores": 2.0,
    "instruction_sets": ["AVX2", "FMA", "F16C"],
    "libtorch_kernels": "AVX2",
    "memory_bytes": 16 * 2**30,
    "threads": 2,
    "dtypes": [
        {
            "name": "fp32",
            "path": "native",
            "reason": "always",
            "matmul_gflops": 110.5,
            "conv_gflops": 88.25,
        },
        {
            "name": "fp16",
            "path": "through FP32",
            "reason": "this processor has no AVX-512 FP16 or AMX-FP16",
            "matmul_gflops": 96.0,
            "conv_gflops": None,
        },
    ],
    "cuda_devices": [],
}


def train_row(step, steps, scale, skipped, skipped_total, noise):
    """One row of metrics.jsonl in the shape of a run that learns."""
    done = step / steps
    norm = 0.6 + 2.5 * math.exp(-8 * done) + abs(noise.gauss(0, 0.25))
    return {
        "kind": "train",
        "step": step,
        "epoch": math.ceil(done * 5),
        "loss": 0.22 + 2.1 * math.exp(-9 * done) + abs(noise.gauss(0, 0.05)),
        "learning_rate": 0.004 * math.sin(math.pi * min(1, 0.05 + done)) ** 2,
        "scale": scale,
        "skipped": skipped,
        "skipped_total": skipped_total,
        "grad_norm": "Infinity" if skipped else norm,
        "nan_rate": skipped_total / step,
        "samples_per_second": noise.gauss(1450, 60),
        "memory_mb": 420 + 90 * (1 - math.exp(-20 * done)),
    }


def metrics(steps=1170, evaluations=5, seed=1):
    """Rows of a whole run: the scale falls at skipped steps, doubles later."""
    noise = random.Random(seed)
    scale, skipped_total, rows = 65536.0, 0, []
    for step in range(1, steps + 1):
        skipped = step in (1, 2, 3) or (step > 200 and noise.random() < 0.006)
        skipped_total += skipped
        rows.append(train_row(step, steps, scale, skipped, skipped_total, noise))
        scale = scale / 2 if skipped else scale * 2 if step % 200 == 0 else scale
        if step % (steps // evaluations) == 0:
            done = step / steps
            rows.append(
                {
                    "kind": "eval",
                    "step": step,
                    "epoch": round(done * 5),
                    "loss": 0.27 + 0.5 * math.exp(-4 * done),
                    "accuracy": 0.925 - 0.16 * math.exp(-4 * done),
                    "samples": 10000,
                    "seconds": 3.5,
                }
            )
    return rows


def write_run(folder, rows=None, config=CONFIG, machine=None, tail=""):
    """Writes the files of a run; `tail` goes behind the last line."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(row) for row in (metrics() if rows is None else rows)]
    (folder / "metrics.jsonl").write_text("\n".join(lines + [tail]))
    if config is not None:
        (folder / "config.toml").write_text(config)
    (folder / "machine.json").write_text(json.dumps(machine or MACHINE))
    return folder


if __name__ == "__main__":
    import pathlib
    import sys

    write_run(pathlib.Path(sys.argv[1]))
