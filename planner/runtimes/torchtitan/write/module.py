"""The whole config as a Python module."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from trainplan.planner.launch import one_line
from trainplan.planner.runtimes.torchtitan.write.code import Call, Code, Expression, written
from trainplan.planner.runtimes.torchtitan.write.model import Written

FUNCTION = "trainplan"
"""Name of the function that returns the config."""
LEARNING_RATE = 0.0003
ASSETS, OUTPUT = "HF_ASSETS_PATH", "OUTPUT_PATH"
COMMON = (
    "import os",
    "from torchtitan.components.checkpointer import CheckpointManager",
    "from torchtitan.components.data import ConcatThenSplitPackingConfig, GrainDataLoader",
    "from torchtitan.components.optimizer import default_adamw, LRSchedulersContainer",
    "from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig",
    "from torchtitan.hf_datasets.text_datasets import DATASETS",
    "from torchtitan.trainer import Trainer",
)
LOSS = "from torchtitan.components.loss import CrossEntropyLoss"
CHUNKS = "from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss"
PREDICTING = "from torchtitan.models.deepseek_v3.mtp import MTPLoss"
CHECKPOINTS = "from torchtitan.distributed.activation_checkpoint import "


@dataclass(frozen=True, slots=True)
class Parts:
    """What the module is made of."""

    head: Sequence[str]
    """Comment in front, one sentence a line."""
    model: Written
    vocab_size: int
    predicts: bool
    """The loss has that of multi-token prediction."""
    loss_chunks: int
    """Chunks it runs in; 1: on all tokens at once."""
    sections: Mapping[str, Mapping[str, Expression]]
    """`training`, `parallelism` and `compile`."""
    recomputed: Call | None
    helpers: Sequence[str]
    steps: int


def module_text(parts: Parts) -> str:
    """The file that `--module` names, with the function that `--config` does."""
    helpers = (*parts.model.helpers, *parts.helpers)
    blocks = [
        "\n".join(f"# {one_line(line)}" for line in parts.head),
        "\n".join(_imports(parts)) + "\n",
        *(f"\n{text}" for text in helpers),
        f"\ndef {FUNCTION}() -> Trainer.Config:\n"
        f'    """The training as planned."""\n'
        f"    return {written(_config(parts), indent=4, taken=7)}\n",
    ]
    return "\n".join(blocks)


def _imports(parts: Parts) -> Iterator[str]:
    loss = PREDICTING if parts.predicts else CHUNKS if parts.loss_chunks > 1 else LOSS
    wanted = {*COMMON, *parts.model.imports, loss}
    if parts.recomputed:
        kind = "SelectiveAC" if parts.recomputed.function.startswith("Selective") else "FullAC"
        wanted.add(CHECKPOINTS + kind)
    texts = (*parts.helpers, written(_config(parts)))
    if any("dataclasses." in text for text in texts):
        wanted.add("import dataclasses")
    if any("Path(" in text for text in texts):
        wanted.add("from pathlib import Path")
    ours = {line for line in wanted if "torchtitan" in line}
    yield from sorted(wanted - ours, key=lambda line: (line.startswith("from"), line))
    yield ""
    yield from sorted(ours)


def _config(parts: Parts) -> Call:
    size: dict[str, Expression] = {"global_vocab_size": parts.vocab_size}
    schedule: dict[str, Expression] = {
        "warmup_steps": min(parts.steps // 10, 2000),
        "decay_type": "cosine",
        "min_lr_factor": 0.1,
    }
    data = Call("ConcatThenSplitPackingConfig", {"dataset": Code('DATASETS["c4"]')})
    loss = Call(f"{'MTPLoss' if parts.predicts else 'CrossEntropyLoss'}.Config", size)
    if parts.loss_chunks > 1:
        chunks: dict[str, Expression] = {"num_chunks": parts.loss_chunks, "loss_fn": loss}
        loss = Call("ChunkedLossWrapper.Config", chunks)
    named: dict[str, Expression] = {
        "model_spec": parts.model.spec,
        "hf_assets_path": Code(f'os.environ["{ASSETS}"]'),
        "dump_folder": Code(f'os.environ["{OUTPUT}"]'),
        "loss": loss,
        "optimizer": Call("default_adamw", {"lr": LEARNING_RATE}),
        "lr_scheduler": Call("LRSchedulersContainer.Config", schedule),
        "training": Call("TrainingConfig", parts.sections["training"]),
        "parallelism": Call("ParallelismConfig", parts.sections["parallelism"]),
        "activation_checkpoint": parts.recomputed,
        "compile": Call("CompileConfig", parts.sections["compile"]),
        "checkpoint": Call("CheckpointManager.Config", {"enable": True, "interval": 500}),
        "dataloader": Call("GrainDataLoader.Config", {"dataset": data}),
    }
    return Call("Trainer.Config", named)
