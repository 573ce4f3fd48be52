"""Every rule on layouts: rows that break it, and rows that barely do not.

Rules are read from the axes, the runtimes and the exporters: one that neither has rows here nor is
named by another test fails. Sizes are unlike on purpose: 24 heads, 6 of keys, 12 layers, 4608 wide.
"""

from pathlib import Path

import numpy as np
import pytest

from tests.conftest import TOWER
from trainplan.costmodel.architecture.layers import MlaSpec, SsmSpec
from trainplan.costmodel.architecture.model import ModelSpec
from trainplan.costmodel.architecture.moe import MoeSpec
from trainplan.costmodel.architecture.trained import Trained
from trainplan.costmodel.axes import RULES
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.hardware.failures import FailureSpec
from trainplan.costmodel.job.job import Job, RuntimeOptions, TrainingSpec
from trainplan.costmodel.job.outer import OuterSpec
from trainplan.costmodel.layout.codecs import Shards
from trainplan.costmodel.layout.layout import SCHEDULE_NAMES, ShardSpec, stage_specs
from trainplan.costmodel.layouts.table import FULL, SELECTIVE, LayoutTable, module_bits
from trainplan.costmodel.runtimes import RUNTIMES, executed
from trainplan.planner.runtimes import EXPORTERS

SIZES = {
    "name": "unlike",
    "num_hidden_layers": 12,
    "hidden_size": 1536,
    "intermediate_size": 4608,
    "num_attention_heads": 24,
    "num_key_value_heads": 6,
    "head_dim": 64,
    "vocab_size": 49_152,
    "max_position_embeddings": 8192,
}
MLA = {
    "mla": MlaSpec(kv_lora_rank=128, qk_nope_head_dim=64, qk_rope_head_dim=32, v_head_dim=64),
    "num_key_value_heads": 24,
}
MAMBA = {"mixer": "mamba", "ssm": SsmSpec(num_heads=48, head_dim=64, state_size=128)}
TRAINING = {"global_batch_size", "seq_length", "precision", "state_precision", "loss_tokens"}
LORA = {"trained": Trained(method="lora", rank=12, modules=("attention",))}
WHOLE_LORA = Trained(method="lora", rank=12, modules=("all",))
QLORA = {"trained": Trained(method="qlora", rank=12, modules=("attention",))}
SINKS = {"attention_sinks": True}
NARROW_TOKENS = {"moe_dispatch_dtype": "mxfp8", "moe_dispatcher": "ncclep"}
LOCAL = FailureSpec(mtbf_node_days=1000, save="local")
RACKS, NODES = "36x4:gb200", "8x8:h100-sxm"


def experts(**fields):
    sizes = {"num_experts": 12, "num_experts_per_tok": 2, "moe_intermediate_size": 768}
    return {"moe": MoeSpec.model_validate(sizes | fields)}


def job_of(
    runtime, cluster=NODES, options=None, optimizer=None, *, outer=None, failures=None, **fields
):
    """Fields of the training by their names; all others are of the model."""
    training = {"seq_length": 4096, "global_batch_size": 64}
    training |= {name: fields.pop(name) for name in TRAINING & set(fields)}
    if optimizer:
        training["optimizer"] = {"name": optimizer}
    return Job(
        model=ModelSpec.model_validate(SIZES | fields),
        training=TrainingSpec.model_validate(training),
        cluster=parse_cluster(cluster).model_copy(update={"failures": failures}),
        options=RuntimeOptions.model_validate(options or {}),
        runtime=runtime,
        outer=outer,
    )


def table_of(**columns):
    """One row; a schedule by its name, modules by theirs."""
    stages = columns.pop("stages", None)
    if "schedule" in columns:
        columns["schedule"] = SCHEDULE_NAMES.index(columns["schedule"])
    if "recompute_modules" in columns:
        columns["recompute_modules"] = module_bits(columns["recompute_modules"])
    row = LayoutTable.of_columns(1, {name: np.array([value]) for name, value in columns.items()})
    if stages is None:
        return row
    own = np.empty(1, dtype=object)
    own[0] = stage_specs(stages)
    return row.replaced(stages=own)


def row(layout, runtime="megatron-lm", **job):
    return runtime, job, layout


def rows(runtime, *several, **job):
    """Layouts of one job."""
    return [row(layout, runtime, **job) for layout in several]


def of(*several, **job):
    return rows("megatron-lm", *several, **job)


def tp(*degrees):
    return [{"tp": degree} for degree in degrees]


def by_state(weights, gradients, optimizer):
    """Columns of states over unlike numbers of ranks."""
    shard = ShardSpec(weights=weights, gradients=gradients, optimizer=optimizer)
    return {"shard": Shards().code(shard), "zero_stage": shard.zero_stage}


def batch(m):
    return {"global_batch_size": m}


STORED = {"activation_func_fp8_input_store": True}

OFFLOADED = {"offload_optimizer": 1.0, "zero_stage": 3}
MIXED = "mixed"
CUT = {"gtp": 2}, {"egtp": 2}
LOW = {"precision": "mxfp8"}
GROUPS = {"dp": 8, "dp_replicate": 2, "zero_stage": 3}
SECOND = {"zero_stage": 3, "hpz": 2}
IN_BITS = {"options": {"weight_bits": 8, "gradient_bits": 4}, "precision": "fp16"}
ISLANDS = {"outer": OuterSpec(islands=2, every=10, gb_per_s=1.0)}
FRAGMENTS = {"outer": OuterSpec(islands=2, every=10, gb_per_s=1.0, fragments=2)}
ROWS = {
    "second_copy_is_shared_by_fewer": (
        rows(
            "deepspeed",
            {"dp": 8, "hpz": 2, "zero_stage": 2},
            {"dp": 8, **SECOND, "hpz": 8},
            {"dp": 8, **SECOND, "hpz": 3},
        ),
        rows("deepspeed", {"dp": 8, **SECOND}, {"dp": 4, "cp": 2, **SECOND, "hpz": 4}, {}),
    ),
    "runtime_copies_weights": (
        of({"dp": 8, **SECOND})
        + rows("accelerate", {}, options={"weight_bits": 8})
        + rows("zero-offload-delayed", {}, options={"gradient_bits": 4}),
        rows("deepspeed", {"dp": 8, **SECOND}, **IN_BITS) + of({}),
    ),
    "engine_groups_all_ranks": (
        rows("deepspeed", {"dp": 8, "tp": 2, **SECOND})
        + rows("deepspeed", {"tp": 2, "zero_stage": 3}, {"zero_stage": 2}, **IN_BITS),
        rows("deepspeed", {"dp": 8, **SECOND}, {"zero_stage": 3}, **IN_BITS)
        + rows("deepspeed", {"tp": 2, "zero_stage": 3}),
    ),
    "engine_groups_shards_of_weights": (
        rows("deepspeed", {**GROUPS, "zero_stage": 2}, {**GROUPS, "tp": 2}, {**GROUPS, "hpz": 2})
        + rows("deepspeed", GROUPS, options={"weight_bits": 8}),
        rows("deepspeed", GROUPS, {"dp": 8, "tp": 2, "zero_stage": 3}, {**GROUPS, "cp": 2})
        + rows("deepspeed", {"zero_stage": 3}, options={"weight_bits": 8}),
    ),
    "engine_keeps_groups_on_device": (
        rows("deepspeed", {**GROUPS, **OFFLOADED}, {**GROUPS, "offload_parameters": 1}),
        rows("deepspeed", OFFLOADED, GROUPS),
    ),
    "engine_copies_weights_on_device": (
        rows("deepspeed", {"offload_parameters": 1, **SECOND})
        + rows("deepspeed", {"offload_parameters": 1, "zero_stage": 3}, **IN_BITS)
        + rows("deepspeed", SECOND, **LORA)
        + rows("deepspeed", SECOND, tower=TOWER),
        rows("deepspeed", {"offload_optimizer": 1.0, **SECOND}, **IN_BITS)
        + rows("deepspeed", {"zero_stage": 3}, **LORA),
    ),
    "engine_quantises_halves": (
        rows("deepspeed", {}, options={"gradient_bits": 4})
        + rows("deepspeed", {}, options={"weight_bits": 8}, precision="tf32")
        + rows(
            "deepspeed",
            {},
            options={"gradient_bits": 4, "gradient_dtype": "fp32"},
            precision="fp16",
        ),
        rows("deepspeed", {}, **IN_BITS) + rows("deepspeed", {}, options={"weight_bits": 8}),
    ),
    "engine_scatters_no_muon": (
        rows("deepspeed", {}, optimizer="muon", **IN_BITS),
        rows("deepspeed", {}, optimizer="muon") + rows("deepspeed", {}, **IN_BITS),
    ),
    "gtp_divides_dp": (of({"dp": 6, "gtp": 4}), of({"dp": 6, "gtp": 3})),
    "gtp_shards_weights_once": (
        of(*({"dp": 8, "gtp": 2, "zero_stage": stage} for stage in (2, 3))),
        of({"dp": 8, "gtp": 2, "zero_stage": 1}, {"dp": 8, "zero_stage": 3}),
    ),
    "gtp_has_one_instance": (
        of({"dp": 8, "gtp": 2, "dp_replicate": 2}),
        of({"dp": 8, "gtp": 2}, {"dp": 8, "dp_replicate": 2}),
    ),
    "egtp_needs_experts": (of({"dp": 4, "egtp": 2}), of({"dp": 4, "egtp": 2}, **experts())),
    "egtp_divides_expert_dp": (
        of({"tp": 2, "dp": 6, "ep": 4, "egtp": 2}, **experts()),
        of({"tp": 2, "dp": 6, "ep": 4, "egtp": 3}, **experts()),
    ),
    "egtp_shards_experts_once": (
        of({"dp": 8, "egtp": 2, "zero_stage": 2}, **experts()),
        of({"dp": 8, "egtp": 2, "zero_stage": 1}, **experts()),
    ),
    "egtp_has_one_instance": (
        of({"dp": 8, "egtp": 2, "dp_replicate": 2}, **experts()),
        of({"dp": 8, "egtp": 2}, **experts()),
    ),
    "gtp_gathers_native_weights": (
        of(*CUT, **LOW) + of(*CUT, options={"fp8_param_gather": True}, precision="fp8"),
        of(*CUT) + of(*CUT, options={"fp8_param_gather": True}, **LOW) + of({}, **LOW),
    ),
    "gtp_trains_all_weights": (of(*CUT, **LORA), of(*CUT) + of({}, **LORA)),
    "gtp_updates_each_weight": (
        of(*CUT, optimizer="muon") + of(*CUT, optimizer="soap"),
        of(*CUT, optimizer="lion") + of({}, optimizer="muon"),
    ),
    "replicas_share_shards": (
        of(
            {"dp": 8, "zero_stage": 3, "replicas_share_optimizer": 1},
            {"dp": 8, "zero_stage": 3, "dp_replicate": 8, "replicas_share_optimizer": 1},
            {"dp": 8, "zero_stage": 2, "dp_replicate": 2, "replicas_share_optimizer": 1},
        ),
        of({"dp": 8, "zero_stage": 3, "dp_replicate": 2, "replicas_share_optimizer": 1}, {}),
    ),
    "runtime_shares_optimizers": (
        rows("torchtitan", {"replicas_share_optimizer": 1}),
        of({"replicas_share_optimizer": 1}) + rows("torchtitan", {}),
    ),
    "runtime_shards_by_state": (
        rows("torchtitan", by_state(2, 4, 8)),
        rows("zero-topo", by_state(2, 4, 8)) + rows("torchtitan", {}),
    ),
    "shards_divide_ranks": (
        of({**by_state(2, 4, 8), "dp": 12}, {**by_state(2, 4, 8), "dp": 8, "gtp": 2})
        + of({**by_state(2, 4, 8), "dp": 8, "ep": 8}, **experts()),
        of({**by_state(2, 4, 8), "dp": 4, "cp": 4}, {"dp": 12, "gtp": 2})
        + of({**by_state(2, 4, 8), "dp": 16, "ep": 2}, **experts()),
    ),
    "shard_has_one_name": (
        of(
            *({"dp": 16, **by_state(*sizes)} for sizes in ((2, 2, 16), (4, 4, 4), (1, 4, 4))),
            {"dp": 16, **by_state(2, 4, 8), "zero_stage": 2},
            {"dp": 16, **by_state(2, 4, 8), "dp_replicate": 2},
            {"dp": 16, **by_state(2, 4, 8), "replicas_share_optimizer": 1},
        ),
        of(*({"dp": 16, **by_state(*sizes)} for sizes in ((2, 2, 8), (1, 4, 8), (2, 4, 16)))),
    ),
    "runtime_cuts_matrices": (rows("megatron-bridge", {"gtp": 2}), rows("nemo", {"egtp": 2})),
    "runtime_cuts_experts": (rows("torchtitan", {"egtp": 2}), rows("torchtitan", {"gtp": 2})),
    "tp_divides_heads": (of(*tp(5, 16)), of(*tp(8, 24))),
    "tp_fits_key_value_heads": (of(*tp(4, 8, 9)), of(*tp(3, 6, 12)) + of(*tp(4), **MLA)),
    "tp_divides_mlp": (
        of(*tp(5, 7))
        + of(*tp(9), **experts(shared_expert_intermediate_size=384))
        + of(*tp(5), **experts(first_k_dense_replace=1)),
        of(*tp(9, 512))
        + of(*tp(5), **experts())
        + of(*tp(3), **experts(shared_expert_intermediate_size=384)),
    ),
    "tp_divides_tower": (
        of(*tp(3, 16), tower=TOWER),
        of(*tp(2, 8), tower=TOWER)
        + of(*tp(3))
        + of(*tp(3), tower=TOWER.model_copy(update={"tensor_parallel": False})),
    ),
    "sequence_parallel_divides_sequence": (
        of(
            {"tp": 8, "sequence_parallel": 1},
            {"tp": 4, "cp": 2, "sequence_parallel": 1},
            seq_length=4100,
        ),
        of(
            {"tp": 4, "sequence_parallel": 1},
            {"tp": 8},
            {"tp": 2, "cp": 2, "sequence_parallel": 1},
            seq_length=4100,
        ),
    ),
    "heads_exchange_divides_heads": (
        of({"cp": 16}, {"cp": 4, "tp": 4}, options={"cp_comm_type": "a2a"}),
        of({"cp": 8}, {"tp": 16}, {"cp": 4, "tp": 6}, options={"cp_comm_type": "a2a"})
        + of({"cp": 16}, {"cp": 16, "tp": 2}),
    ),
    "interleaved_shape": (
        [row({"pp": 4, "vpp": 2, "schedule": "interleaved"}, **batch(9))],
        [row({"pp": 4, "vpp": 2, "schedule": "interleaved"}, **batch(m)) for m in (4, 5, 7, 8, 10)]
        + [row({"pp": 4, "schedule": "1f1b"}, **batch(9))]
        + [row({"pp": 4, "vpp": 2, "schedule": "interleaved", "dp": 3}, **batch(27 + 3))],
    ),
    "zb_h1_shape": (
        [row({"pp": 4, "vpp": 2, "schedule": "zb-h1"}, **batch(9))],
        [
            row({"pp": 4, "vpp": 1, "schedule": "zb-h1"}, **batch(9)),
            row({"pp": 4, "vpp": 2, "schedule": "zb-h1"}, **batch(10)),
        ],
    ),
    "zb_h2_shape": (
        [
            row({"pp": 4, "schedule": "zb-h2"}, **batch(6)),
            row({"pp": 4, "schedule": "zb-h2", "dp": 2}, **batch(12)),
        ],
        [row({"pp": 4, "schedule": "zb-h2"}, **batch(7)), row({"pp": 4}, **batch(6))],
    ),
    "dualpipe_v_shape": (
        [row({"pp": 4, "vpp": 2, "schedule": "dualpipe-v"}, **batch(7))],
        [row({"pp": 4, "vpp": 2, "schedule": "dualpipe-v"}, **batch(8))],
    ),
    "stages_hold_layers": (
        of({"pp": 5, "vpp": 3}, {"pp": 13}),
        of({"pp": 7, "vpp": 2}, {"pp": 12}, {"pp": 2, "vpp": 7}),
    ),
    "layers_repeat_on_one_rank": (
        of({"pp": 2}, own_weights=8),
        of({"pp": 1}, own_weights=8) + of({"pp": 2}),
    ),
    "other_mixers_are_whole": (
        rows("deepspeed", {"tp": 2}, {"cp": 2}, **MAMBA),
        rows("deepspeed", {}, **MAMBA) + rows("deepspeed", {"tp": 2}, {"cp": 2}),
    ),
    "stages_hold_the_model": (
        of(*({"pp": len(one), "stages": one} for one in [(6, 7), (5, 6), (4, 0, 8), (6, 0, 6)]))
        + of({"pp": 4, "stages": (4, 0, 8, 0)}, num_nextn_predict_layers=1),
        of(*({"pp": len(one), "stages": one} for one in [(5, 7), (0, 12), (12, 0), (0, 12, 0)]))
        + of({"pp": 3, "stages": (6, 0, 6)}, {"pp": 2}, num_nextn_predict_layers=1),
    ),
    "recompute_within_stage": (
        of(
            {"pp": 2, "vpp": 2, "recompute_num_layers": 4},
            {"pp": 5, "recompute_num_layers": 4},
            {"pp": 2, "stages": (5, 7), "recompute_num_layers": 8},
        ),
        of(
            {"pp": 2, "vpp": 2, "recompute_num_layers": 3},
            {"pp": 5, "recompute_num_layers": 3},
            {"pp": 2, "stages": (5, 7), "recompute_num_layers": 7},
        ),
    ),
    "update_is_offloaded": (
        of({"offload_tier": 1}, {"offload_stride": 2}),
        of(
            {"offload_tier": 1, "offload_optimizer": 0.5},
            {"offload_stride": 2, "offload_optimizer": 0.5},
            {},
        ),
    ),
    "tp_divides_qkv": (
        of(*tp(5, 7)),
        of(*tp(9, 8)) + of(*tp(5), **MLA),
    ),
    "expert_bias_needs_whole_experts": (
        of({"etp": 2}, **experts(expert_bias=True)),
        of({"etp": 1, "tp": 2}, **experts(expert_bias=True))
        + of({"etp": 2}, **experts())
        + of({"etp": 2}),
    ),
    "sinks_under_context_parallelism": (
        of({"cp": 4}, {"cp": 2, "tp": 2}, **SINKS),
        of({"cp": 6}, {"cp": 2, "tp": 3}, {"tp": 4}, **SINKS) + of({"cp": 4}),
    ),
    "graph_of_step_needs_hybridep": (
        of({"ep": 2}, options={"cuda_graph": "full_iteration"}, **experts())
        + of(
            {"ep": 2},
            options={"cuda_graph": "full_iteration", "moe_dispatcher": "hybridep"},
            **experts(expert_bias=True),
        ),
        of(
            {"ep": 2},
            options={"cuda_graph": "full_iteration", "moe_dispatcher": "hybridep"},
            **experts(),
        )
        + of({"ep": 2}, options={"cuda_graph": "partial"}, **experts())
        + of({}, options={"cuda_graph": "full_iteration"})
        + of(
            {"ep": 2},
            options={"cuda_graph": "full_iteration", "moe_dispatcher": "hybridep"},
            precision="fp8",
            **experts(expert_bias=True),
        ),
    ),
    "deepep_pads_nothing": (
        of(
            {"ep": 2},
            options={
                "moe_pad_to_capacity": True,
                "moe_dispatcher": "deepep",
                "moe_capacity_factor": 1.0,
            },
            **experts(),
        ),
        of(
            {"ep": 2},
            options={
                "moe_pad_to_capacity": True,
                "moe_dispatcher": "hybridep",
                "moe_capacity_factor": 1.0,
            },
            **experts(),
        )
        + of({"ep": 2}, options={"moe_dispatcher": "deepep"}, **experts()),
    ),
    "gathered_tokens_stand_alone": (
        of({"ep": 2}, options={"moe_dispatcher": "allgather", "overlap_moe_a2a": True}, **experts())
        + of(
            {"ep": 2},
            options={"moe_dispatcher": "allgather", "moe_router_padding": True},
            precision="fp8",
            **experts(),
        ),
        of({"ep": 2}, options={"moe_dispatcher": "allgather"}, **experts())
        + of(
            {"ep": 2}, options={"moe_dispatcher": "alltoall", "overlap_moe_a2a": True}, **experts()
        ),
    ),
    "ncclep_drops_nothing": (
        of(
            {"ep": 2},
            options={"moe_dispatcher": "ncclep", "moe_capacity_factor": 1.0},
            **experts(),
        ),
        of({"ep": 2}, options={"moe_dispatcher": "ncclep"}, **experts()),
    ),
    "narrow_tokens_are_multiplied_so": (
        of({"ep": 2}, options=NARROW_TOKENS, precision="fp8", **experts()),
        of({"ep": 2}, options=NARROW_TOKENS, precision="mxfp8", **experts())
        + of({}, options=NARROW_TOKENS),
    ),
    "runtime_narrows_tokens": (
        of(
            {"ep": 2},
            options={"moe_dispatch_dtype": "mxfp8", "moe_dispatcher": "hybridep"},
            **experts(),
        )
        + rows("torchtitan", {"ep": 2}, options={"moe_dispatch_dtype": "fp8"}, **experts())
        + rows("megatron-bridge", {"ep": 2}, options=NARROW_TOKENS, precision="mxfp8", **experts()),
        of({"ep": 2}, options=NARROW_TOKENS, precision="mxfp8", **experts())
        + rows("torchtitan", {"ep": 2}, options={"moe_dispatch_dtype": "bf16"}, **experts())
        + rows(
            "megatron-dualpipe",
            {"ep": 2},
            options={"moe_dispatch_dtype": "fp8", "moe_dispatcher": "deepep"},
            **experts(),
        ),
    ),
    "router_padding_needs_quantized_products": (
        of({"ep": 2}, options={"moe_router_padding": True}, **experts()),
        of({"ep": 2}, options={"moe_router_padding": True}, precision="fp8", **experts())
        + of({}, options={"moe_router_padding": True})
        + of({"ep": 2}, **experts()),
    ),
    "narrow_inputs_are_of_gated_silu": (
        of({}, options=STORED, gated_mlp=False, activation="gelu"),
        of({}, options=STORED) + of({}, gated_mlp=False, activation="gelu"),
    ),
    "engine_shards_narrow_states": (
        rows("deepspeed", {"zero_stage": 0}, state_precision="bf16"),
        rows("deepspeed", {"zero_stage": 1}, state_precision="bf16")
        + rows("deepspeed", {"zero_stage": 0}),
    ),
    "runtime_updates_lists": (
        rows("deepspeed", {}, options={"fused_optimizer": False}),
        rows("accelerate", {}, options={"fused_optimizer": False}) + rows("deepspeed", {}),
    ),
    "runtime_sizes_buckets": (
        rows("torchtitan", {}, options={"bucket_mb": 25}),
        rows("megatron-lm", {}, options={"bucket_mb": 25}) + rows("torchtitan", {}),
    ),
    "runtime_chooses_fp8_copies": (
        rows("torchtitan", {}, options=STORED)
        + rows("fsdp2", {}, options={"fp8_transpose_cache": True}),
        rows("nemo", {}, options=STORED) + rows("torchtitan", {}),
    ),
    "deepep_leaves_racks_out": (
        rows(
            "megatron-bridge",
            {"ep": 2},
            cluster=RACKS,
            options={"moe_dispatcher": "deepep"},
            **experts(),
        ),
        rows("megatron-bridge", {"ep": 2}, options={"moe_dispatcher": "deepep"}, **experts())
        + rows(
            "megatron-bridge",
            {"ep": 2},
            cluster=RACKS,
            options={"moe_dispatcher": "hybridep"},
            **experts(),
        )
        + rows("megatron-bridge", {}, cluster=RACKS, options={"moe_dispatcher": "deepep"}),
    ),
    "runtime_executes_layers": (
        rows("torchtitan", {}, **MAMBA),
        of({}, **MAMBA) + rows("torchtitan", {}),
    ),
    "runtime_keeps_tier": (
        of({"offload_tier": 1, "offload_optimizer": 1.0}),
        of({"offload_optimizer": 1.0}) + rows("deepspeed", {"offload_tier": 1, **OFFLOADED}),
    ),
    "runtime_keeps_stride": (
        of({"offload_stride": 2, "offload_optimizer": 1.0}),
        of({"offload_optimizer": 1.0})
        + rows("deep-optimizer-states", {"offload_stride": 2, **OFFLOADED}),
    ),
    "nodes_have_drives": (
        rows("deepspeed", {"offload_tier": 1, **OFFLOADED}, {"offload_parameters": 2}),
        rows("deepspeed", {"offload_parameters": 1}, {"offload_checkpoints": 1.0}, OFFLOADED),
    ),
    "runtime_keeps_parameters": (
        of({"offload_parameters": 1}),
        of({}) + rows("deepspeed", {"offload_parameters": 1, **OFFLOADED}),
    ),
    "runtime_keeps_checkpoints": (
        of({"offload_checkpoints": 1.0}),
        of({}) + rows("deepspeed", {"offload_checkpoints": 1.0, "recompute": FULL}),
    ),
    "adapters_are_cut_evenly": (
        rows("megatron-bridge", {"tp": 8}, **LORA)
        + rows("megatron-bridge", {"etp": 8}, **LORA, **experts()),
        rows("megatron-bridge", {"tp": 6}, {"etp": 8}, **LORA)
        + rows("megatron-bridge", {"tp": 8})
        + rows("megatron-bridge", {"etp": 6}, **LORA, **experts()),
    ),
    "adapters_leave_fsdp_out": (
        rows("megatron-bridge", {"zero_stage": 2}, {"zero_stage": 3}, **LORA),
        rows("megatron-bridge", {"zero_stage": 1}, **LORA)
        + rows("megatron-bridge", {"zero_stage": 2}),
    ),
    "pipeline_engine_shards_no_gradients": (
        rows("megatron-deepspeed", {"zero_stage": 2, "pp": 2}, {"zero_stage": 3, "pp": 2}),
        rows("megatron-deepspeed", {"zero_stage": 1, "pp": 2}, {"zero_stage": 3}),
    ),
    "buckets_overlap_without_stages": (
        rows(
            "megatron-deepspeed",
            {"zero_stage": 0},
            {"zero_stage": 1, "pp": 2},
            options={"overlap_grad_reduce": True},
        ),
        rows("megatron-deepspeed", {"zero_stage": 1}, options={"overlap_grad_reduce": True})
        + rows("megatron-deepspeed", {"zero_stage": 0}, {"zero_stage": 1, "pp": 2}),
    ),
    "split_passes_reduce_last": (
        rows(
            "megatron-zero-bubble",
            {"pp": 2, "schedule": "zb-1p"},
            {"pp": 2, "vpp": 2, "schedule": "zb-v"},
            options={"overlap_grad_reduce": True},
        ),
        rows("megatron-zero-bubble", {"pp": 2}, options={"overlap_grad_reduce": True})
        + rows("megatron-zero-bubble", {"pp": 2, "schedule": "zb-1p"}),
    ),
    "tp_divides_key_value_heads": (
        rows("torchtitan", *tp(4, 12)),
        rows("torchtitan", *tp(6)) + rows("torchtitan", *tp(12), **MLA),
    ),
    "liger_tiles_the_loss": (
        rows("accelerate", {"tiled_loss": 1})
        + rows("accelerate", {"tiled_loss": 0}, options={"liger": "0.6"}),
        rows("accelerate", {"tiled_loss": 0})
        + rows("accelerate", {"tiled_loss": 1}, options={"liger": "0.6"})
        + rows("deepspeed", {"tiled_loss": 1}),
    ),
    "chunks_of_loss_are_equal": (
        rows("torchtitan", {"tiled_loss": 1}, {"tiled_loss": 1, "cp": 2}, seq_length=4100)
        + rows("torchtitan", {"tiled_loss": 1}, num_nextn_predict_layers=1),
        rows("torchtitan", {"tiled_loss": 1, "micro_batch_size": 2}, {"cp": 2}, seq_length=4100),
    ),
    "shards_every_gradient": (
        rows(
            "torchtitan",
            {"dp": 8, "zero_stage": 1},
            {"cp": 2, "zero_stage": 0},
            {"dp": 8, "zero_stage": 0, "dp_replicate": 2},
            {"dp": 8, "zero_stage": 3, "dp_replicate": 8},
        ),
        rows(
            "torchtitan",
            {"dp": 8, "zero_stage": 2},
            {"dp": 8, "zero_stage": 1, "pp": 2},
            {"dp": 8, "zero_stage": 0},
            {"dp": 8, "zero_stage": 3, "dp_replicate": 4},
            {"dp": 8, "cp": 2, "zero_stage": 3, "dp_replicate": 8},
            {"dp": 1, "zero_stage": 1},
        ),
    ),
    "joins_one_stage": (
        rows("torchtitan", {"pp": 2, "vpp": 2}, **ISLANDS),
        rows("torchtitan", {"pp": 2}, **ISLANDS) + rows("torchtitan", {"pp": 2, "vpp": 2}),
    ),
    "joins_one_copy": (
        rows("torchtitan", {"dp": 8, "dp_replicate": 2, "zero_stage": 3}, **ISLANDS)
        + rows("torchtitan", {"dp": 8, "zero_stage": 0}, **ISLANDS),
        rows("torchtitan", {"dp": 8, "zero_stage": 3}, **ISLANDS)
        + rows("torchtitan", {"dp": 8, "dp_replicate": 2, "zero_stage": 3}),
    ),
    "joins_whole_models": (
        rows("torchtitan", {"pp": 2}, **FRAGMENTS),
        rows("torchtitan", {"pp": 2}, **ISLANDS) + rows("torchtitan", {"pp": 1}, **FRAGMENTS),
    ),
    "joins_weights_on_gpus": (
        rows("torchtitan", {"offload_parameters": 1, **OFFLOADED}, **ISLANDS),
        rows("torchtitan", {}, **ISLANDS) + rows("torchtitan", {"offload_parameters": 1}),
    ),
    "sinks_stay_on_a_rank": (
        rows("torchtitan", {"cp": 2}, **SINKS),
        rows("torchtitan", {"cp": 1}, **SINKS) + rows("torchtitan", {"cp": 2}),
    ),
    "experts_are_cut_one_way": (
        rows(
            "torchtitan",
            {"tp": 4, "etp": 1},
            {"tp": 4, "ep": 2, "etp": 4},
            {"tp": 4, "etp": 2},
            **experts(),
        ),
        rows("torchtitan", {"tp": 4, "etp": 4}, {"tp": 4, "ep": 2, "etp": 1}, **experts())
        + rows("torchtitan", {"tp": 4, "etp": 1}),
    ),
    "ep_divides_sharding_ranks": (
        rows(
            "torchtitan",
            {"tp": 2, "cp": 3, "dp": 4, "dp_replicate": 2, "zero_stage": 3, "ep": 24},
            {"tp": 2, "dp": 6, "zero_stage": 0, "ep": 4},
            {"tp": 2, "dp": 6, "zero_stage": 3, "ep": 24},
        ),
        rows(
            "torchtitan",
            {"tp": 2, "cp": 3, "dp": 4, "dp_replicate": 2, "zero_stage": 3, "ep": 12},
            {"tp": 2, "dp": 6, "zero_stage": 0, "ep": 2},
            {"tp": 2, "dp": 6, "zero_stage": 3, "ep": 12},
        ),
    ),
    "ends_share_no_weight": (
        rows("torchtitan", {"pp": 2}, tie_word_embeddings=True),
        rows("torchtitan", {"pp": 1}, tie_word_embeddings=True) + rows("torchtitan", {"pp": 2}),
    ),
    "predictions_need_whole_sequences": (
        rows("torchtitan", {"pp": 2}, {"cp": 2}, num_nextn_predict_layers=1, **MLA),
        rows("torchtitan", {"tp": 2}, num_nextn_predict_layers=1, **MLA)
        + rows("torchtitan", {"pp": 2, "cp": 2}, **MLA),
    ),
    "step_graph_needs_fixed_shapes": (
        rows(
            "torchtitan",
            {"pp": 2},
            {"ep": 2},
            {"offload_parameters": 1},
            options={"cuda_graph": "full_iteration"},
            **experts(),
        ),
        rows("torchtitan", {"tp": 2}, options={"cuda_graph": "full_iteration"}, **experts())
        + rows("torchtitan", {"pp": 2, "ep": 2}, **experts()),
    ),
    "async_tp_stays_in_domain": (
        rows("torchtitan", {"tp": 16}, options={"overlap_tp_comm": True}),
        rows("torchtitan", {"tp": 8}, options={"overlap_tp_comm": True})
        + rows("torchtitan", {"tp": 16})
        + rows("torchtitan", {"tp": 16}, cluster=RACKS, options={"overlap_tp_comm": True}),
    ),
    "async_tp_is_compiled": (
        rows("torchtitan", {"tp": 2}, options={"overlap_tp_comm": True, "compile": False}),
        rows("torchtitan", {"tp": 2}, options={"overlap_tp_comm": True})
        + rows("torchtitan", {"tp": 2}, options={"compile": False}),
    ),
    "dispatchers_need_expert_ranks": (
        rows("torchtitan", {"ep": 1}, options={"moe_dispatcher": "deepep"}, **experts())
        + rows("torchtitan", {"ep": 1}, options={"moe_dispatcher": "hybridep"}, **experts()),
        rows("torchtitan", {"ep": 2}, options={"moe_dispatcher": "deepep"}, **experts())
        + rows("torchtitan", {"ep": 1}, **experts())
        + rows("torchtitan", {"ep": 1}, options={"moe_dispatcher": "deepep"}),
    ),
    "states_move_on_equal_nodes": (
        rows(
            "deepspeed",
            OFFLOADED,
            {"offload_parameters": 1},
            {"offload_checkpoints": 1.0},
            cluster=MIXED,
        ),
        rows("deepspeed", {}, cluster=MIXED) + rows("deepspeed", OFFLOADED),
    ),
    "adapters_leave_experts_whole": (
        of({"etp": 2}, trained=WHOLE_LORA, **experts()),
        of({"etp": 2}, **LORA, **experts()) + of({"etp": 2}, **experts()),
    ),
    "adapters_are_whole": (
        rows("deepspeed", {"tp": 2}, **LORA),
        rows("deepspeed", {"tp": 1}, **LORA) + rows("deepspeed", {"tp": 2}),
    ),
    "quantised_weights_are_replicated": (
        rows("accelerate", {"zero_stage": 2}, options={"fsdp_version": 2}, **QLORA)
        + rows("accelerate", {"zero_stage": 3}, options={"fsdp_version": 2}, **QLORA),
        rows("accelerate", {"zero_stage": 0}, options={"fsdp_version": 2}, **QLORA)
        + rows("accelerate", {"zero_stage": 3}, **QLORA)
        + rows("accelerate", {"zero_stage": 3}, **LORA),
    ),
    "flat_parameters_have_no_mesh": (
        rows("accelerate", {"cp": 2}, **QLORA)
        + rows("accelerate", {"tp": 2}, {"dp_replicate": 2}, options={"fsdp_version": 1}),
        rows("accelerate", {"zero_stage": 3}, options={"fsdp_version": 1})
        + rows("accelerate", {"cp": 2}, {"tp": 2}, {"dp_replicate": 2}),
    ),
    "runtime_has_versions_of_fsdp": (
        rows("fsdp2", {}, options={"fsdp_version": 2}),
        rows("accelerate", {}, options={"fsdp_version": 2}) + rows("fsdp2", {}),
    ),
    "trainer_shards_one_way": (
        rows(
            "transformers",
            {"dp": 4, "zero_stage": 1},
            {"dp": 1, "zero_stage": 3},
            {"dp": 4, "tp": 2, "zero_stage": 2},
            {"dp": 2, "tp": 2, "zero_stage": 0},
            {"dp": 4, "dp_replicate": 4, "zero_stage": 3},
            {"cp": 2, "zero_stage": 0},
        ),
        rows(
            "transformers",
            {"dp": 4, "zero_stage": 2},
            {"dp": 4, "tp": 2, "zero_stage": 3},
            {"dp": 4, "zero_stage": 0},
            {"tp": 2, "zero_stage": 0},
            {"dp": 4, "dp_replicate": 2, "zero_stage": 3},
            {"cp": 2, "zero_stage": 2},
        ),
    ),
    "context_ranks_are_alone": (
        rows("transformers", {"cp": 2, "tp": 2})
        + rows("transformers", {"cp": 2, "ep": 2}, **experts()),
        rows("transformers", {"cp": 2}, {"tp": 2}),
    ),
    "experts_follow_plans": (
        rows(
            "transformers",
            {"tp": 2, "dp": 2},
            {"dp": 4, "ep": 2, "etp": 2},
            {"tp": 2, "dp": 4, "ep": 2},
            {"dp": 4, "dp_replicate": 2, "ep": 4},
            **experts(),
        ),
        rows(
            "transformers",
            {"tp": 2, "dp": 2, "etp": 2},
            {"dp": 4, "ep": 4},
            {"dp": 8, "dp_replicate": 2, "ep": 4},
            **experts(),
        )
        + rows("transformers", {"tp": 2, "dp": 2}),
    ),
    "model_has_a_plan": (
        rows("transformers", {"tp": 2}, model_type="gpt2")
        + rows("transformers", {"tp": 2}, **MLA)
        + rows("transformers", {"ep": 2}, model_type="jetmoe", **experts()),
        rows("transformers", {"tp": 1}, model_type="gpt2")
        + rows("transformers", {"tp": 2}, model_type="llama")
        + rows("transformers", {"ep": 2}, model_type="mixtral", **experts()),
    ),
    "replicas_have_one_type": (
        rows("transformers", {"zero_stage": 0}),
        rows("transformers", {"zero_stage": 2})
        + rows("transformers", {"zero_stage": 0}, state_precision="bf16")
        + rows("transformers", {"zero_stage": 0}, precision="tf32")
        + rows("transformers", {"zero_stage": 0}, optimizer="apollo-mini")
        + rows("transformers", {"zero_stage": 0}, **LORA),
    ),
    "optimizer_takes_plain_tensors": (
        rows("transformers", {"zero_stage": 3}, {"tp": 2, "zero_stage": 0}, optimizer="lion"),
        rows("transformers", {"zero_stage": 0}, optimizer="lion")
        + rows("transformers", {"zero_stage": 3}, {"tp": 2}, optimizer="adamw8bit"),
    ),
    "low_rank_is_of_linear_layers": (
        rows("transformers", {}, optimizer="apollo-mini", **experts()),
        rows("transformers", {}, optimizer="apollo-mini") + rows("transformers", {}, **experts()),
    ),
    "kernels_take_whole_weights": (
        rows("transformers", {"tp": 2}, options={"compile": True})
        + rows("transformers", {"ep": 2}, options={"liger": "0.6"}, **experts()),
        rows("transformers", {"cp": 2}, options={"compile": True})
        + rows("transformers", {"tp": 2}),
    ),
    "trains_in_bf16": (
        rows("transformers", {}, precision="fp16") + rows("transformers", {}, precision="fp8"),
        rows("transformers", {}) + rows("transformers", {}, precision="fp32"),
    ),
    "quantised_weights_are_whole": (
        rows("deepspeed", {"zero_stage": 3}, **QLORA),
        rows("deepspeed", {"zero_stage": 2}, **QLORA)
        + rows("deepspeed", {"zero_stage": 3}, **LORA),
    ),
    "engine_offloads_shards": (
        rows(
            "deepspeed",
            {"zero_stage": 2, "offload_optimizer": 0.5},
            {"zero_stage": 0, "offload_optimizer": 1.0},
        ),
        rows(
            "deepspeed",
            {"zero_stage": 3, "offload_optimizer": 0.5},
            {"zero_stage": 1, "offload_optimizer": 1.0},
            {"zero_stage": 0},
        ),
    ),
    "engine_moves_shards": (
        rows(
            "deepspeed",
            {"zero_stage": 2, "offload_parameters": 1},
            {"zero_stage": 2, "offload_tier": 1, "offload_optimizer": 1.0},
            {"zero_stage": 3, "offload_tier": 1, "offload_optimizer": 0.5},
        ),
        rows(
            "deepspeed",
            {"zero_stage": 3, "offload_parameters": 1},
            {"zero_stage": 3, "offload_tier": 1, "offload_optimizer": 1.0},
            {"zero_stage": 2, "offload_optimizer": 1.0},
        ),
    ),
    "checkpoints_are_recomputed": (
        rows(
            "deepspeed",
            {"offload_checkpoints": 1.0},
            {"offload_checkpoints": 1.0, "recompute": SELECTIVE},
        ),
        rows("deepspeed", {"offload_checkpoints": 1.0, "recompute": FULL}, {}),
    ),
    "engine_updates_on_processors": (
        rows("deepspeed", OFFLOADED, optimizer="muon"),
        rows("deepspeed", OFFLOADED)
        + rows("deepspeed", OFFLOADED, optimizer="lion")
        + rows("deepspeed", {}, optimizer="muon"),
    ),
    "trainer_cuts_no_matrices": (
        rows("arctic-training", {"tp": 2}),
        rows("arctic-training", {"tp": 1, "cp": 2}),
    ),
    "trainer_tiles_the_loss": (
        rows("arctic-training", {"cp": 2}, {"tiled_loss": 1}, seq_length=65_536)
        + rows("arctic-training", {}, seq_length=65_536, options={"liger": "0.6"}),
        rows("arctic-training", {"cp": 2, "tiled_loss": 1}, {}, seq_length=65_536)
        + rows("arctic-training", {"tiled_loss": 1}, seq_length=65_536, options={"liger": "0.6"})
        + rows("arctic-training", {"cp": 2}, seq_length=64),
    ),
    "fsdp2_cuts_batches_and_matrices": (
        rows("fsdp2", {"pp": 2}, {"cp": 2}),
        rows("fsdp2", {"tp": 2, "dp": 2}),
    ),
    "fsdp2_cuts_evenly": (
        rows("fsdp2", *tp(4)) + rows("fsdp2", *tp(3), vocab_size=32_000),
        rows("fsdp2", *tp(3, 6)) + rows("fsdp2", *tp(2), vocab_size=32_000),
    ),
    "fsdp2_compiles_without_tp": (
        rows("fsdp2", *tp(2), options={"compile": True}),
        rows("fsdp2", *tp(1), options={"compile": True}) + rows("fsdp2", *tp(2)),
    ),
    "whole_replicas": (
        rows("torch-eager", {"tp": 2}, {"pp": 2}, {"cp": 2}, {"zero_stage": 1}),
        rows("torch-eager", {"dp": 8, "zero_stage": 0}),
    ),
    "data_parallel_only": (
        rows("fms-fsdp", {"tp": 2}, {"pp": 2}, {"cp": 2}),
        rows("fms-fsdp", {"dp": 8}),
    ),
    "method_offloads_all": (
        rows("fuyou", {"offload_optimizer": 0.5}, {}),
        rows("fuyou", {"offload_optimizer": 1.0}),
    ),
    "method_has_one_micro_batch": (
        rows("fuyou", {"dp": 8, "micro_batch_size": 4}),
        rows("fuyou", {"dp": 8, "micro_batch_size": 8}),
    ),
    "method_needs_experts": (rows("se-moe", {}), rows("se-moe", {}, **experts())),
    "halves_are_counted": (
        of(
            {"recompute": FULL, "recompute_method": 2, "recompute_num_layers": 1},
            {"recompute": FULL, "recompute_method": 1, "recompute_num_layers": 2},
            **MAMBA,
        ),
        of({"recompute": FULL, "recompute_method": 1, "recompute_num_layers": 1}, **MAMBA)
        + of({"recompute": FULL, "recompute_method": 2, "recompute_num_layers": 1})
        + of(
            {"recompute": FULL, "recompute_method": 2, "recompute_num_layers": 1},
            **MAMBA,
            feed_forward="none",
        ),
    ),
    "fsdp_saves_no_copies": (
        of({"zero_stage": 2}, {"zero_stage": 3}, failures=LOCAL),
        of({"zero_stage": 1}, failures=LOCAL) + of({"zero_stage": 2}),
    ),
    "few_bits_are_sharded": (
        of(
            {"zero_stage": 0},
            {"zero_stage": 1, "offload_optimizer": 0.5},
            precision="fp8",
            options={"fp8_param_gather": True},
        ),
        of({"zero_stage": 1}, precision="fp8", options={"fp8_param_gather": True})
        + of({"zero_stage": 0}, precision="fp8", options={"fp8_param_gather": False})
        + of({"zero_stage": 0}),
    ),
    "ends_lack_layers": (
        rows(
            "megatron-zero-bubble",
            {"pp": 2, "stages": (5, 7)},
            {"pp": 3, "stages": (4, 5, 3)},
            {"pp": 5, "stages": (3, 2, 2, 3, 2)},
        ),
        rows(
            "megatron-zero-bubble",
            {"pp": 2},
            {"pp": 3, "stages": (4, 4, 4)},
            {"pp": 5, "stages": (2, 2, 3, 3, 2)},
            {"pp": 1},
        ),
    ),
    "recomputes_attention_alone": (
        rows(
            "megatron-zero-bubble",
            {"recompute": SELECTIVE, "recompute_modules": ("mlp",)},
            {"recompute": SELECTIVE, "recompute_modules": ("core_attn", "mlp")},
        ),
        rows(
            "megatron-zero-bubble",
            {"recompute": SELECTIVE, "recompute_modules": ("core_attn",)},
            {},
        ),
    ),
    "splits_in_a_pipeline": (
        rows("megatron-zero-bubble", *({"schedule": name} for name in ("zb-1p", "zb-2p", "zb-v"))),
        rows(
            "megatron-zero-bubble",
            {"schedule": "1f1b"},
            *({"schedule": name, "pp": 2} for name in ("zb-1p", "zb-2p", "zb-v")),
        ),
    ),
    "keeps_weights_under_a_pipeline": (
        rows(
            "torchtitan", {"pp": 2, "dp": 2, "zero_stage": 2}, {"pp": 2, "cp": 2, "zero_stage": 3}
        ),
        rows(
            "torchtitan",
            {"pp": 2, "dp": 2, "zero_stage": 1},
            {"pp": 1, "dp": 2, "zero_stage": 3},
            {"pp": 2, "zero_stage": 3},
        ),
    ),
    "tokens_divide": (
        rows(
            "torchtitan",
            {"tp": 8, "sequence_parallel": 1},
            {"cp": 4},
            {"tp": 2, "cp": 2, "sequence_parallel": 1},
            seq_length=4100,
        ),
        rows(
            "torchtitan",
            {"tp": 8, "sequence_parallel": 1, "micro_batch_size": 2},
            {"tp": 8},
            {"cp": 2},
            {"cp": 4, "micro_batch_size": 2},
            seq_length=4100,
        ),
    ),
    "whole_gradients_are_plain": (
        rows("deepspeed", {"zero_stage": 0})
        + rows(
            "deepspeed",
            {"zero_stage": 0},
            options={"overlap_grad_reduce": False, "gradient_dtype": "fp32"},
        ),
        rows("deepspeed", {"zero_stage": 1})
        + rows("deepspeed", {"zero_stage": 0}, options={"overlap_grad_reduce": False})
        + rows(
            "deepspeed",
            {"zero_stage": 0},
            options={"overlap_grad_reduce": False, "gradient_dtype": "bf16"},
        ),
    ),
}
VIRTUAL_STAGES = {
    "1f1b": (1, 1),
    "interleaved": (2, 99),
    "zb-1p": (1, 1),
    "zb-2p": (1, 1),
    "gpipe": (1, 1),
    "breadth-first": (2, 99),
    "zb-h1": (1, 99),
    "zb-h2": (1, 1),
    "zb-v": (2, 2),
    "v-half": (2, 2),
    "v-min": (2, 2),
    "dualpipe-v": (2, 2),
}
"""The fewest and the most of each schedule, as its paper has them."""


def rules_of(runtime):
    """By name: of the axes, of the runtime, and of what is written for it."""
    traits = RUNTIMES[runtime]
    exporter = EXPORTERS.get(runtime)
    own = (*RULES, *traits.rules, *executed(traits), *(exporter.refuses if exporter else ()))
    return {rule.name: rule for rule in own}


ALL = {name for runtime in RUNTIMES for name in rules_of(runtime)}


def breaks(name, runtime, job, layout):
    job, rules = dict(job), rules_of(runtime)
    if job.get("cluster") == MIXED:
        job["cluster"] = NODES
        one = job_of(runtime, **job)
        groups = one.cluster.groups * 2
        one = one.model_copy(update={"cluster": one.cluster.model_copy(update={"groups": groups})})
    else:
        one = job_of(runtime, **job)
    return name in rules and bool(rules[name].broken(one, table_of(**layout))[0])


@pytest.mark.parametrize("name", ROWS)
def test_a_rule_is_broken_by_its_rows_and_by_none_that_barely_respect_it(name):
    breaking, legal = ROWS[name]
    assert breaking
    assert legal
    for runtime, job, layout in breaking:
        assert breaks(name, runtime, job, layout), layout
    for runtime, job, layout in legal:
        assert not breaks(name, runtime, job, layout), layout


@pytest.mark.parametrize("schedule", SCHEDULE_NAMES)
def test_a_schedule_has_the_virtual_stages_of_its_paper(schedule):
    least, most = VIRTUAL_STAGES[schedule]
    name = f"{schedule.replace('-', '_')}_vpp"
    for vpp in (1, 2, 3, 4):
        layout = {"pp": 2, "vpp": vpp, "schedule": schedule}
        assert breaks(name, "megatron-lm", {}, layout) == (not least <= vpp <= most)
        other = {**layout, "schedule": "gpipe" if schedule == "1f1b" else "1f1b"}
        assert not breaks(name, "megatron-lm", {}, other)


def test_every_rule_has_rows_here_or_is_named_by_another_test():
    folder = next(one for one in Path(__file__).parents if one.name == "tests")
    texts = " ".join(
        path.read_text("utf-8")
        for part in ("unit", "properties", "golden")
        for path in (folder / part).rglob("test_*.py")
        if path != Path(__file__)
    )
    schedules = {f"{name.replace('-', '_')}_vpp" for name in VIRTUAL_STAGES}
    left = {name for name in ALL - set(ROWS) - schedules if name not in texts}
    assert not left, f"give these rules a row that breaks them and one that does not: {left}"
    assert set(ROWS) <= ALL
