"""What Megatron-LM stops at in graphs, offload, overlap and groups: a launch that barely does.

Rows are of the release's own checks; every way to break one, and what is next to it and runs.
"""

import pytest

from tests.launches import launch
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.planner.runtimes import Request
from trainplan.planner.runtimes.megatron_lm.read import MEGATRON_LM
from trainplan.planner.runtimes.megatron_lm.read.run import RUN_CHECKS

MODEL = (
    "--num-layers 8 --hidden-size 1024 --ffn-hidden-size 2048 --num-attention-heads 16 "
    "--seq-length 2048 --max-position-embeddings 2048 --position-embedding-type rope "
    "--normalization RMSNorm --swiglu --disable-bias-linear --vocab-size 32000 --train-iters 10 "
    "--untie-embeddings-and-output-weights --attention-dropout 0 --hidden-dropout 0 "
    "--micro-batch-size 1 --global-batch-size 96 --transformer-impl transformer_engine "
)
EXPERTS = (
    "--num-experts 16 --moe-router-topk 2 --moe-ffn-hidden-size 512 --moe-grouped-gemm "
    "--moe-token-dispatcher-type alltoall --expert-tensor-parallel-size 1 --bf16 "
)
GRAPHS = EXPERTS + "--cuda-graph-impl transformer_engine --cuda-graph-modules "
OVERLAP = EXPERTS + "--expert-model-parallel-size 4 --overlap-moe-expert-parallel-comm "
LOCAL = EXPERTS + "--cuda-graph-impl local --cuda-graph-modules "
MODULES = "--cuda-graph-impl transformer_engine --cuda-graph-modules "
WHOLE = "--bf16 --cuda-graph-impl transformer_engine "
SELECTIVE = "--recompute-granularity selective --recompute-modules "
FULL = "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1 "
OFFLOAD = "--bf16 --fine-grained-activation-offloading --offload-modules core_attn "
PIPELINE = "--pipeline-model-parallel-size 4 "
STAGES = PIPELINE + "--num-virtual-stages-per-pipeline-rank 2 "
SHARDED = "--bf16 --use-distributed-optimizer "
ROWS = {
    "graphs_of_modules": (
        [
            GRAPHS + "moe",
            "--bf16 " + MODULES + "moe_router",
            GRAPHS + "mlp",
            GRAPHS + "moe_preprocess",
            GRAPHS + "attn moe_router " + SELECTIVE + "moe",
            "--bf16 " + MODULES + "attn " + FULL,
            "--bf16 --attention-dropout 0.1 " + MODULES + "attn " + SELECTIVE + "core_attn",
            "--bf16 --hidden-dropout 0.1 " + MODULES + "mlp " + SELECTIVE + "mlp",
            WHOLE + "--attention-dropout 0.1 " + SELECTIVE + "core_attn",
            "--num-experts 1 --moe-ffn-hidden-size 512 --bf16 " + MODULES + "moe_router",
        ],
        [
            GRAPHS + "attn moe_router",
            GRAPHS + "moe_router moe_preprocess",
            LOCAL + "moe_preprocess",
            LOCAL + "moe_router " + SELECTIVE + "moe",
            GRAPHS + "attn " + SELECTIVE + "moe",
            GRAPHS + "mlp --moe-layer-freq ([0]*1+[1]*7)",
            "--bf16 " + MODULES + "attn " + SELECTIVE + "core_attn",
            "--bf16 --attention-dropout 0.1 " + MODULES + "mlp " + SELECTIVE + "core_attn",
            "--bf16 --hidden-dropout 0.1 " + MODULES + "attn " + SELECTIVE + "mlp",
            "--bf16 " + FULL,
            "--bf16 " + MODULES + "mlp " + SELECTIVE + "mlp",
            "--bf16 --cuda-graph-impl full_iteration " + FULL,
            "--num-experts 2 --moe-ffn-hidden-size 512 --bf16 " + MODULES + "moe_router",
        ],
    ),
    "offloads_without_graphs": (
        [OFFLOAD + "--cuda-graph-impl local"],
        [OFFLOAD, OFFLOAD + MODULES + "attn"],
    ),
    "exchange_beside_compute": (
        [
            EXPERTS + "--overlap-moe-expert-parallel-comm",
            OVERLAP + PIPELINE,
            OVERLAP.replace("alltoall", "allgather"),
            OVERLAP.replace("--bf16 ", ""),
            OVERLAP + FULL,
            OVERLAP + "--recompute-num-layers 1",
            OVERLAP + "--recompute-modules moe",
            OVERLAP + SELECTIVE + "moe",
            OVERLAP + "--mtp-num-layers 2",
            OVERLAP + "--moe-shared-expert-intermediate-size 512 --moe-shared-expert-overlap",
            OVERLAP + MODULES + "moe",
            OVERLAP + MODULES + "mlp",
            OVERLAP + "--cuda-graph-impl transformer_engine",
        ],
        [
            OVERLAP,
            OVERLAP.replace("--bf16", "--fp16"),
            OVERLAP + STAGES,
            OVERLAP + SELECTIVE + "moe_act",
            OVERLAP + "--mtp-num-layers 1",
            OVERLAP + "--moe-shared-expert-intermediate-size 512",
            OVERLAP + MODULES + "attn moe_router",
            OVERLAP + "--cuda-graph-impl local --cuda-graph-modules attn",
            EXPERTS + "--cuda-graph-impl transformer_engine",
        ],
    ),
    "exchanges_of_layers": (
        [
            "--bf16 --context-parallel-size 2 --cp-comm-type p2p a2a",
            "--bf16 --context-parallel-size 2 --cp-comm-type" + " p2p" * 7,
        ],
        [
            "--bf16 --context-parallel-size 2 --cp-comm-type p2p",
            "--bf16 --context-parallel-size 2 --cp-comm-type" + " p2p" * 8,
            "--bf16 --cp-comm-type p2p a2a",
        ],
    ),
    "dtypes_need_precision_aware": (
        [SHARDED + f"--{name}-dtype {kind}" for name, kind in [
            ("main-grads", "bf16"), ("main-params", "fp16"), ("exp-avg", "bf16"),
            ("exp-avg-sq", "fp16"),
        ]],
        [
            SHARDED + "--exp-avg-dtype fp32",
            SHARDED + "--use-precision-aware-optimizer --exp-avg-dtype bf16",
        ],
    ),
    "interleaved_needs_whole_groups": (
        [
            "--bf16 --global-batch-size 12 " + STAGES,  # 4 replicas: 3 micro batches
            "--bf16 --global-batch-size 20 " + STAGES,  # 5: one beside a group of 4
            "--bf16 --microbatch-group-size-per-virtual-pipeline-stage 3 " + STAGES,
            "--bf16 --microbatch-group-size-per-virtual-pipeline-stage 25 " + STAGES,
        ],
        [
            "--bf16 --global-batch-size 16 " + STAGES,
            "--bf16 --global-batch-size 20 " + PIPELINE,
            "--bf16 --microbatch-group-size-per-virtual-pipeline-stage 24 " + STAGES,
            "--bf16 --microbatch-group-size-per-virtual-pipeline-stage 5 --global-batch-size 36 "
            + STAGES,
        ],
    ),
    "experts_fold_into_ranks": (
        [EXPERTS + "--expert-model-parallel-size 8 --pipeline-model-parallel-size 4"],
        [EXPERTS + "--expert-model-parallel-size 4 --pipeline-model-parallel-size 4"],
    ),
    "mapping_needs_equal_replicas": (
        [EXPERTS + PIPELINE + "--expert-model-parallel-size 4 --use-tp-pp-dp-mapping"],
        [
            EXPERTS + PIPELINE + "--use-tp-pp-dp-mapping",
            EXPERTS + "--expert-model-parallel-size 4 --use-tp-pp-dp-mapping",
            EXPERTS + PIPELINE + "--expert-model-parallel-size 4",
        ],
    ),
    "replicas_divide_dp": (
        [SHARDED + "--num-distributed-optimizer-instances 3"],
        [
            SHARDED + "--num-distributed-optimizer-instances 4",
            SHARDED + PIPELINE + "--context-parallel-size 2 --cp-comm-type p2p "
            "--num-distributed-optimizer-instances 4",
        ],
    ),
    "replicas_divide_expert_dp": (
        [
            EXPERTS + "--use-distributed-optimizer --expert-model-parallel-size 8 "
            "--num-distributed-optimizer-instances 4"
        ],
        [
            EXPERTS + "--use-distributed-optimizer --expert-model-parallel-size 4 "
            "--num-distributed-optimizer-instances 4"
        ],
    ),
    "virtual_stages_divide_layers": (
        ["--bf16 --pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 3"],
        [
            "--bf16 --pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 4",
            "--bf16 --pipeline-model-parallel-size 2",
            "--bf16 --pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 3 "
            "--decoder-first-pipeline-num-layers 5",
        ],
    ),
    "moe_layer_freq_length": (
        [EXPERTS + "--moe-layer-freq [1]*7", EXPERTS + "--moe-layer-freq [1]*9"],
        [EXPERTS + "--moe-layer-freq [1]*8", "--bf16 --moe-layer-freq [1]*7"],
    ),
}  # fmt: skip


def causes(flags):
    request = Request(cluster=parse_cluster("2x8:h100-sxm"), strict=True)
    return {
        one.cause
        for one in MEGATRON_LM.read(launch(MODEL + flags), request).problems
        if one.verdict == "illegal"
    }


@pytest.mark.parametrize("cause", ROWS)
def test_the_runtime_stops_at_a_launch_and_not_at_its_neighbour(cause):
    breaking, legal = ROWS[cause]
    for flags in breaking:
        assert cause in causes(flags), flags
    for flags in legal:
        assert cause not in causes(flags), flags


def test_every_check_with_a_condition_of_its_own_has_rows():
    own = {one.cause for one in RUN_CHECKS if not isinstance(one, str) and _is_own(one)}
    assert own == set(ROWS)


def _is_own(check):
    """Not one of two options that only need each other."""
    return not check.broken.__qualname__.startswith(("needs.", "excludes.", "forbids."))
