"""What a config sets beside the model: keys of `training`, `parallelism` and `compile`.

Source: torchtitan/config/configs.py and distributed/activation_checkpoint.py.
"""

from __future__ import annotations

from trainplan.costmodel.base import UnsupportedError
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import num_microbatches, stage_layers
from trainplan.planner.runtimes.config import steps_of
from trainplan.planner.runtimes.torchtitan.write.code import Call, Code, Expression
from trainplan.planner.runtimes.torchtitan.write.schedule import (
    by_table,
    modules_of_stages,
    schedule_name,
)

CSV = "trainplan_schedule.csv"
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


def training(job: Job, layout: Layout) -> dict[str, Expression]:
    """Keys of `training`: tokens instead of sequences."""
    told: dict[str, Expression] = {
        "num_tokens_per_microbatch_per_dp_rank": layout.micro_batch_size * job.training.seq_length,
        "num_tokens_per_train_step": job.training.tokens_per_step,
        "max_context_length": job.training.seq_length,
        "steps": steps_of(job),
        "disable_cuda_graphs": job.options.cuda_graph != "full_iteration",
    }
    if layout.offload.parameters:
        told["enable_cpu_offload"] = True
    if job.training.precision == "fp32":
        told["mixed_precision_param"] = "float32"
    return told


def parallelism(job: Job, layout: Layout) -> dict[str, Expression]:
    """Keys of `parallelism`."""
    whole = layout.zero_stage == 0
    told: dict[str, Expression] = {
        "data_parallel_replicate_degree": layout.dp if whole else layout.dp_replicate,
        "data_parallel_shard_degree": 1 if whole else layout.dp_shard,
        "fsdp_reshard_after_forward": "never" if layout.zero_stage == 2 else "default",
        "tensor_parallel_degree": layout.tp,
        "enable_sequence_parallel": layout.sequence_parallel,
        "context_parallel_degree": layout.cp,
        "pipeline_parallel_degree": layout.pp,
    }
    if layout.pp > 1:
        told |= _pipeline(job, layout)
    if job.model.moe:
        told["expert_parallel_degree"] = layout.ep
    return told


def _pipeline(job: Job, layout: Layout) -> dict[str, Expression]:
    """Modules are told stage by stage: by itself it weighs embedding and head as a layer each."""
    told: dict[str, Expression] = {
        "pipeline_parallel_schedule": schedule_name(layout),
        "num_pp_microbatches": num_microbatches(job, layout),
        "module_fqns_per_model_part": modules_of_stages(stage_layers(job.model, layout)),
    }
    if by_table(layout):
        told["pipeline_parallel_schedule_csv"] = Code(f"str(Path(__file__).with_name({CSV!r}))")
    return told


def compiler(job: Job) -> dict[str, Expression]:
    """Keys of `compile`: the loss apart, as priced, unless the job compiles it."""
    components = [] if job.options.compile is False else ["model"]
    if job.options.cross_entropy == "jit":
        components.append("loss")
    told: dict[str, Expression] = {"enable": bool(components)}
    if components:
        told["components"] = components
    if job.options.overlap_tp_comm:
        told["enable_async_tensor_parallel"] = True
    return told


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
