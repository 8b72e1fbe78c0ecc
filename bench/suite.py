"""The benchmarks: what is compared with what, how often, and the goals."""

import dataclasses
import pathlib

from training_run import AmpkitRun, PythonRun
from workers import Launcher, Worker

HERE = pathlib.Path(__file__).resolve().parent

# Every processor then measures what one without 16-bit units does.
NO_16BIT_UNITS = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}


@dataclasses.dataclass(frozen=True)
class Tools:
    """Where the programs are."""

    build: pathlib.Path
    python: str


@dataclasses.dataclass(frozen=True)
class Ours:
    """A worker of the C++ program ampkit_bench."""

    arguments: tuple
    language: str = "C++"

    def start(self, tools, folder, environment):
        program = tools.build / "bench" / "ampkit_bench"
        return Worker([program, *self.arguments], environment)


@dataclasses.dataclass(frozen=True)
class Peer:
    """A worker of peer/."""

    arguments: tuple
    language: str = "Python"

    def start(self, tools, folder, environment):
        script, *rest = self.arguments
        return Worker([tools.python, HERE / "peer" / script, *rest], environment)


@dataclasses.dataclass(frozen=True)
class OursLaunched:
    """A C++ program that is started for each repetition."""

    program: str
    language: str = "C++"

    def start(self, tools, folder, environment):
        return Launcher([tools.build / "bench" / self.program], environment)


@dataclasses.dataclass(frozen=True)
class PeerLaunched:
    """A script of peer/ that is started for each repetition."""

    script: str
    language: str = "Python"

    def start(self, tools, folder, environment):
        return Launcher([tools.python, HERE / "peer" / self.script], environment)


@dataclasses.dataclass(frozen=True)
class Trained:
    """A whole training run: a class of training_run.py."""

    kind: type
    language: str

    def start(self, tools, folder, environment):
        return self.kind(tools, folder, environment)


@dataclasses.dataclass(frozen=True)
class Benchmark:
    """One comparison. A ratio is ours : peer in `unit`."""

    name: str
    work: str
    ours: object
    peer: object
    goal: float
    threads: int
    reps: int
    # How far apart, relatively, the two sides' checked numbers may be.
    bound: float
    # "us", "ms", "s", "img/s": how a unit of work's time is shown. "MB": the
    # workers measure megabytes instead.
    unit: str = "ms"
    # The goal is a least ratio (of speeds) instead of a largest one (of times).
    at_least: bool = False
    # Untimed repetitions after the check.
    warmup: int = 1
    environment: dict = dataclasses.field(default_factory=dict)
    # Runs when no name is given.
    default: bool = True

    def show(self, seconds):
        """A time in the benchmark's unit."""
        if self.unit == "img/s":
            return 1 / seconds
        return seconds * {"us": 1e6, "ms": 1e3, "s": 1, "MB": 1}[self.unit]


OPTIMIZERS = ("adafactor", "adagrad", "adam", "adamw", "lamb", "lion", "rmsprop", "sgd")


def optimizer(name):
    """A step alone, to the fastest variant that torch.optim has."""
    return Benchmark(
        name=f"optimizer_{name}",
        work=f"a step of {name} on 25 M FP32 parameters in 10 matrices; to Python's "
        "fastest of fused, foreach and neither",
        ours=Ours(("optimizer_step", name)),
        peer=Peer(("optimizer_step.py", name)),
        goal=0.8,
        threads=2,
        reps=10,
        bound=1e-4,
    )


SUITE = [
    Benchmark(
        name="overhead_bound_step",
        work="8 x (Linear 64, LayerNorm, GELU) + Linear 10, batch 32: bf16 autocast, "
        "GradScaler, clip 1.0, AdamW; to Python with fused AdamW",
        ours=Ours(("overhead_bound_step",)),
        peer=Peer(("overhead_bound_step.py",)),
        goal=0.35,
        threads=1,
        reps=15,
        # bf16 rounds to 2^-9; the nets are ten products deep.
        bound=0.01,
    ),
    Benchmark(
        name="bf16_block_vs_fp32",
        work="GPT of 3.7 M parameters, batch 8 x 128, clip 1.0, AdamW, on a processor "
        "without 16-bit units: bf16 to FP32, both ours",
        ours=Ours(("gpt_step", "bf16-mixed")),
        peer=Ours(("gpt_step", "fp32")),
        goal=1.10,
        threads=2,
        reps=10,
        bound=0.01,
        environment=NO_16BIT_UNITS,
    ),
    Benchmark(
        name="bf16_block_vs_python",
        work="the same step in bf16, on a processor without 16-bit units; to Python's "
        "bf16 autocast with fused AdamW",
        ours=Ours(("gpt_step", "bf16-mixed")),
        peer=Peer(("gpt_step.py",)),
        goal=0.05,
        threads=2,
        reps=2,
        bound=0.01,
        # A step of the peer takes ten seconds, and the check has warmed it up.
        warmup=0,
        environment=NO_16BIT_UNITS,
    ),
    Benchmark(
        name="optimizer_25m",
        work="unscale, finite check, clip 1.0 and AdamW on 25 M FP32 parameters in 10 "
        "tensors; to Python's GradScaler, clip_grad_norm_ and fused AdamW",
        ours=Ours(("optimizer_25m", "ampkit")),
        peer=Peer(("optimizer_25m.py",)),
        goal=0.55,
        threads=2,
        reps=15,
        bound=1e-4,
    ),
    Benchmark(
        name="optimizer_25m_libtorch",
        work="the same; to LibTorch's own clip_grad_norm_ and AdamW, which need not "
        "unscale",
        ours=Ours(("optimizer_25m", "ampkit")),
        peer=Ours(("optimizer_25m", "libtorch")),
        goal=0.15,
        threads=2,
        reps=10,
        bound=1e-4,
    ),
    *(optimizer(name) for name in OPTIMIZERS),
    Benchmark(
        name="optimizer_muon",
        work="a step of Muon on 8 FP32 matrices of 256 x 256; to torch.optim.Muon",
        ours=Ours(("optimizer_step", "muon")),
        peer=Peer(("optimizer_step.py", "muon")),
        goal=0.8,
        threads=2,
        reps=3,
        # The iterations are in bf16.
        bound=0.02,
        environment=NO_16BIT_UNITS,
    ),
    Benchmark(
        name="master_step",
        work="unscale, finite check, clip 1.0, AdamW on FP32 masters and cast of 25 M "
        "FP16 parameters; to Python's fused AdamW on FP32 copies",
        ours=Ours(("master_step",)),
        peer=Peer(("master_step.py",)),
        goal=0.5,
        threads=2,
        reps=15,
        bound=1e-4,
    ),
    Benchmark(
        name="startup",
        work="process start to the end of the first training step of a small MLP in "
        "bf16 with GradScaler and AdamW; to Python",
        ours=OursLaunched("ampkit_bench_startup"),
        peer=PeerLaunched("startup.py"),
        goal=0.15,
        threads=1,
        reps=5,
        bound=0.01,
        # The check has brought the files into memory.
        warmup=0,
    ),
    Benchmark(
        name="loader",
        work="Fashion-MNIST, batches of 128 with crop, flip and normalisation; to "
        "torch DataLoader with 0 or 2 workers, the better",
        ours=Ours(("loader",)),
        peer=Peer(("loader.py",)),
        goal=5.0,
        unit="img/s",
        at_least=True,
        threads=2,
        reps=3,
        # Crops and flips are drawn by different generators.
        bound=0.01,
    ),
    Benchmark(
        name="small_resnet_fp32",
        work="zoo's resnet_small on 64 images of 28 x 28 in FP32, SGD with momentum; to "
        "the same in Python, eager, fused SGD",
        ours=Ours(("small_resnet_fp32",)),
        peer=Peer(("small_resnet_fp32.py",)),
        goal=1.0,
        threads=2,
        reps=15,
        bound=1e-3,
    ),
    Benchmark(
        name="autocast_call",
        work="an autocast region around one product of 16-bit 8 x 8 matrices, less the "
        "product; to Python",
        ours=Ours(("autocast_call",)),
        peer=Peer(("autocast_call.py",)),
        goal=0.25,
        unit="us",
        threads=1,
        reps=15,
        bound=0.01,
    ),
    Benchmark(
        name="policy_engine",
        work="a step of a GPT of 0.1 M parameters in bf16, dtypes decided by an OpPolicy "
        "and a ModulePolicy; to LibTorch's own autocast in C++",
        ours=Ours(("policy_step", "engine")),
        peer=Ours(("policy_step", "stock")),
        goal=1.05,
        threads=1,
        reps=15,
        bound=0.01,
    ),
    Benchmark(
        name="controller",
        work="50 steps of a GPT of 3.7 M parameters in bf16, watched by a "
        "PrecisionController as it is by default; to the same without it",
        ours=Ours(("gpt_step", "bf16-mixed", "50", "controlled")),
        peer=Ours(("gpt_step", "bf16-mixed", "50")),
        goal=1.02,
        threads=2,
        reps=5,
        bound=1e-6,
    ),
    Benchmark(
        name="watch_full",
        work="a step of that GPT in bf16, every op seen by a diagnose::Watch; to the "
        "same between two watched steps",
        ours=Ours(("watched_step", "1", "2")),
        # Without any Watch a step takes longer: what the first watched one
        # allocates leaves the heap in a better state.
        peer=Ours(("watched_step", "1000000", "2")),
        goal=2.0,
        threads=2,
        reps=10,
        bound=1e-6,
    ),
    Benchmark(
        name="watch_sampling",
        work="20 such steps, one of them seen by the Watch; to 20 between two watched "
        "steps",
        ours=Ours(("watched_step", "20", "20")),
        peer=Ours(("watched_step", "1000000", "20")),
        goal=1.05,
        threads=2,
        reps=5,
        bound=1e-6,
    ),
    Benchmark(
        name="activation_bytes",
        work="most bytes that a step of a GPT of 12 layers holds at any time, batch 32 x "
        "128, the loss in 8 chunks, beyond weights, gradients and batch: bf16-mixed to "
        "FP32, both ours",
        ours=Ours(("activation_bytes", "bf16-mixed", "8")),
        peer=Ours(("activation_bytes", "fp32", "8")),
        goal=0.60,
        unit="MB",
        threads=2,
        reps=2,
        bound=0.01,
    ),
    Benchmark(
        name="recompute_bytes",
        work="the same bytes: bf16-mixed with each block recomputed in backward to FP32 "
        "without, both ours",
        ours=Ours(("activation_bytes", "bf16-mixed", "recompute")),
        peer=Ours(("activation_bytes", "fp32")),
        goal=0.25,
        unit="MB",
        threads=2,
        reps=2,
        bound=0.01,
    ),
    Benchmark(
        name="recompute_extra_time",
        work="what recomputing each block adds to a training step of a GPT of 3.7 M "
        "parameters in FP32, batch 8 x 128; to torch.utils.checkpoint",
        ours=Ours(("recompute_extra_time",)),
        peer=Peer(("recompute_extra_time.py",)),
        goal=0.9,
        threads=2,
        reps=10,
        bound=1e-4,
    ),
    Benchmark(
        name="fashion_mnist_run",
        work="configs/fashion-resnet.toml from process start to end, to 90 % or more; to "
        "the same in Python, in fp16 or FP32, the faster",
        ours=Trained(AmpkitRun, "C++"),
        peer=Trained(PythonRun, "Python"),
        goal=0.9,
        unit="s",
        threads=2,
        reps=1,
        bound=0,
        warmup=0,
        default=False,
    ),
]

BY_NAME = {benchmark.name: benchmark for benchmark in SUITE}
