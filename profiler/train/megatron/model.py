"""The stages of one rank: GPTModels of megatron-core, their replicas and their optimizer."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from megatron.core import parallel_state as groups
from megatron.core.distributed import (
    DistributedDataParallel,
    DistributedDataParallelConfig,
    finalize_model_grads,
)
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer

from trainplan.profiler.torch_on_use import dist, torch
from trainplan.profiler.train.megatron.config import (
    NORMS,
    POSITIONS,
    config_of,
    dtype_of,
    expert_tensor_ranks,
    vocabulary,
)
from trainplan.profiler.train.megatron.weights import Place, fill
from trainplan.profiler.train.request import TrainingRequest

LEARNING_RATE = 1e-3


@dataclass(frozen=True, slots=True)
class Trained:
    """What one rank trains."""

    config: Any
    """TransformerConfig."""
    stages: Sequence[Any]
    """Virtual stages, each a DistributedDataParallel of a GPTModel."""
    optimizer: Any

    @property
    def num_parameters(self) -> int:
        """Of this rank; a table that two ends share counts once."""
        return sum(p.numel() for stage in self.stages for p in stage.parameters())


def connect(request: TrainingRequest, *, gloo: bool = True) -> None:
    """Make the groups of ranks, on the process group that is there; `gloo`: on the host as well."""
    from megatron.core import tensor_parallel  # noqa: PLC0415 (beside its use)

    job, layout = request.job, request.layout
    groups.initialize_model_parallel(
        layout.tp,
        layout.pp,
        layout.vpp if layout.vpp > 1 else None,
        expert_model_parallel_size=layout.ep,
        expert_tensor_parallel_size=expert_tensor_ranks(job, layout),
        num_distributed_optimizer_instances=layout.dp_replicate,
        create_gloo_process_groups=gloo,
    )
    tensor_parallel.model_parallel_cuda_manual_seed(request.seed + 1)


def disconnect() -> None:
    """Give up the groups of `connect`, and the memory of their communicators; all ranks do it."""
    listed = getattr(groups, "_global_process_group_list", None) or ()
    made = [one for one in listed if one is not None]
    dist.barrier()  # nobody is in a collective of them any more
    forget()
    for group in made:
        dist.destroy_process_group(group)


def forget() -> None:
    """Let `connect` make groups again, where some are."""
    groups.destroy_model_parallel()


def build(request: TrainingRequest) -> Trained:
    """The stages of this rank, with the weights that their names and the seed give."""
    config = config_of(request)
    stages = stages_of(request, config)
    for stage in stages:
        fill(stage, _place(request), request.seed)
    copies = replicas(request, config, stages)
    optimizer = get_megatron_optimizer(_optimizer(request), copies)
    config.finalize_model_grads_func = finalize_model_grads
    config.grad_scale_func = optimizer.scale_loss
    if request.job.options.overlap_grad_reduce:
        waits = [copy.no_sync for copy in copies]
        config.no_sync_func = waits if len(waits) > 1 else waits[0]
    return Trained(config, copies, optimizer)


def stages_of(request: TrainingRequest, config: Any, *, engine: bool = False) -> list[Any]:  # noqa: ANN401
    """The virtual stages of this rank, with the library's own weights."""
    return [_stage(config, request, one, engine=engine) for one in range(request.layout.vpp)]


def replicas(request: TrainingRequest, config: Any, stages: Sequence[Any]) -> list[Any]:  # noqa: ANN401
    """The stages with the buffers in which their gradients are added."""
    return [
        DistributedDataParallel(config, _replicas(request), stage, disable_bucketing=number > 0)
        for number, stage in enumerate(stages)
    ]


def _stage(config: Any, request: TrainingRequest, number: int, *, engine: bool) -> Any:  # noqa: ANN401
    job, layout = request.job, request.layout
    model, virtual = job.model, number if layout.vpp > 1 else None
    ends = {"ignore_virtual": virtual is None, "vp_stage": virtual}
    stage = GPTModel(
        config,
        get_gpt_decoder_block_spec(
            config, use_transformer_engine=engine, normalization=NORMS[model.norm], vp_stage=virtual
        ),
        vocabulary(job, layout),
        max(model.max_position_embeddings, job.training.seq_length)
        if model.position_embedding != "learned"
        else model.max_position_embeddings,
        pre_process=groups.is_pipeline_first_stage(**ends),
        post_process=groups.is_pipeline_last_stage(**ends),
        share_embeddings_and_output_weights=model.tie_word_embeddings,
        position_embedding_type=POSITIONS[model.position_embedding],
        rotary_percent=model.partial_rotary_factor,
        rotary_base=int(model.rope_theta),
        vp_stage=virtual,
        parallel_output=True,
    )
    return stage.to(device=torch.cuda.current_device(), dtype=dtype_of(job))


def _place(request: TrainingRequest) -> Place:
    model = request.job.model
    experts = model.moe.num_experts if model.moe else 0
    return Place(
        tp=groups.get_tensor_model_parallel_world_size(),
        tp_rank=groups.get_tensor_model_parallel_rank(),
        etp=groups.get_expert_tensor_parallel_world_size(),
        etp_rank=groups.get_expert_tensor_parallel_rank(),
        first_expert=groups.get_expert_model_parallel_rank() * experts // request.layout.ep,
        gated=model.gated_mlp,
        tied=model.tie_word_embeddings,
    )


def _replicas(request: TrainingRequest) -> DistributedDataParallelConfig:
    options = request.job.options
    return DistributedDataParallelConfig(
        use_distributed_optimizer=request.layout.zero_stage >= 1,
        num_distributed_optimizer_instances=request.layout.dp_replicate,
        overlap_grad_reduce=bool(options.overlap_grad_reduce),
        overlap_param_gather=bool(options.overlap_param_gather),
        grad_reduce_in_fp32=options.gradient_dtype != "bf16",
    )


def padded_bytes(request: TrainingRequest, stages: Sequence[Any]) -> Mapping[str, int]:
    """Zeros in the buffers of gradients, by the group that reduces them.

    Copies of a sharded optimizer reduce the shards they have.
    """
    layout = request.layout
    ranks = layout.tp * layout.dp // (layout.etp * layout.ep) if request.job.model.moe else 1
    shards = {"dp": layout.dp_shard, "expert dp": max(1, ranks // layout.dp_replicate)}
    found: Counter[str] = Counter()
    for stage in stages:
        sorts = (("dp", stage.buffers), ("expert dp", stage.expert_parallel_buffers))
        for group, buffers in sorts:
            for one in buffers:
                empty = one.numel - sum(weight.numel() for weight in one.params)
                found[group] += empty * one.grad_data.element_size()
                found["copies"] += empty * one.grad_data.element_size() // shards[group]
    return found


def _optimizer(request: TrainingRequest) -> OptimizerConfig:
    return OptimizerConfig(
        optimizer={"adamw": "adam", "sgd": "sgd"}[request.job.training.optimizer.name],
        lr=LEARNING_RATE,
        bf16=request.job.training.precision == "bf16",
        params_dtype=dtype_of(request.job),
        use_distributed_optimizer=request.layout.zero_stage >= 1,
        overlap_param_gather=bool(request.job.options.overlap_param_gather),
        clip_grad=1.0,
    )
