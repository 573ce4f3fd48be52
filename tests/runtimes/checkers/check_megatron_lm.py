"""Launches of Megatron-LM by its own parser, validator, configurations, schedule and rank groups.

Needs MEGATRON_LM_PATH. Not run: kernels, forward passes, memory.
"""

import contextlib
import sys
import types

import megatron_checkout
import stand_ins
from judge import judge

megatron_checkout.load()
stand_ins.packages("nvidia_resiliency_ext")

import torch
from megatron.core import num_microbatches_calculator as batches
from megatron.core import parallel_state
from megatron.core.pipeline_parallel import schedules
from megatron.training import argument_utils, arguments
from torch.testing._internal.distributed.fake_pg import FakeStore


class _PassedError(Exception):
    pass


def accept(launch):
    stand_ins.gpu(launch["capability"])
    sys.argv = launch["words"]
    args = arguments.parse_args()
    arguments.validate_args(args, {"tokenizer_type": "GPT2BPETokenizer"})
    batches.init_num_microbatches_calculator(
        rank=0,
        global_batch_size=args.global_batch_size,
        micro_batch_size=args.micro_batch_size,
        data_parallel_size=args.data_parallel_size * args.gtp_weight_remat_size,
        decrease_batch_size_if_needed=args.decrease_batch_size_if_needed,
        step_batch_size_schedule=args.step_batch_size_schedule,
        seq_length=args.seq_length,
    )
    model = argument_utils.gpt_config_from_args(args)
    with _optimizers():
        argument_utils.pretrain_cfg_container_from_args(args, model)
    _groups(args, launch["ranks"])
    if args.virtual_pipeline_model_parallel_size and args.pipeline_model_parallel_size > 1:
        _interleave(args)
    return {
        "tp": args.tensor_model_parallel_size,
        "pp": args.pipeline_model_parallel_size,
        "vpp": args.virtual_pipeline_model_parallel_size or 1,
        "cp": args.context_parallel_size,
        "dp": args.data_parallel_size * args.gtp_weight_remat_size,
        "gtp": parallel_state.get_gtp_weight_remat_world_size(),
        "egtp": parallel_state.get_expert_gtp_weight_remat_world_size(),
        "ep": args.expert_model_parallel_size,
        "sequence_parallel": args.sequence_parallel,
        "micro_batches": batches.get_num_microbatches(),
        # gradients in fp32
        "bucket_mb": args.ddp_bucket_size and args.ddp_bucket_size * 4 / 2**20,
        "operations": {
            "save_interval": args.save_interval,
            "async_save": args.async_save,
            "local_save_interval": args.non_persistent_save_interval,
            "copies": args.replication_factor if args.replication else 1,
            "exit_minutes": args.exit_duration_in_mins,
            "exit_signal": getattr(args.exit_signal, "name", args.exit_signal),
            "wandb_project": args.wandb_project,
        },
    }


@contextlib.contextmanager
def _optimizers():
    """Adam of Transformer Engine, whose signature the configuration of the optimizer reads."""
    name = "transformer_engine.pytorch.optimizers"
    parents = {part: types.ModuleType(part) for part in ("transformer_engine", name[:26])}
    module = types.ModuleType(name)
    module.FusedAdam = megatron_checkout.FusedAdam
    made = parents | {name: module}
    sys.modules.update(made)
    try:
        yield
    finally:
        for one in made:
            del sys.modules[one]


def _groups(args, ranks):
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
    parallel_state.initialize_model_parallel(
        args.tensor_model_parallel_size,
        args.pipeline_model_parallel_size,
        args.virtual_pipeline_model_parallel_size,
        context_parallel_size=args.context_parallel_size,
        hierarchical_context_parallel_sizes=args.hierarchical_context_parallel_sizes,
        expert_model_parallel_size=args.expert_model_parallel_size,
        num_distributed_optimizer_instances=args.num_distributed_optimizer_instances,
        expert_tensor_parallel_size=args.expert_tensor_parallel_size,
        gtp_remat_size=args.gtp_weight_remat_size,
        expert_gtp_remat_size=args.expert_gtp_weight_remat_size,
        order="tp-cp-ep-pp-dp" if args.use_tp_pp_dp_mapping else "tp-cp-ep-dp-pp",
        create_gloo_process_groups=False,
    )


def _interleave(args):
    """The interleaved schedule up to its first tensor: it alone counts micro batches."""

    wanted = []

    def second(kind):
        wanted.append(kind)
        if len(wanted) > 1:
            raise _PassedError

    zeros = torch.zeros
    schedules.get_model_type = second
    torch.zeros = lambda *a, **k: zeros(*a, **{n: v for n, v in k.items() if n != "device"})
    config = argument_utils.core_transformer_config_from_args(args)
    stages = args.pipeline_model_parallel_size
    pipeline = types.SimpleNamespace(size=lambda: stages, rank=lambda: 0)
    alone = types.SimpleNamespace(size=lambda: 1, rank=lambda: 0)
    chunk = torch.nn.Module()
    chunk.config = config
    chunks = [chunk] * args.virtual_pipeline_model_parallel_size
    with contextlib.suppress(_PassedError):
        schedules.forward_backward_pipelining_with_interleaving(
            forward_step_func=None,
            data_iterator=[None] * len(chunks),
            model=chunks,
            num_microbatches=batches.get_num_microbatches(),
            seq_length=args.seq_length,
            micro_batch_size=args.micro_batch_size,
            p2p_communicator=types.SimpleNamespace(config=config, pp_group=pipeline),
            pg_collection=types.SimpleNamespace(
                tp=alone, cp=alone, embd=None, pos_embd=None, pp=pipeline, dp_cp=alone
            ),
        )


if __name__ == "__main__":
    judge(accept)
