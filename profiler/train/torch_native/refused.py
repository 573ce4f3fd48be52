"""What torch alone cannot train here, told before anything starts; imports no torch."""

from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.axes import RULES
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout, OffloadSpec
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.runtimes import executed, runtime, traits_of
from trainplan.profiler.train.request import TrainingRequest

OLDEST = "2.13"
"""Release of torch it is written for: pipelining and DTensor differ before."""
PRECISIONS = ("fp32", "bf16")
PARTS = frozenset(
    {
        *("name", "model_type", "read_by_fields", "num_hidden_layers", "hidden_size"),
        *("intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim"),
        *("vocab_size", "max_position_embeddings", "rope_theta", "norm_eps", "activation"),
        *("gated_mlp", "tie_word_embeddings", "unrotated_layers"),
    }
)
"""Fields of a model that its decoder has or that change nothing; others are as by themselves."""


def refusal(request: TrainingRequest) -> str | None:
    """What of it cannot be run, and what to do; null: all of it can."""
    return next(_refusals(request), None)


def _refusals(request: TrainingRequest) -> Iterator[str]:
    job, layout = request.job, request.layout
    if found := too_old():
        yield f"torch {found}: it is written for {OLDEST}; pip install 'torch>={OLDEST}'"
    if not runtime(job.runtime).shards_with_fsdp2:
        yield f"plans of {job.runtime}: it trains those of runtimes that shard with FSDP2"
        return
    yield from _of_the_job(job)
    yield from _of_the_layout(layout)
    yield from _of_rules(job, layout)


def too_old() -> str | None:
    """Version of torch, if it is one from before."""
    try:
        found = version("torch")
    except PackageNotFoundError:
        return None
    numbers = tuple(int(part) for part in found.split(".")[:2])
    return found if numbers < tuple(map(int, OLDEST.split("."))) else None


def _of_the_job(job: Job) -> Iterator[str]:
    for name in unsupported_parts(job.model):
        yield f"the model's {name}: its decoder is that of Llama, without more"
    if job.training.precision not in PRECISIONS:
        yield f"precision {job.training.precision}: use {' or '.join(PRECISIONS)}"
    if job.training.optimizer.name != "adamw":
        yield f"optimizer {job.training.optimizer.name}: only adamw is run"
    if job.training.lengths is not None:
        yield "sequences of unequal lengths: it has attention over whole rows alone"
    if job.options.dropout:
        yield "dropout: its masks differ from layout to layout; leave the option out"


def _of_the_layout(layout: Layout) -> Iterator[str]:
    if layout.recompute == "selective":
        yield "recompute=selective: use none or full"
    if layout.offload != OffloadSpec() or layout.offload_modules:
        yield "offload: it copies between host and GPU, and here is one memory"
    if layout.tiled_loss or layout.tiled_mlp:
        yield "tiled loss or MLP: torch has none"


def _of_rules(job: Job, layout: Layout) -> Iterator[str]:
    """What the runtime does not run, wherever it runs; one process has nothing to shard."""
    traits, table = traits_of(job), LayoutTable.of([layout])
    own = traits.rules if layout.world_size > 1 else ()
    for rule in (*RULES, *own, *executed(traits)):
        if rule.broken(job, table)[0]:
            yield f"this layout: {rule.says}"


def unsupported_parts(model: ModelSpec) -> Iterator[str]:
    """Names of fields that say something the decoder does not do."""
    for name, field in ModelSpec.model_fields.items():
        if name not in PARTS and getattr(model, name) != field.get_default():
            yield name
    if model.activation == "xielu":
        yield "activation xielu"
