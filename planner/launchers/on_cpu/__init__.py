"""What starts the exported files of a runtime on processes of a CPU, as data.

The files run as they are written: their script, their arguments, their configurations. What the
user has is made up: a training script, tokens, weights that no layout changes. What needs a GPU
has a substitute, which the texts here name; each text is a module next to the script.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import resources
from types import MappingProxyType

from trainplan.costmodel.job import Precision
from trainplan.planner.launch import ConfigFile, LaunchConfig, ModuleEntry, option
from trainplan.planner.runtimes import SHORT_RUNS, trial_launch

STAND_IN = "stand_in"
"""Module that does what a runtime needs a GPU for, or brings weights and tokens."""
WEIGHTS = "weights"


@dataclass(frozen=True, slots=True)
class CpuStart:
    """How launches of a runtime start without a GPU."""

    needs: tuple[str, ...]
    """Modules that have to be installed, and variables, with `$`, that have to be set."""
    precision: Precision
    """The widest that its launches have."""
    texts: Mapping[str, str]
    """Modules next to the script, by name: a text of this folder each."""
    runs: str = ""
    """Module that runs in place of the program, and runs it."""
    sets: tuple[tuple[str, str], ...] = ()
    """Options that are added."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables, `.` for the folder of the script."""
    shortened: bool = True
    """Is the launch cut to a few steps? Else its program does that."""
    never: Mapping[str, str] = field(default_factory=dict)
    """Degrees and ZeRO stages that no CPU has, and why."""
    config: bool = False
    """Does it take the model from a `config.json` of transformers?"""
    stage: int = 0
    """ZeRO stage of one replica."""


TRAIN = {"train": "train", WEIGHTS: WEIGHTS}
MEGATRON = {"on_megatron": "megatron", WEIGHTS: WEIGHTS}
OF_FSDP = "Megatron-FSDP shards on GPUs alone; started as ZeRO-1"
NEEDS_ENGINE = {
    "cp": "context parallelism is in Transformer Engine, which needs a GPU",
    "ZeRO-2": OF_FSDP,
    "ZeRO-3": OF_FSDP,
}
NO_CONTEXT = "torch cuts no attention of a CPU over sequences"
CPU_STARTS: Mapping[str, CpuStart] = MappingProxyType(
    {
        "megatron-lm": CpuStart(
            needs=("torch", "einops", "$MEGATRON_PATH"),
            precision="bf16",
            texts={STAND_IN: "megatron_lm", **MEGATRON},
            runs=STAND_IN,
            never=NEEDS_ENGINE,
        ),
        "megatron-bridge": CpuStart(
            needs=("torch", "einops", "transformers", "megatron.core", "megatron.bridge"),
            precision="bf16",
            texts={STAND_IN: "megatron_bridge", **MEGATRON},
            runs=STAND_IN,
            environment={"HF_MODEL": ".", "HF_HUB_OFFLINE": "1"},
            never=NEEDS_ENGINE,
            config=True,
        ),
        "fsdp2": CpuStart(
            needs=("torch",),
            precision="fp32",
            texts={STAND_IN: "fsdp2", WEIGHTS: WEIGHTS},
            sets=(("--data", f"{STAND_IN}:tokens"),),
        ),
        "torchtitan": CpuStart(
            needs=("torch", "torchtitan"),
            precision="fp32",
            texts={STAND_IN: "torchtitan", WEIGHTS: WEIGHTS},
            runs=STAND_IN,
            environment={"HF_ASSETS_PATH": "."},
        ),
        "deepspeed": CpuStart(
            needs=("torch", "transformers", "deepspeed"),
            precision="tf32",
            texts=TRAIN,
            config=True,
            environment={"TRAIN_FOLDER": ".", "DS_ACCELERATOR": "cpu"},
            shortened=False,
            stage=1,
            never={"cp": "DeepSpeed's Ulysses reshards flash attention of a GPU"},
        ),
        "accelerate": CpuStart(
            needs=("torch", "transformers", "accelerate"),
            precision="tf32",
            texts=TRAIN,
            config=True,
            environment={"TRAIN_FOLDER": "."},
            shortened=False,
            never={
                "cp": NO_CONTEXT,
                "tp": "train.py has to load the model by tp_plan, from a checkpoint",
            },
        ),
        "transformers": CpuStart(
            needs=("torch", "transformers", "accelerate"),
            precision="tf32",
            texts={STAND_IN: "transformers"},
            runs=STAND_IN,
            environment={"MODEL": ".", "DATA": "random", "OUTPUT": "."},
            shortened=False,
            config=True,
            never={"cp": NO_CONTEXT},
        ),
    }
)
"""Runtimes whose launches start here.

Source: torch/distributed/tensor/experimental/_context_parallel (no sharding strategy of
`_scaled_dot_product_flash_attention_for_cpu`); deepspeed/accelerator/cpu_accelerator.py;
accelerate/state.py, `_prepare_backend` (several CPUs never shard); Megatron-LM
megatron/core/transformer/dot_product_attention.py (no context parallelism)."""


def cpu_launch(launch: LaunchConfig, steps: int) -> LaunchConfig:
    """The launch as processes of a CPU run it for a few steps."""
    start = CPU_STARTS[launch.runtime]
    if start.shortened and launch.runtime in SHORT_RUNS:
        launch = trial_launch(launch, steps, ())
    modules = (ConfigFile(f"{name}.py", _text(text)) for name, text in start.texts.items())
    added = (option("data", flag, value) for flag, value in start.sets)
    return replace(
        launch,
        entry_point=ModuleEntry(start.runs) if start.runs else launch.entry_point,
        arguments=(*launch.arguments, *added),
        files=(*launch.files, *modules),
    )


def _text(name: str) -> str:
    return resources.files(__package__).joinpath(f"{name}.txt").read_text("utf-8")
