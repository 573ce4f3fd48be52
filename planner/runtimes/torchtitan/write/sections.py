"""What a config sets beside the model: keys of `training`, `parallelism` and `compile`.

Source: torchtitan/config/configs.py and distributed/activation_checkpoint.py.
"""

from trainplan.costmodel.base import UnsupportedError
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import num_microbatches, stage_layers
from trainplan.planner.launch import steps_of
from trainplan.planner.runtimes.keys import Name
from trainplan.planner.runtimes.torchtitan import keys as key
from trainplan.planner.runtimes.torchtitan.write.code import Call, Code, Expression
from trainplan.planner.runtimes.torchtitan.write.schedule import (
    by_table,
    modules_of_stages,
    schedule_name,
)

CSV = "trainplan_schedule.csv"
Set = dict[Name, Expression]
"""Values by key."""
EVERY_KTH = '''\
class EveryKth(FullAC):
    """Recomputes every k-th transformer block of a rank, counted over its stages."""

    @dataclasses.dataclass(kw_only=True, slots=True)
    class Config(FullAC.Config):
        every: int

    seen = 0

    def _wrap_block(self, module, *, base_fqn=None):
        EveryKth.seen += 1
        if EveryKth.seen % self.config.every:
            return module
        return super()._wrap_block(module, base_fqn=base_fqn)
'''


def by_section(values: Set) -> dict[str, dict[str, Expression]]:
    """Values as arguments of the class of each section."""
    sections: dict[str, dict[str, Expression]] = {}
    for option, value in values.items():
        section, _, name = str(option).partition(".")
        sections.setdefault(section, {})[name] = value
    return sections


def training(job: Job, layout: Layout) -> Set:
    """Keys of `training`: tokens instead of sequences."""
    values: Set = {
        key.TOKENS: layout.micro_batch_size * job.training.seq_length,
        key.STEP: job.islands * job.training.tokens_per_step,
        key.LENGTH: job.training.seq_length,
        key.STEPS: steps_of(job),
        key.NO_GRAPHS: job.options.cuda_graph != "full_iteration",
    }
    if layout.offload.parameters:
        values[key.OFFLOADS] = True
    if job.training.precision == "fp32":
        values[key.PRECISION] = "float32"
    if job.training.state_precision == "bf16":
        values[key.STORED] = "bfloat16"
    return values


def parallelism(job: Job, layout: Layout) -> Set:
    """Keys of `parallelism`."""
    whole = layout.zero_stage == 0
    values: Set = {
        key.REPLICATE: layout.dp if whole else layout.dp_replicate,
        key.SHARD: 1 if whole else layout.dp_shard,
        key.POLICY: "never" if layout.zero_stage == 2 else "default",
        key.TP: layout.tp,
        key.SEQUENCE: layout.sequence_parallel,
        key.CP: layout.cp,
        key.PP: layout.pp,
    }
    if layout.pp > 1:
        values |= _pipeline(job, layout)
    if job.model.moe:
        values[key.EP] = layout.ep
    return values


def _pipeline(job: Job, layout: Layout) -> Set:
    """Modules are listed stage by stage: by itself it weighs embedding and head as a layer each."""
    values: Set = {
        key.SCHEDULE: schedule_name(layout),
        key.IN_PIPE: num_microbatches(job, layout),
        key.MODULES: modules_of_stages(stage_layers(job.model, layout)),
    }
    if by_table(layout):
        values[key.SCHEDULE_CSV] = Code(f"str(Path(__file__).with_name({CSV!r}))")
    return values


def compiler(job: Job) -> Set:
    """Keys of `compile`: the loss with the layers, as priced, unless the job says otherwise."""
    layers, loss = job.options.compile is not False, job.options.cross_entropy
    components = ["model"] * layers + ["loss"] * (loss == "jit" or (layers and loss is None))
    values: Set = {key.COMPILE: bool(components)}
    if components:
        values[key.COMPONENTS] = components
    if job.options.overlap_tp_comm:
        values[key.ASYNC_TP] = True
    return values


def recomputed(job: Job, layout: Layout) -> Call | None:
    """`activation_checkpoint`.

    Raises:
        UnsupportedError: It recomputes in another way.
    """
    if layout.recompute == "none":
        return None
    if layout.recompute == "selective":
        if layout.recompute_modules != ("torchtitan_selective_op",):
            raise UnsupportedError(
                "torchtitan recomputes by operation, not by module: use recompute_modules = "
                "torchtitan_selective_op"
            )
        return Call("SelectiveAC.Config")
    every = _every(job, layout)
    return Call("FullAC.Config") if every == 1 else Call("EveryKth.Config", {"every": every})


def _every(job: Job, layout: Layout) -> int:
    """Of how many layers one is recomputed."""
    number = layout.recompute_num_layers or 1
    layers = stage_layers(job.model, layout)
    own = any(stage.recompute_num_layers is not None for stage in layout.stages or ())
    if layout.recompute_method == "uniform" and number == 1:
        return 1
    alike = layout.recompute_method == "block" and not own and len(set(layers)) == 1
    if not alike or layers[0] % number:
        raise UnsupportedError(
            "torchtitan recomputes all layers or every k-th one: use the method uniform with 1, or "
            "block with a number that divides the layers of every virtual stage"
        )
    return layers[0] // number
