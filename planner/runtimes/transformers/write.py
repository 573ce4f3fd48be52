"""transformers: a script over its Trainer, and the file of the arguments of one layout.

What it does with each key is in `train_transformers.txt`; `keys` says where they stand.
"""

from collections.abc import Iterator
from importlib import resources

import yaml

from trainplan.costmodel.architecture import Trained
from trainplan.costmodel.base import UnsupportedError
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.optimizers import optimizer_of, updates_by_layer
from trainplan.costmodel.runtimes import RUNTIMES, RuntimeTraits
from trainplan.planner.launch import (
    ConfigFile,
    LaunchConfig,
    ModuleEntry,
    RequiredVariable,
    UserVariable,
    one_line,
    option,
    steps_of,
    summary,
)
from trainplan.planner.runtimes.deepspeed.write import OPTIMIZER_VALUES
from trainplan.planner.runtimes.exporter import Exporter, with_traits
from trainplan.planner.runtimes.keys import Written, flat, nested
from trainplan.planner.runtimes.training_script.trained import (
    ALPHA_OVER_RANK,
    OTHER_NAMES,
    module_names,
)
from trainplan.planner.runtimes.training_script.write import (
    WRITES,
    accumulated,
    model_called,
    refuse,
)
from trainplan.planner.runtimes.transformers import keys

TRAITS = RUNTIMES[keys.RUNTIME]
CHECKED = (
    "31 plans were taken by its own TrainingArguments, DistributedConfig and ParallelismConfig; on "
    "two processes of a CPU (gloo) losses of FSDP2, DDP, tensor and expert ranks are those of one"
)
WRITTEN: dict[str, tuple[object, ...]] = {
    "attention": ("flash",),
    "compile": (True, False),
    "cuda_graph": ("none",),
    "overlap_grad_reduce": (True,),
    "overlap_param_gather": (True,),
    "moment_dtype": ("fp32",),
    "moe_dispatcher": ("alltoall",),
    "fused_optimizer": (True, False),
    "cp_comm_type": tuple(keys.STRATEGIES),
    "liger": ("0.6",),
}
FP32 = ("fp32", "tf32")
MODEL = RequiredVariable("MODEL", "the model: a name on Hugging Face, or its folder")
DATA = RequiredVariable(
    "DATA", "token ids in a .npy, a folder that `datasets` saved with input_ids, or random"
)
OUTPUT = RequiredVariable("OUTPUT", "the folder where checkpoints go")
SAVES = 500
"""Steps between checkpoints."""


@with_traits
def export_transformers(job: Job, traits: RuntimeTraits, layout: Layout) -> LaunchConfig:
    """The script, and the file of one layout.

    Raises:
        UnsupportedError: The layout or an option has no key.
    """
    if feature := TRAITS.refuses(job.model):
        raise UnsupportedError(f"{job.runtime} does not train {feature}: use another runtime")
    precision = "tf32" if job.training.precision == "fp32" else job.training.precision
    training = job.training.model_copy(update={"precision": precision})
    written = {**WRITTEN, "bucket_mb": (job.options.bucket_mb,)}
    refuse(job.model_copy(update={"training": training}), layout, written, traits)
    for reason in _reasons(job, layout):
        raise UnsupportedError(f"{job.runtime}: {reason}")
    config = nested(_keys(job, layout, traits))
    required = (*(() if model_called(job) else (MODEL,)), DATA, OUTPUT)
    names = {keys.MODEL.name: MODEL, keys.DATA.name: DATA, keys.OUTPUT.name: OUTPUT}
    filled = tuple((k, UserVariable(one.name)) for k, one in names.items() if one in required)
    file = ConfigFile(keys.FILE, _text(job, layout, config, filled), filled)
    return LaunchConfig(
        runtime=keys.RUNTIME,
        runtime_version=keys.VERSION,
        checked=CHECKED,
        summary=summary(job, layout),
        environment=(),
        required_environment=required,
        entry_point=ModuleEntry(keys.MODULE),
        arguments=(option("layout", keys.CONFIG, file),),
        notes=tuple(_notes(job, layout)),
        files=(ConfigFile(f"{keys.MODULE}.py", _module()), file),
        keys=tuple(flat(config)),
    )


def _module() -> str:
    text = resources.files(__package__).joinpath(f"{keys.MODULE}.txt").read_text("utf-8")
    head = f"Written by `plan export` for transformers {keys.VERSION}: change it freely."
    return f'"""{head}"""\n\n{text}'


def _reasons(job: Job, layout: Layout) -> Iterator[str]:
    trained = job.model.trained
    some = trained is not None and trained.modules != ("all",)
    if (
        some or job.training.optimizer.name in keys.LOW_RANK
    ) and job.model.model_type in OTHER_NAMES:
        yield (
            f"matrices of {job.model.model_type} have names of their own, which are not written: "
            "use a model with q_proj to down_proj, or train every weight with adamw"
        )
    if job.model.trained and _narrow(job) and layout.zero_stage:
        yield "adapters are in fp32 under FSDP: leave state_precision out"
    if job.training.optimizer.name != "adamw" and job.options.fused_optimizer is False:
        yield f"{job.training.optimizer.name} has one form: leave fused_optimizer out"
    if isinstance(job.options.bucket_mb, float):
        yield f"{keys.BUCKET} is a whole number of MiB: round bucket_mb={job.options.bucket_mb}"


def _narrow(job: Job) -> bool:
    """Is every state in bf16?"""
    return job.training.state_precision == "bf16" or optimizer_of(job.training.optimizer).bare


def _keys(job: Job, layout: Layout, traits: RuntimeTraits) -> Written:
    training, options = job.training, job.options
    wide = training.precision in FP32
    kept = "bfloat16" if _narrow(job) or job.model.trained else "float32"
    steps, cut = accumulated(job, layout), layout.tp * layout.ep > 1
    values = OPTIMIZER_VALUES.get(training.optimizer.name, OPTIMIZER_VALUES["adamw"])
    betas = values.get("betas")
    return {
        keys.MODEL: model_called(job) or MODEL.name,
        keys.DATA: DATA.name,
        keys.OUTPUT: OUTPUT.name,
        keys.LENGTH: training.seq_length,
        keys.DTYPE: kept,
        keys.COMPUTE: "float32" if wide else "bfloat16",
        keys.TF32: training.precision == "tf32" if wide else None,
        keys.ATTENTION: "sdpa",
        **_adapters(job),
        keys.MICRO: layout.micro_batch_size,
        keys.ACCUMULATED: steps,
        **_recomputed(job, layout),
        keys.COMPILE: True if options.compile else None,
        keys.LIGER: True if options.liger else None,
        **(_cut(layout, casts=not wide) if cut else _sharded(job, layout)),
        keys.BUCKET: None if layout.zero_stage else options.bucket_mb,
        keys.SYNC: True if steps > 1 and layout.zero_stage else None,
        **_optimizer(job, layout, traits),
        "learning_rate": values["lr"],
        "lr_scheduler_type": "cosine",
        "weight_decay": values["weight_decay"],
        "adam_beta1": betas[0] if isinstance(betas, list) else None,
        "adam_beta2": betas[1] if isinstance(betas, list) else None,
        "max_grad_norm": 1.0,
        "max_steps": steps_of(job),
        "logging_steps": 1,
        "save_steps": SAVES,
        "save_only_model": True if cut else None,
    }


def _adapters(job: Job) -> Written:
    if (trained := job.model.trained) is None:
        return {}
    return {
        keys.LORA: trained.rank,
        keys.ALPHA: ALPHA_OVER_RANK * (trained.rank or 0),
        keys.MODULES: "all-linear" if trained.modules == ("all",) else module_names(job.model),
    }


def _recomputed(job: Job, layout: Layout) -> Written:
    if layout.recompute != "full":
        return {}
    block = layout.recompute_method == "block"
    every = job.model.num_hidden_layers // (layout.recompute_num_layers or 1)
    return {keys.CHECKPOINTING: True, keys.EVERY: every if block else None}


def _cut(layout: Layout, *, casts: bool) -> Written:
    """A model that is cut as it loads."""
    return {
        keys.TP: layout.tp,
        keys.CUT_SHARD: layout.dp_shard if layout.zero_stage else 1,
        keys.CUT_REPLICATE: layout.dp_replicate,
        keys.EP: layout.ep,
        keys.CASTS: casts and layout.zero_stage > 0,
    }


def _sharded(job: Job, layout: Layout) -> Written:
    """FSDP2 of Accelerate; nothing where every rank has all."""
    if not layout.zero_stage:
        return {}
    exchange = keys.STRATEGIES[job.options.cp_comm_type or "all_gather"]
    return {
        keys.REPLICATE: layout.dp_replicate,
        keys.SHARD: layout.dp_shard,
        keys.CP: layout.cp,
        keys.EXCHANGE: exchange if layout.cp > 1 else None,
        keys.FSDP: True,
        keys.VERSION_OF: 2,
        keys.RESHARDS: layout.zero_stage == 3,
        "fsdp_config.auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "fsdp_config.cpu_ram_efficient_loading": True,
        "fsdp_config.state_dict_type": "SHARDED_STATE_DICT",
    }


def _optimizer(job: Job, layout: Layout, traits: RuntimeTraits) -> Written:
    request = job.training.optimizer
    word = dict(traits.optimizers)[request.name]
    if job.options.fused_optimizer is False:
        word = keys.LISTS
    if job.model.trained and not layout.zero_stage and not _narrow(job):
        word = keys.ADAPTERS
    if request.name not in keys.LOW_RANK:
        return {keys.OPTIM: word}
    whole = Trained(method="lora", rank=1, modules=("all",))
    return {
        keys.OPTIM: f"{word}{keys.LAYERWISE if updates_by_layer(job) else ''}",
        keys.SETTINGS: keys.LOW_RANK[request.name].format(rank=request.rank),
        keys.TARGETS: module_names(job.model.model_copy(update={"trained": whole})),
    }


def _text(
    job: Job,
    layout: Layout,
    config: dict[str, object],
    filled: tuple[tuple[str, UserVariable], ...],
) -> str:
    head = (
        f"Written by `plan export` for transformers {keys.VERSION}.",
        f"checked: {CHECKED}",
        *summary(job, layout),
        f"start: torchrun ... -m {keys.MODULE} {keys.CONFIG} {keys.FILE}",
    )
    text = yaml.safe_dump(config, sort_keys=False)
    for key, one in filled:  # in double quotes, which the launch script writes over
        text = text.replace(f"{key}: {one.name}\n", f'{key}: "{one.name}"\n')
    return "".join(f"# {one_line(line)}\n" for line in head) + text


def _notes(job: Job, layout: Layout) -> Iterator[str]:
    yield (
        f"{keys.MODULE}.py trains the weights of a checkpoint; --random_weights true starts from "
        "its configuration alone, and DATA=random tries it"
    )
    yield "learning rate, schedule and steps between checkpoints are common values: change them"
    if layout.tp * layout.ep > 1:
        yield (
            "the model is cut as it loads (DistributedConfig): its checkpoints have no state of "
            "the optimizer, so a run does not resume"
        )
    name = job.training.optimizer.name
    packages = {"lion": "bitsandbytes", "adamw8bit": "torchao"} | {
        one: "galore-torch" if one.startswith("galore") else "apollo-torch" for one in keys.LOW_RANK
    }
    if name in packages:
        yield f"{name} is of {packages[name]}: install it"
    if job.model.trained:
        kinds = "peft" if layout.zero_stage else "peft, and moments in fp32 of bitsandbytes"
        yield f"adapters are of {kinds}: install what is named"
    if not job.training.tokens:
        yield f"the job has no number of tokens: max_steps {steps_of(job)} is a placeholder"


TRANSFORMERS = Exporter(
    runtime=keys.RUNTIME,
    export=export_transformers,
    writes=WRITES | {"cp", "ep", "etp", "dp_replicate", "tiled_loss"},
    optimizers=frozenset(name for name, _ in TRAITS.optimizers),
    states=frozenset({"o0", "bf16"}),
    trains=frozenset({"lora"}),
    saves=frozenset({"sync"}),
    source_patterns=(),
    recorded_flags=keys.RECORDED,
)
