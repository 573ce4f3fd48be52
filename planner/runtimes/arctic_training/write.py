"""arctic-training: the YAML of Snowflake's trainer, with the section of DeepSpeed's engine.

Source of every key and of the rules between them: snowflakedb/ArcticTraining, commit `COMMIT`,
`arctic_training/config/trainer.py` (which refuses keys it does not know, and writes batches,
precision and sequence ranks into the section by itself) and the other files of that folder,
`data/hf_source.py`, `data/hf_causal_source.py`, `optimizer/adam_factory.py`,
`model/liger_factory.py` and `trainer/sft_trainer.py`. That its own tiled loss leaves a gradient
undivided was seen on deepspeedai/DeepSpeed 0.19.8, `runtime/sequence_parallel/ulysses_sp.py`,
TiledFusedLogitsLoss.backward, called as there: 32 times as large with 32 tokens.
"""

from __future__ import annotations

from collections.abc import Iterator

import yaml

from trainplan.costmodel.base import UnsupportedError
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.runtimes.arctic_training import ARCTIC_TRAINING as TRAITS
from trainplan.costmodel.runtimes.base import RuntimeTraits
from trainplan.planner.runtimes.config import (
    ConfigFile,
    Exporter,
    LaunchConfig,
    ModuleEntry,
    RequiredVariable,
    UserVariable,
    one_line,
    option,
    steps_of,
    summary,
    with_traits,
)
from trainplan.planner.runtimes.deepspeed.write import (
    DEEPSPEED,
    SEQUENCE_MESSAGES,
    WRITTEN,
    gradient_types,
    refuse_types,
    sequence_messages,
    zero_section,
)
from trainplan.planner.runtimes.deepspeed.write_offload import (
    aio_section,
    drive_variables,
    filled_in,
)
from trainplan.planner.runtimes.training_script.write import accumulated, flat, refuse

COMMIT = "b28638e6c577ece34cc147ab3d45d27a7f66b33b"
"""ArcticTraining commit whose keys are written (0.8.1.dev0)."""
CHECKED = "20 plans were taken by this commit's own classes of configuration (no GPU)"
FILE = "arctic_training.yaml"
MODEL, DATA = "MODEL", "DATA_FILES"
REQUIRED = (
    RequiredVariable(MODEL, "the model, as transformers takes it: a name or a folder"),
    RequiredVariable(DATA, "files of JSON lines with the column text; a pattern may name several"),
)
FILLED_IN = (("name_or_path", UserVariable(MODEL)), ("data_files", UserVariable(DATA)))
PROGRAM = ModuleEntry("arctic_training", "arctic_training_run")


@with_traits
def export_arctic_training(job: Job, traits: RuntimeTraits, layout: Layout) -> LaunchConfig:
    """The YAML of one layout.

    Raises:
        UnsupportedError: The layout or an option has no key.
    """
    if feature := TRAITS.refuses(job.model):
        raise UnsupportedError(f"arctic-training does not train {feature}: use another runtime")
    refuse(job, layout, {**WRITTEN, "liger": ("0.6",)}, traits)
    refuse_types(job, layout)
    if job.training.precision == "tf32":
        raise UnsupportedError("arctic-training: tf32 is no dtype of its models: use bf16 or fp16")
    config = _config(job, layout)
    text = "".join(f"# {one_line(line)}\n" for line in _head(job, layout)) + _yaml(config)
    file = ConfigFile(FILE, text, (*FILLED_IN, *filled_in(layout)))
    return LaunchConfig(
        runtime="arctic-training",
        runtime_version=COMMIT,
        checked=CHECKED,
        summary=summary(job, layout),
        environment=(),
        required_environment=(*REQUIRED, *drive_variables(layout)),
        entry_point=PROGRAM,
        arguments=(option("layout", "--config", file),),
        notes=tuple(_notes(job, layout)),
        files=(file,),
        keys=tuple(flat(config)),
    )


def _config(job: Job, layout: Layout) -> dict[str, object]:
    offload = layout.offload
    switches = {
        "activation_checkpoint_cpu_offload": bool(offload.checkpoints),
        "tiled_mlp_compute": layout.tiled_mlp,
    }
    return {
        "type": "causal",
        "micro_batch_size": layout.micro_batch_size,
        "gradient_accumulation_steps": accumulated(job, layout),
        "sequence_parallel_size": layout.cp,
        **{name: True for name, on in switches.items() if on},
        "train_iters": steps_of(job),
        "model": {
            "type": "liger" if job.options.liger else "huggingface",
            "name_or_path": _Quoted(MODEL),
            "dtype": job.training.precision,
            "attn_implementation": "flash_attention_2",
            "disable_activation_checkpoint": layout.recompute != "full",
        },
        "data": {
            "sources": [
                {
                    "type": "huggingface_causal",
                    "name_or_path": "json",
                    "kwargs": {"data_files": _Quoted(DATA)},
                }
            ],
            "max_length": job.training.seq_length,
        },
        "optimizer": {
            "type": "cpu_adam" if offload.optimizer else "fused_adam",
            "learning_rate": 3e-4,
            "betas": [0.9, 0.95],
            "weight_decay": 0.1,
        },
        "deepspeed": _engine(job, layout),
    }


def _engine(job: Job, layout: Layout) -> dict[str, object]:
    """What the trainer does not write into the section by itself."""
    zero = zero_section(job, layout)
    for section in ("offload_optimizer", "offload_param"):
        told = zero.get(section)
        if isinstance(told, dict) and "nvme_path" in told:
            zero[section] = {**told, "nvme_path": _Quoted(told["nvme_path"])}
    messages = {SEQUENCE_MESSAGES: sequence_messages(job)} if layout.cp > 1 else {}
    return {"zero_optimization": zero, **gradient_types(job), **messages, **aio_section(layout)}


class _Quoted(str):
    """Text in double quotes, which the launch script writes over; others have none."""

    __slots__ = ()


class _Dumper(yaml.SafeDumper):
    """Knows text in double quotes."""


def _in_quotes(dumper: yaml.SafeDumper, text: _Quoted) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style='"')


_Dumper.add_representer(_Quoted, _in_quotes)


def _yaml(config: dict[str, object]) -> str:
    return yaml.dump(config, Dumper=_Dumper, sort_keys=False)


def _head(job: Job, layout: Layout) -> Iterator[str]:
    yield f"Written by `plan export` for ArcticTraining {COMMIT}."
    yield f"checked: {CHECKED}"
    yield from summary(job, layout)


def _notes(job: Job, layout: Layout) -> Iterator[str]:
    yield (
        f"{MODEL} and {DATA} are written into the file; the shape of the model is not: it has to "
        f"be {job.model.name}"
    )
    yield "optimizer, learning rate and betas are common values: change them freely"
    yield (
        "the trainer packs documents into rows and starts their positions anew: attention then "
        "costs what --lengths prices, and less than of whole rows"
    )
    if not job.training.tokens:
        yield f"the job has no number of tokens: train_iters {steps_of(job)} is a placeholder"
    if layout.tiled_loss and not job.options.liger:
        yield (
            "the trainer tiles the loss by TiledFusedLogitsLoss, which leaves the gradient of the "
            "output projection undivided by the tokens: --option liger=0.6 does not"
        )


ARCTIC_TRAINING = Exporter(
    runtime="arctic-training",
    export=export_arctic_training,
    packs="the trainer packs by itself, with position_ids that start anew with each document",
    writes=DEEPSPEED.writes - {"tp"},
    source_patterns=(
        "arctic_training/config/trainer.py",
        "arctic_training/config/*.py",
        "arctic_training/entrypoint.py",
        "arctic_training/data/hf*_source.py",
        "arctic_training/data/causal_factory.py",
    ),
    recorded_flags="arctic_training/options.json",
    by_words=True,
)
