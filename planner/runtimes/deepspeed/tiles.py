"""Tiles of a model of transformers under DeepSpeed's engine: a module for the training script.

Source of what it calls: deepspeedai/DeepSpeed at the commit of `planner.runtimes.deepspeed`,
`deepspeed/runtime/sequence_parallel/ulysses_sp.py`, TiledMLP and TiledFusedLogitsLoss; how many
tiles there are: snowflakedb/ArcticTraining `model/tiled_compute.py` and `trainer/sft_trainer.py`.
"""

from collections.abc import Iterator

import numpy as np

from trainplan.costmodel.columns import BoolColumn
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import LayoutTable, rule
from trainplan.costmodel.runtimes import RUNTIMES
from trainplan.planner.launch import Argument, ConfigFile, switch
from trainplan.planner.runtimes.training_script.write import accumulated

FILE = "tiled.py"
SWITCHES = {"tiled_mlp": "--tiled_mlp", "tiled_loss": "--tiled_loss"}
HEAD = '''"""Parts of the model on one tile of tokens at a time. Written by `plan export`."""

import math

from deepspeed.runtime.sequence_parallel.ulysses_sp import TiledFusedLogitsLoss, TiledMLP
from torch.nn import functional
from transformers.modeling_outputs import CausalLMOutput

ACCUMULATED = {steps}  # gradient_accumulation_steps
TILE_BYTES = {tile}  # logits of a tile in fp32
'''
MODULE = '''

def tiled_mlps(model):
    """Every rank has as many tokens, hence as many tiles: they share the weights."""

    def of_tile(mlp, x):
        return mlp.down_proj(mlp.act_fn(mlp.gate_proj(x)) * mlp.up_proj(x))

    def tiled(mlp):
        weights = [mlp.gate_proj.weight, mlp.up_proj.weight, mlp.down_proj.weight]

        def forward(x):
            tiles = math.ceil(x.shape[-2] / x.shape[-1])
            return TiledMLP.apply(of_tile, mlp, x, tiles, weights)

        return forward

    for part in model.modules():
        if all(hasattr(part, name) for name in ("gate_proj", "up_proj", "down_proj")):
            part.forward = tiled(part)
    return model


def tiled_loss(model):
    """The gradient of the head is made with the loss, so what divides it is inside: the tokens
    that count, and the micro batches by which the engine divides the rest behind it."""

    def forward(input_ids=None, labels=None, shift_labels=None, **others):
        hidden = model.get_decoder()(input_ids=input_ids, **others).last_hidden_state
        if shift_labels is None:
            shift_labels = functional.pad(labels, (0, 1), value=-100)[:, 1:]
        whole = ACCUMULATED * (shift_labels != -100).sum().clamp(min=1)

        def of_tile(head, x, y):
            logits = head(x).float()
            return functional.cross_entropy(logits, y, ignore_index=-100, reduction="sum") / whole

        head = model.get_output_embeddings()
        tiles = math.ceil(4 * shift_labels.numel() * model.config.vocab_size / TILE_BYTES)
        arguments = (of_tile, head, hidden, shift_labels, None, tiles, [head.weight], "sum")
        return CausalLMOutput(loss=ACCUMULATED * TiledFusedLogitsLoss.apply(*arguments))

    model.forward = forward
    return model
'''


@rule(
    "tiled_loss",
    "deepspeed: tiled_loss is not written for scaled losses, nor with loss_tokens: use bf16 and "
    "every token, or leave it out",
    "deepspeedai/DeepSpeed runtime/sequence_parallel/ulysses_sp.py, TiledFusedLogitsLoss",
)
def tiles_weigh_no_losses(job: Job, table: LayoutTable) -> BoolColumn:
    """Losses of fp16 are scaled, which the tiles of the loss would not see."""
    weighed = job.training.precision == "fp16" or job.training.loss_tokens < 1
    return np.asarray((table.tiled_loss == 1) & weighed)


def tile_file(job: Job, layout: Layout) -> tuple[ConfigFile, ...]:
    """The module, if anything is tiled."""
    if not layout.tiled_mlp and not layout.tiled_loss:
        return ()
    head = HEAD.format(
        steps=accumulated(job, layout), tile=RUNTIMES["deepspeed"].tiling.loss_tile_bytes
    )
    return (ConfigFile(FILE, head + MODULE),)


def tile_switches(layout: Layout) -> Iterator[Argument]:
    """Switches of the script by which it tiles."""
    yield from (switch("layout", flag) for name, flag in SWITCHES.items() if getattr(layout, name))


def tile_notes(layout: Layout) -> Iterator[str]:
    """What the script has to do with the module."""
    for name, flag in SWITCHES.items():
        if getattr(layout, name):
            called = "tiled_mlps" if name == "tiled_mlp" else name
            yield f"{flag} has to reach {FILE}: train.py trains {called}(model)"
