"""What exports for a training script of the user's own have in common: rules, and what it is told.

The script builds the model itself, so nothing here says its shape. Its arguments are those of
`run_clm.py` of Hugging Face transformers (`examples/pytorch/language-modeling`, and
`training_args.py`).
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache

from trainplan.costmodel.architecture import ModelSpec, TowerSpec
from trainplan.costmodel.base import UnsupportedError
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.presets import preset, preset_named, repositories
from trainplan.costmodel.runtimes import RuntimeTraits, executed
from trainplan.planner.launch import Argument, EntryPoint, RequiredVariable, UserVariable, option
from trainplan.planner.runtimes.exporter import refuse_broken
from trainplan.planner.runtimes.training_script.names import NAMES

FOLDER = "TRAIN_FOLDER"
SCRIPT = RequiredVariable(FOLDER, "the folder that holds your training script, train.py")
ENTRY = EntryPoint(UserVariable(FOLDER), "train.py")
IN_SCRIPT = (
    "train.py packs, and gives position_ids that start anew with each sequence to a model with "
    "flash attention (DataCollatorWithFlattening of transformers)"
)
"""Source: huggingface/transformers `data/data_collator.py`, DataCollatorWithFlattening."""
WHOLE_LAYERS = ("recompute", "recompute_method", "recompute_num_layers")
WRITES = frozenset(("tp", "dp", "micro_batch_size", "zero_stage", *WHOLE_LAYERS))
"""Axes that each says; dp is what the other degrees leave, the method is uniform with 1 alone."""
PRECISIONS = ("bf16", "fp16", "tf32")
CHECKPOINTING = "--gradient_checkpointing"
MODEL, LENGTH = f"--{NAMES['model'][0]}", f"--{NAMES['sequence'][0]}"
"""Source: `run_clm.py`, ModelArguments and DataTrainingArguments."""


def refuse(
    job: Job, layout: Layout, written: Mapping[str, tuple[object, ...]], traits: RuntimeTraits
) -> None:
    """Check that a runtime runs a layout; `written` holds options with the values it can be told.

    Raises:
        UnsupportedError: It does not run; the message says what to change.
    """
    refuse_broken((*traits.rules, *executed(traits)), job, layout)
    for reason in _reasons(job, layout, written):
        raise UnsupportedError(f"{job.runtime}: {reason}")


def _reasons(job: Job, layout: Layout, written: Mapping[str, tuple[object, ...]]) -> Iterator[str]:
    if job.training.precision not in PRECISIONS:
        names = ", ".join(PRECISIONS)
        yield f"{job.training.precision} is no precision of its configuration: use {names}"
    for name, value in job.options.settings().items():
        if value not in written.get(name, ()):
            yield f"{name}={value} has no key; leave the option out"
    if layout.recompute == "selective":
        yield "it recomputes whole layers or none: use recompute = full or none"
    if job.training.global_batch_size % (layout.dp * layout.micro_batch_size):
        yield (
            f"dp * micro_batch_size = {layout.dp * layout.micro_batch_size} must divide the "
            f"{job.training.global_batch_size} sequences of a step: change one"
        )


def model_called(job: Job) -> str | None:
    """The model as transformers calls it, or as we do; null: neither knows it."""
    return _name_of(job.model.model_copy(update={"trained": None}))


@lru_cache(maxsize=64)
def _name_of(whole: ModelSpec) -> str | None:
    known = preset_named(whole.name)
    if known is None or preset(known) != whole:
        return None
    return next(iter(repositories(known)), known)


def data_arguments(job: Job) -> Iterator[Argument]:
    """What the script builds and reads, which no file of a runtime says."""
    if called := model_called(job):
        yield option("data", MODEL, called)
    yield option("data", LENGTH, job.training.seq_length)


def accumulated(job: Job, layout: Layout) -> int:
    """Micro batches of a replica in a step: `gradient_accumulation_steps`."""
    return job.training.global_batch_size // (layout.dp * layout.micro_batch_size)


def notes(job: Job, layout: Layout) -> Iterator[str]:
    """What the script has to do by itself."""
    yield (
        f"train.py is yours: it builds {job.model.name}, and reads sequences of "
        f"{job.training.seq_length} tokens"
    )
    if job.model.tower:
        yield _tower_note(job.model.tower)
    if job.training.precision == "tf32":
        yield 'train.py calls torch.set_float32_matmul_precision("high"): no file states it'
    if layout.recompute == "full" and not layout.offload.checkpoints:
        yield f"{CHECKPOINTING} has to reach model.gradient_checkpointing_enable()"


def _tower_note(tower: TowerSpec) -> str:
    """What the script does about the tower, which models of transformers bring along."""
    sees = (
        f"the model brings {tower.called}: each sequence has {tower.samples_per_sequence} samples "
        f"of {tower.patches_per_sample} patches"
    )
    frozen = {
        "none": "all of it is trained",
        "encoder": "train.py sets requires_grad to False for all of it but the projectors",
        "all": "train.py sets requires_grad to False for all of it",
    }
    return f"{sees}; {frozen[tower.frozen]}"
