"""Names that help pages list, and nothing that must be imported for them.

Written by docs/generator/generate.py (`make docs`) from the registries: edit those, not this file.
"""

from __future__ import annotations

from trainplan.cli.options.plugged import with_plugins

LARGEST_SIZE = 1073741824
DEFAULT_RUNTIME = "megatron-lm"
PRECISIONS = (
    "bf16",
    "fp16",
    "fp32",
    "tf32",
    "fp8",
    "mxfp8",
    "nvfp4",
)
PACKINGS = (
    "none",
    "greedy",
    "balanced",
)
OPTIMIZERS = with_plugins(
    "optimizers",
    (
        "adamw",
        "adamw8bit",
        "adafactor",
        "lion",
        "sgd",
        "muon",
        "dist-muon",
        "soap",
        "shampoo",
        "galore",
        "galore8bit",
        "apollo",
        "apollo-mini",
    ),
)
STATE_PRECISIONS = (
    "o0",
    "o1",
    "o2",
    "o3",
)
RUNTIMES = with_plugins(
    "runtimes",
    (
        "megatron-lm",
        "megatron-bridge",
        "nemo",
        "megatron-deepspeed",
        "megatron-zero-bubble",
        "torchtitan",
        "accelerate",
        "deepspeed",
        "arctic-training",
        "fsdp2",
        "llm-foundry-fsdp",
        "fms-fsdp",
        "maxtext",
        "nanotron",
        "torch-eager",
        "zero-offload-delayed",
        "deep-optimizer-states",
        "fuyou",
        "ssdtrain",
        "protrain",
        "patrickstar",
        "harmony",
        "se-moe",
    ),
)
RUNTIME_OPTIONS = (
    "attention=flash|unfused",
    "dropout=true|false",
    "cross_entropy=unfused|jit|fused",
    "compile=true|false",
    "cuda_graph=none|partial|full_iteration",
    "overlap_grad_reduce=true|false",
    "overlap_param_gather=true|false",
    "overlap_tp_comm=true|false",
    "overlap_moe_a2a=true|false",
    "moe_dispatcher=alltoall|deepep|hybridep",
    "gradient_dtype=fp32|bf16",
    "moment_dtype=fp32|bf16|fp16|fp8",
    "offload_activation_layers=N",
    "cp_comm_type=p2p|a2a|all_gather",
    "liger=0.5|0.6",
    "routing=balanced|random|zipf:ALPHA|FILE",
    "moe_capacity_factor=N",
    "moe_pad_to_capacity=true|false",
    "moe_token_drop_policy=probs|position",
    "moe_router_padding=true|false",
)
SCHEDULES = with_plugins(
    "schedules",
    (
        "1f1b",
        "interleaved",
        "zb-1p",
        "zb-2p",
        "zb-h1",
        "zb-h2",
        "zb-auto",
        "zb-v",
        "v-half",
        "v-min",
        "dualpipe-v",
        "hanayo",
        "gpipe",
        "breadth-first",
        "grouped-interleaved",
        "2bp",
        "chimera",
        "seq-1f1b",
        "vocab-1f1b",
        "vocab-1f1b-2",
    ),
)
OBJECTIVES = (
    "time",
    "memory",
    "cost",
    "energy",
    "gpus",
    "context",
)
LEVELS = (
    "safe",
    "all",
    "none",
)
KNOBS = (
    "gpus",
    "global_batch_size",
    "seq_length",
    "nic",
    "gpu",
    "precision",
    "memory_gib",
)
EXPORTERS = with_plugins(
    "exporters",
    (
        "megatron-lm",
        "megatron-bridge",
        "megatron-zero-bubble",
        "torchtitan",
        "deepspeed",
        "arctic-training",
        "accelerate",
        "fsdp2",
    ),
)
CHECKOUTS = (
    "megatron-lm",
    "megatron-bridge",
    "megatron-zero-bubble",
    "torchtitan",
    "deepspeed",
    "arctic-training",
    "accelerate",
)
KEY_TABLES = (
    "ms-swift",
    "verl",
    "nemo-rl",
    "llama-factory",
    "primus",
    "flagscale",
)
LAUNCHERS = with_plugins(
    "launchers",
    (
        "torchrun",
        "torchrun-c10d",
        "slurm",
        "mpi",
        "kubernetes",
        "pytorchjob",
        "skypilot",
    ),
)
TRIAL_LAUNCHERS = (
    "torchrun",
    "slurm",
    "command",
)
MEASUREMENTS = (
    "memory",
    "layer",
    "gemm",
    "attention",
    "embedding",
    "head",
    "optimizer",
    "stream",
    "collectives",
    "p2p",
    "overlap",
    "links",
    "copies",
    "cpu_adam",
    "drive",
    "offloaded_step",
    "power",
)
LAUNCH_KINDS = (
    "slurm",
    "torchrun",
)
PROFILE_FORMATS = with_plugins(
    "importers",
    (
        "aceso",
        "galvatron",
        "metis",
        "nccl-tests",
        "sailor",
        "simumax",
    ),
)
