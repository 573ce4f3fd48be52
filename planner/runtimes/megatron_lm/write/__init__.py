"""Megatron-LM: the arguments of `pretrain_gpt.py`.

Source of every option and of the rules between them: NVIDIA/Megatron-LM, commit `COMMIT`,
`megatron/training/arguments.py` and `megatron/core/transformer/transformer_config.py`.
"""

from collections.abc import Iterator

from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.runtimes import RuntimeTraits, is_hybrid
from trainplan.planner.launch import (
    Argument,
    EntryPoint,
    LaunchConfig,
    RequiredVariable,
    UserVariable,
    summary,
)
from trainplan.planner.runtimes.exporter import Exporter, with_traits
from trainplan.planner.runtimes.megatron_lm.write.attention import attention_arguments
from trainplan.planner.runtimes.megatron_lm.write.environment import environment
from trainplan.planner.runtimes.megatron_lm.write.hybrid import halves_are_counted
from trainplan.planner.runtimes.megatron_lm.write.layout import (
    layout_arguments,
    recompute_arguments,
)
from trainplan.planner.runtimes.megatron_lm.write.model import model_arguments
from trainplan.planner.runtimes.megatron_lm.write.moe import moe_arguments
from trainplan.planner.runtimes.megatron_lm.write.notes import notes
from trainplan.planner.runtimes.megatron_lm.write.optimizer import optimizer_arguments
from trainplan.planner.runtimes.megatron_lm.write.options import (
    few_bits_are_sharded,
    fsdp_saves_no_copies,
    option_arguments,
)
from trainplan.planner.runtimes.megatron_lm.write.training import (
    data_arguments,
    precision_arguments,
    training_arguments,
)

COMMIT = "d98e8a64ddf34856e74b24714e3bedb2f5a39553"
"""Megatron-LM commit whose options are written (Megatron Core 0.20.0)."""
CHECKED = (
    "27 plans were taken by this commit's own parser, validator, configurations, schedule "
    "checks and rank groups (torch 2.14, no GPU)"
)

REQUIRED = (
    RequiredVariable(
        "MEGATRON_PATH", "the folder of a Megatron-LM checkout, the one that holds pretrain_gpt.py"
    ),
    RequiredVariable(
        "TOKENIZER_MODEL", "a Hugging Face tokenizer: a folder, or the name of a model"
    ),
    RequiredVariable(
        "DATA_PATH", "the tokenized data: the common prefix of its .bin and .idx files"
    ),
    RequiredVariable("CHECKPOINT_PATH", "the folder checkpoints are saved to and resumed from"),
)


@with_traits
def export_megatron_lm(job: Job, traits: RuntimeTraits, layout: Layout) -> LaunchConfig:
    """Arguments and environment of `pretrain_gpt.py` (or `pretrain_hybrid.py`) for one layout.

    Raises:
        UnsupportedError: The model or the layout has something no option expresses.
    """
    arguments = (*_written_model(job, traits), *run_arguments(job, layout, traits))
    script = "pretrain_hybrid.py" if is_hybrid(job.model) else "pretrain_gpt.py"
    return LaunchConfig(
        runtime="megatron-lm",
        runtime_version=COMMIT,
        checked=CHECKED,
        summary=summary(job, layout),
        environment=environment(job, layout),
        required_environment=REQUIRED,
        entry_point=EntryPoint(UserVariable("MEGATRON_PATH"), script),
        arguments=arguments,
        notes=notes(job, layout, traits),
    )


def run_arguments(job: Job, layout: Layout, traits: RuntimeTraits) -> Iterator[Argument]:
    """Options of everything but the model.

    Raises:
        UnsupportedError: The layout or the job has something no option expresses.
    """
    yield from layout_arguments(job, layout, traits)
    yield from recompute_arguments(layout)
    yield from optimizer_arguments(job, layout, traits)
    yield from training_arguments(job, layout, traits)
    yield from precision_arguments(job.training, job.options)
    yield from option_arguments(job, layout, traits)
    yield from data_arguments(job.training)


def _written_model(job: Job, traits: RuntimeTraits) -> Iterator[Argument]:
    """Options of the model.

    Raises:
        UnsupportedError: It has something no option expresses.
    """
    yield from model_arguments(job, traits)
    yield from attention_arguments(job.model)
    yield from moe_arguments(job, traits)


written_model = with_traits(_written_model)
"""For readers, who compare a model with what would be written of another."""

MEGATRON_LM = Exporter(
    runtime="megatron-lm",
    export=export_megatron_lm,
    writes=frozenset(
        {
            "tp",
            "cp",
            "cp_heads",
            "pp",
            "dp",  # what the other degrees leave of the ranks
            "ep",
            "etp",
            "gtp",
            "egtp",
            "vpp",
            "micro_batch_size",
            "sequence_parallel",
            "zero_stage",
            "schedule",  # which it takes from the virtual stages
            "recompute",
            "recompute_modules",
            "recompute_method",
            "recompute_num_layers",
            "offload.optimizer",
            "offload_modules",
            "dp_replicate",
            "replicas_share_optimizer",
            "stages",
        }
    ),
    refuses=(halves_are_counted, few_bits_are_sharded, fsdp_saves_no_copies),
    optimizers=frozenset({"adamw", "sgd", "lion", "muon", "dist-muon", "soap"}),
    source_patterns=(
        "megatron/training/arguments.py",
        "megatron/training/config/*.py",
        "megatron/core/model_parallel_config.py",
        "megatron/core/transformer/transformer_config.py",
        "megatron/core/fault_injector.py",
    ),
    recorded_flags="megatron_lm/options.json",
    packs=(
        "--dataloader-inter-document-masking masks between documents; the runtime's dataset cuts "
        "them where a row ends, so whole sequences, or rows equal in work, need a dataset of yours"
    ),
)
