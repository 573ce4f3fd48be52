"""Plain PyTorch: a training module of its own, with FSDP2 and tensor parallelism of DTensor.

Source of what it calls: PyTorch `VERSION`, torch.distributed.fsdp, torch.distributed.tensor.
"""

from collections.abc import Iterator, Mapping
from importlib import resources

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.axes import RULES
from trainplan.costmodel.base import UnsupportedError
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.runtimes import RUNTIMES, executed
from trainplan.planner.launch import (
    PLACEHOLDER_STEPS,
    ConfigFile,
    LaunchConfig,
    ModuleEntry,
    one_line,
    option,
    steps_of,
    summary,
)
from trainplan.planner.runtimes.exporter import Exporter, refuse_broken
from trainplan.planner.runtimes.training_script.write import WRITES

VERSION = "2.13"
"""PyTorch release the module is written for."""
TRAITS = RUNTIMES["fsdp2"]
MODULE = "train_fsdp2"
MARK = "# SETTINGS\n"
"""Line of the module's text where the settings go."""
CHECKED = (
    "Checked: on processes of a CPU (gloo) its losses are those of its decoder in one process.",
    "No GPU was used.",
)
TYPES: Mapping[str, str] = {"bf16": "torch.bfloat16", "fp32": "None"}
"""What weights are gathered and multiplied in; None: as they are stored."""
SIZES = (
    *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers"),
    *("num_attention_heads", "num_key_value_heads", "head_dim", "norm_eps", "rope_theta"),
    "tie_word_embeddings",
)
"""Fields of a model that stand in the module, in capitals."""
OPTIONS: Mapping[str, tuple[object, ...]] = {
    "attention": ("flash",),
    "dropout": (False,),
    "compile": (True, False),
    "cuda_graph": ("none",),
    "overlap_grad_reduce": (True,),
    "overlap_param_gather": (True,),
    "overlap_tp_comm": (False,),
    "overlap_moe_a2a": (False,),
    "gradient_dtype": ("fp32",),
    "moment_dtype": ("fp32",),
    "fused_optimizer": (True,),
    "offload_activation_layers": (0,),
}
"""What the module does, of each option that a job may state."""


def export_fsdp2(job: Job, layout: Layout) -> LaunchConfig:
    """The module with the sizes of the job and the degrees of the layout.

    Raises:
        UnsupportedError: The model or the layout has something the module does not do.
    """
    _refuse(job, layout)
    settings = {**_model(job.model), **_training(job, layout), **_layout(job, layout)}
    stated = summary(job, layout)
    head = (f"Written by `plan export` for PyTorch {VERSION}: FSDP2 and DTensor.", *CHECKED)
    return LaunchConfig(
        runtime="fsdp2",
        runtime_version=f"PyTorch {VERSION}",
        summary=stated,
        environment=(),
        required_environment=(),
        entry_point=ModuleEntry(MODULE),
        arguments=(option("data", "--steps", steps_of(job)),),
        notes=tuple(_notes(job)),
        files=(ConfigFile(f"{MODULE}.py", _module((*head, *stated), settings)),),
        keys=tuple(settings.items()),
    )


def _module(head: tuple[str, ...], settings: Mapping[str, str]) -> str:
    text = resources.files(__package__).joinpath(f"{MODULE}.txt").read_text("utf-8")
    comment = "".join(f"# {one_line(line)}\n" for line in head)
    lines = "".join(f"{name} = {value}\n" for name, value in settings.items())
    return f"{comment}{text.replace(MARK, lines)}"


def _model(model: ModelSpec) -> dict[str, str]:
    scaling, scaled = model.rope_scaling, None
    if scaling is not None:
        limits = (scaling.low_freq_factor or 1.0, scaling.high_freq_factor or 4.0)
        length = scaling.original_max_position_embeddings or model.max_position_embeddings
        scaled = (scaling.factor, *limits, length)
    return {name.upper(): repr(getattr(model, name)) for name in SIZES} | {
        "LLAMA3_SCALING": repr(scaled)
    }


def _training(job: Job, layout: Layout) -> dict[str, str]:
    training = job.training
    return {
        "SEQ_LENGTH": repr(training.seq_length),
        "MICRO_BATCH_SIZE": repr(layout.micro_batch_size),
        "MICRO_BATCHES": repr(training.global_batch_size // (layout.dp * layout.micro_batch_size)),
        "PARAM_DTYPE": TYPES[training.precision],
        "DTYPE": "torch.bfloat16" if training.state_precision == "bf16" else "torch.float32",
        "COMPILE": repr(job.options.compile is True),
    }


def _layout(job: Job, layout: Layout) -> dict[str, str]:
    """ZeRO-0 is replicas that each hold a whole copy.

    ZeRO-2 and 3 reduce gradients and free weights after every micro batch, else the last one does.
    """
    stage = layout.zero_stage
    whole = stage == 0
    layers = job.model.num_hidden_layers
    recomputed = {"block": layout.recompute_num_layers, "uniform": layers}
    return {
        "DP_REPLICATE": repr(layout.dp if whole else layout.dp_replicate),
        "DP_SHARD": repr(1 if whole else layout.dp_shard),
        "TP": repr(layout.tp),
        "SEQUENCE_PARALLEL": repr(layout.sequence_parallel),
        "RESHARD_AFTER_FORWARD": repr(stage == 3),
        "EVERY_MICRO_BATCH": repr(stage >= 2),
        "RECOMPUTED_LAYERS": repr(recomputed.get(layout.recompute_method or "", 0)),
    }


def _refuse(job: Job, layout: Layout) -> None:
    if feature := TRAITS.refuses(job.model):
        raise UnsupportedError(
            f"the decoder of fsdp2 does not build {feature}: export {job.model.name!r} to another "
            "runtime"
        )
    refuse_broken((*RULES, *TRAITS.rules, *executed(TRAITS)), job, layout)
    for reason in _settings(job):
        raise UnsupportedError(f"fsdp2: {reason}")


def _settings(job: Job) -> Iterator[str]:
    if job.training.precision not in TYPES:
        yield f"precision {job.training.precision} is not written; plan for {' or '.join(TYPES)}"
    if job.training.seq_length > job.model.max_position_embeddings:
        yield (
            f"seq_length = {job.training.seq_length} is longer than the "
            f"{job.model.max_position_embeddings} positions of {job.model.name!r}"
        )
    for name, value in job.options.settings().items():
        if value not in OPTIONS.get(name, ()):
            yield f"{name}={value} is not written; leave the option out"


def _notes(job: Job) -> Iterator[str]:
    yield (
        "random tokens: --data MODULE:FUNCTION takes yours; learning rate and its like are common "
        "values in the module, and no checkpoints are written"
    )
    if not job.training.tokens:
        yield f"the job has no number of tokens: --steps {PLACEHOLDER_STEPS} is a placeholder"


FSDP2 = Exporter(
    runtime="fsdp2",
    export=export_fsdp2,
    writes=WRITES | {"dp_replicate", "sequence_parallel"},
    states=frozenset({"o0", "bf16"}),
    source_patterns=(),
    recorded_flags="fsdp2/options.json",
)
