"""The whole config as a Python module."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from trainplan.planner.launch import one_line
from trainplan.planner.runtimes.torchtitan.keys import SECTIONS
from trainplan.planner.runtimes.torchtitan.write.code import (
    Call,
    Code,
    Expression,
    in_line,
    written,
)
from trainplan.planner.runtimes.torchtitan.write.islands import IMPORTS, INSTEAD
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
    """`training`, `parallelism` and `compile`; those of islands, too."""
    recomputed: Call | None
    helpers: Sequence[str]
    steps: int

    @property
    def islands(self) -> bool:
        """Do outer steps join it with others?"""
        return "fault_tolerance" in self.sections


def module_text(parts: Parts) -> str:
    """The file that `--module` names, with the function that `--config` does."""
    helpers = (*parts.model.helpers, *parts.helpers)
    blocks = [
        "\n".join(f"# {one_line(line)}" for line in parts.head),
        "\n".join(_imports(parts)) + "\n",
        *(f"\n{text}" for text in helpers),
        f"\ndef {FUNCTION}() -> {trainer(parts)}:\n"
        f'    """The training as planned."""\n'
        f"    return {written(_config(parts), indent=4, taken=7)}\n",
    ]
    return "\n".join(blocks)


def _imports(parts: Parts) -> Iterator[str]:
    loss = PREDICTING if parts.predicts else CHUNKS if parts.loss_chunks > 1 else LOSS
    wanted = {*COMMON, *parts.model.imports, loss}
    if parts.islands:
        wanted = {INSTEAD.get(line.rpartition(" ")[2], line) for line in wanted} | set(IMPORTS)
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
    names: dict[str, list[str]] = {}
    for line in sorted(ours):
        module, _, imported = line.partition(" import ")
        names.setdefault(module, []).append(imported)
    yield from (f"{module} import {', '.join(several)}" for module, several in names.items())


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
    adamw, saver = Call("default_adamw", {"lr": LEARNING_RATE}), "CheckpointManager.Config"
    if parts.islands:
        groups = {"param_groups": Code(f"{in_line(adamw)}.param_groups")}
        adamw, saver = Call("TorchFTOptimizersContainer.Config", groups), f"TorchFT{saver}"
    named: dict[str, Expression] = {
        "model_spec": parts.model.spec,
        "hf_assets_path": Code(f'os.environ["{ASSETS}"]'),
        "dump_folder": Code(f'os.environ["{OUTPUT}"]'),
        "loss": loss,
        "optimizer": adamw,
        "lr_scheduler": Call("LRSchedulersContainer.Config", schedule),
        "training": Call("TrainingConfig", parts.sections["training"]),
        "parallelism": Call("ParallelismConfig", parts.sections["parallelism"]),
        "activation_checkpoint": parts.recomputed,
        "compile": Call("CompileConfig", parts.sections["compile"]),
        "checkpoint": Call(saver, {"enable": True, "interval": 500}),
        "dataloader": Call("GrainDataLoader.Config", {"dataset": data}),
    }
    for section in ("fault_tolerance", "comm"):
        if values := parts.sections.get(section):
            named[section] = Call(SECTIONS[section], values)
    return Call(trainer(parts), named)


def trainer(parts: Parts) -> str:
    """Class of the config."""
    return "FaultTolerantTrainer.Config" if parts.islands else "Trainer.Config"
