"""deepspeed: the JSON of the engine, for a training script of the user's own.

Source of every key and of the rules between them: deepspeedai/DeepSpeed, commit `engine.COMMIT`,
`deepspeed/runtime/config.py`, `runtime/zero/config.py`, `runtime/zero/offload_config.py`,
`runtime/tensor_parallel/config.py` and `runtime/engine.py`.
"""

import json
from collections.abc import Iterator, Mapping
from types import MappingProxyType

import numpy as np

from trainplan.costmodel.base import UnsupportedError
from trainplan.costmodel.columns import BoolColumn
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import LayoutTable, rule
from trainplan.costmodel.runtimes import RuntimeTraits
from trainplan.planner.launch import ConfigFile, LaunchConfig, option, summary
from trainplan.planner.runtimes.deepspeed import keys as engine
from trainplan.planner.runtimes.deepspeed.offload import (
    SWITCH,
    checkpoint_file,
    checkpoint_keys,
    drive_keys,
    drive_variables,
    filled_in,
    offload_keys,
    offload_notes,
    recompute_switch,
)
from trainplan.planner.runtimes.deepspeed.tiles import (
    SWITCHES,
    tile_file,
    tile_notes,
    tile_switches,
    tiles_weigh_no_losses,
)
from trainplan.planner.runtimes.exporter import Exporter, with_traits
from trainplan.planner.runtimes.keys import Written, flat, nested
from trainplan.planner.runtimes.training_script.trained import trained_file, trained_notes
from trainplan.planner.runtimes.training_script.write import (
    CHECKPOINTING,
    ENTRY,
    IN_SCRIPT,
    LENGTH,
    MODEL,
    SCRIPT,
    WRITES,
    accumulated,
    data_arguments,
    notes,
    refuse,
)

CHECKED = "47 plans were taken by this commit's own DeepSpeedConfig (torch 2.14, no GPU)"
FILE = "ds_config.json"
WRITTEN: dict[str, tuple[object, ...]] = {
    "attention": ("flash",),
    "compile": (False,),
    "cuda_graph": ("none",),
    "overlap_grad_reduce": (True, False),
    "overlap_param_gather": (False,),
    "overlap_tp_comm": (True, False),
    "gradient_dtype": ("fp32", "bf16"),
    "moment_dtype": ("fp32",),
    "weight_bits": (8,),
    "gradient_bits": (4,),
    "cp_comm_type": ("a2a",),
}
"""Options and their values that the JSON says, or that it has where it says nothing."""
OPTIMIZER_VALUES: Mapping[str, Mapping[str, object]] = MappingProxyType(
    {
        "adamw": {"lr": 3e-4, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1},
        "lion": {"lr": 1e-4, "betas": [0.9, 0.99], "weight_decay": 0.1},
        "sgd": {"lr": 1e-1, "momentum": 0.9, "weight_decay": 1e-4},
        "muon": {"lr": 3e-4, "muon_lr": 2e-2, "momentum": 0.95, "weight_decay": 0.1},
    }
)
"""Common values. Source of the keys: `runtime/engine.py`, _configure_basic_optimizer, and the
constructors that it calls."""


@with_traits
def export_deepspeed(job: Job, traits: RuntimeTraits, layout: Layout) -> LaunchConfig:
    """The JSON of one layout.

    Raises:
        UnsupportedError: The layout or an option has no key.
    """
    refuse(job, layout, {**WRITTEN, "bucket_mb": (job.options.bucket_mb,)}, traits)
    module = trained_file(job, layout, traits)
    refuse_types(job)
    config = nested(engine_keys(job, layout, traits))
    file = ConfigFile(FILE, json.dumps(config, indent=2) + "\n", filled_in(layout))
    return LaunchConfig(
        runtime=engine.RUNTIME,
        runtime_version=engine.COMMIT,
        checked=CHECKED,
        summary=summary(job, layout),
        environment=(),
        required_environment=(SCRIPT, *drive_variables(layout)),
        entry_point=ENTRY,
        arguments=(
            option("layout", "--deepspeed_config", file),
            *recompute_switch(layout, CHECKPOINTING),
            *tile_switches(layout),
            *data_arguments(job),
        ),
        notes=(
            *notes(job, layout),
            *_notes(layout),
            *offload_notes(layout),
            *tile_notes(layout),
            *trained_notes(job, layout, traits),
        ),
        files=(file, *filter(None, [module]), *checkpoint_file(layout), *tile_file(job, layout)),
        read_back=module is None,
        keys=tuple(flat(config)),
    )


def engine_keys(job: Job, layout: Layout, traits: RuntimeTraits) -> Written:
    """All keys of the file, in its order."""
    return {
        **_batch(job, layout),
        engine.CLIPPING: 1.0,
        **_optimizer(job, traits),
        **_precision(job),
        **_zero(job, layout, traits.bucket_elements(job)),
        **_ranks(job, layout),
        **drive_keys(layout),
        **checkpoint_keys(layout),
    }


def _optimizer(job: Job, traits: RuntimeTraits) -> Written:
    """Type and values; those of torch.optim shard as others only where the file says so.

    Source: runtime/engine.py, _do_optimizer_sanity_check, zero_allow_untested_optimizer.
    """
    name = job.training.optimizer.name
    word = dict(traits.optimizers)[name]
    untested = True if name == "sgd" else None
    values = dict(OPTIMIZER_VALUES[name])
    return {
        engine.OPTIMIZER: word,
        engine.OPTIMIZER_PARAMS: values,
        engine.UNTESTED_OPTIMIZER: untested,
    }


@rule(
    "zero_stage",
    "zero_stage 0 reduces gradients after the backward pass and keeps them as it computes: set the "
    "option overlap_grad_reduce=false and leave gradient_dtype out, or use zero_stage 1",
    "deepspeedai/DeepSpeed runtime/engine.py, _do_optimizer_sanity_check and allreduce_gradients",
)
def whole_gradients_are_plain(job: Job, table: LayoutTable) -> BoolColumn:
    """Settings of gradients that ZeRO-0 does not take."""
    options, stored = job.options, _stored(job)
    other = options.gradient_dtype not in (None, stored)
    return np.asarray((table.zero_stage == 0) & (options.overlap_grad_reduce is not False or other))


def _stored(job: Job) -> str:
    return {"tf32": "fp32"}.get(job.training.precision, job.training.precision)


def refuse_types(job: Job) -> None:
    """Check types of gradients.

    Source: runtime/engine.py, _do_optimizer_sanity_check and allreduce_gradients.

    Raises:
        UnsupportedError: The engine does not take them together.
    """
    options, stored = job.options, _stored(job)
    if options.gradient_dtype == "bf16" and stored != "bf16":
        raise UnsupportedError(
            f"{job.runtime}: gradients in bf16 with {stored} are not taken: leave gradient_dtype "
            "out"
        )


def _batch(job: Job, layout: Layout) -> Written:
    """The triad, which the runtime checks against all ranks but those of sequence parallelism.

    Source: runtime/config.py, _batch_assertion and world_size: AutoTP is set up later, so its ranks
    count as replicas there, and the product is left out.
    """
    return {
        engine.BATCH: job.training.global_batch_size if layout.tp == 1 else None,
        engine.MICRO: layout.micro_batch_size,
        engine.STEPS: accumulated(job, layout),
    }


def _precision(job: Job) -> Written:
    """Of weights, and of gradients as they are kept and travel, where the job states them."""
    enabled = engine.ENABLED.get(job.training.precision)
    kept = job.options.gradient_dtype
    narrow = True if job.training.state_precision == "bf16" else None
    return {
        **({enabled: True} if enabled else {}),
        engine.MASTERS: narrow,
        engine.MOMENTS: narrow,
        engine.GRADIENTS: kept,
        engine.MESSAGES: kept,
    }


def _zero(job: Job, layout: Layout, bucket: int) -> Written:
    """What is sharded, and what leaves the GPU."""
    overlap = job.options.overlap_grad_reduce is not False if layout.zero_stage else None
    return {
        engine.STAGE: layout.zero_stage,
        engine.OVERLAP: overlap,
        engine.MICS: layout.dp_shard * layout.cp if layout.dp_replicate > 1 else None,
        engine.HPZ: layout.hpz if layout.hpz > 1 else None,
        **{key: getattr(job.options, name) and True for name, key in engine.QUANTISED.items()},
        engine.BUCKET: bucket or None,
        engine.GATHER_BUCKET: bucket or None,
        **offload_keys(job, layout),
    }


def _ranks(job: Job, layout: Layout) -> Written:
    """Tensor and sequence ranks; these have gradients travel in fp32 where nothing is written.

    Source: runtime/engine.py, communication_data_type; runtime/constants.py.
    """
    cut, stored = (
        layout.cp > 1,
        {"tf32": "fp32"}.get(job.training.precision, job.training.precision),
    )
    return {
        engine.TP: layout.tp if layout.tp > 1 else None,
        engine.TP_OVERLAP: True if layout.tp > 1 and job.options.overlap_tp_comm else None,
        engine.SP: layout.cp if cut else None,
        engine.SEQUENCE_MESSAGES: (job.options.gradient_dtype or stored) if cut else None,
    }


def _notes(layout: Layout) -> Iterator[str]:
    yield "optimizer, learning rate and clipping are common values: change them freely"
    yield (
        "the Trainer of transformers calls the option --deepspeed, and its own arguments must "
        "agree with this file"
    )
    if not layout.offload.checkpoints:
        yield (
            "the section activation_checkpointing is left out: models of transformers do not read "
            "it"
        )
    if layout.dp_replicate > 1:
        yield (
            "mics_shard_size stops at models made under deepspeed.zero.Init, as from_pretrained "
            "makes them under the Trainer: make yours without it, or under deepspeed.zero.MiCS_Init"
        )
    if layout.cp > 1:
        yield (
            "train.py must call UlyssesSPAttentionHF.register_with_transformers with "
            f"{layout.cp} ranks and hand its mpu to deepspeed.initialize"
        )
    if layout.tp > 1:
        yield "train_batch_size is left out: the engine would count the ranks of AutoTP in it"


OFFLOADS = ("offload.optimizer", "offload.tier", "offload.parameters", "offload.checkpoints")
DEEPSPEED = Exporter(
    runtime=engine.RUNTIME,
    export=export_deepspeed,
    packs=IN_SCRIPT,
    writes=WRITES | {"cp", "dp_replicate", "hpz", "tiled_loss", "tiled_mlp", *OFFLOADS},
    optimizers=frozenset(OPTIMIZER_VALUES),
    states=frozenset({"o0", "bf16"}),
    trains=frozenset({"lora", "qlora", "frozen"}),
    refuses=(tiles_weigh_no_losses, whole_gradients_are_plain),
    source_patterns=(
        "deepspeed/runtime/zero/config.py",
        "deepspeed/runtime/zero/offload_config.py",
        "deepspeed/runtime/tensor_parallel/config.py",
        "deepspeed/runtime/precision_config.py",
        "deepspeed/runtime/constants.py",
        "deepspeed/runtime/swap_tensor/constants.py",
        "deepspeed/runtime/activation_checkpointing/config.py",
        "deepspeed/runtime/config.py",
        "deepspeed/__init__.py",
    ),
    recorded_flags=engine.RECORDED,
    of_others=frozenset(
        {
            CHECKPOINTING,
            MODEL,
            LENGTH,
            SWITCH,
            *SWITCHES.values(),
            *(
                f"--{engine.OPTIMIZER_PARAMS}.{name}"
                for one in OPTIMIZER_VALUES.values()
                for name in one
            ),
        }
    ),
    by_words=True,
)
