"""Keys of the file that `train_transformers.py` reads: its own, and those of TrainingArguments.

Source: huggingface/transformers v5.24.0, below `src/transformers`: `training_args.py`,
`distributed/configuration_utils.py` (DistributedConfig), `trainer.py` and `trainer_optimizer.py`;
accelerate 1.15.0 `parallelism_config.py`; `train_transformers.txt`.
"""

from collections.abc import Mapping
from types import MappingProxyType

from trainplan.planner.runtimes.keys import Option

RUNTIME = "transformers"
VERSION = "5.24.0"
RECORDED = "transformers/options.json"
MODULE, FILE, CONFIG = "train_transformers", "train.yaml", "--config"
MODEL, LENGTH = Option("model_name_or_path", ""), Option("max_length", 4096)
DATA, OUTPUT = Option("data", "random"), Option("output_dir", "trainer_output")
DTYPE, COMPUTE = Option("dtype", "float32"), Option("compute_dtype", "bfloat16")
ATTENTION = Option("attn_implementation", "sdpa")
TF32, COMPILE = Option("tf32", default=False), Option("torch_compile", default=False)
LIGER = Option("use_liger_kernel", default=False)
MICRO = Option("per_device_train_batch_size", 8)
ACCUMULATED = Option("gradient_accumulation_steps", 1)
CHECKPOINTING = Option("activation_checkpointing", default=False)
EVERY = Option("activation_checkpointing_kwargs.every_n_layers", 1)
BUCKET = Option("ddp_bucket_cap_mb", 0)
SYNC = Option("accelerator_config.gradient_accumulation_kwargs.sync_each_batch", default=False)
FSDP, VERSION_OF = Option("fsdp", default=False), Option("fsdp_config.version", 2)
RESHARDS = Option("fsdp_config.reshard_after_forward", default=True)
REPLICATE, SHARD, CP = (
    Option(f"mesh.{name}_size", 1) for name in ("dp_replicate", "dp_shard", "cp")
)
EXCHANGE = Option("cp_comm_strategy", "allgather")
CUT_REPLICATE, CUT_SHARD, TP, EP = (
    Option(f"distributed_config.{name}_size", 1) for name in ("dp_replicate", "fsdp", "tp", "ep")
)
CASTS = Option("distributed_config.fsdp_mixed_precision", default=False)
OPTIM, SETTINGS = Option("optim", "adamw_torch_fused"), Option("optim_args", "")
TARGETS = Option("optim_target_modules", "")
LORA, ALPHA, MODULES = (
    Option("lora_r", 0),
    Option("lora_alpha", 0),
    Option("lora_target_modules", ""),
)
LISTS = "adamw_torch"
"""AdamW on lists of tensors."""
ADAPTERS = "paged_adamw_32bit"
"""AdamW with moments in fp32 whatever its weights: of bitsandbytes."""
LAYERWISE = "_layerwise"
"""End of the name of an optimizer that updates a layer by itself."""
STRATEGIES: Mapping[str, str] = MappingProxyType({"all_gather": "allgather", "p2p": "alltoall"})
"""As those of Accelerate."""
LOW_RANK: Mapping[str, str] = MappingProxyType(
    {
        "galore": "rank={rank},update_proj_gap=200,scale=0.25",
        "galore8bit": "rank={rank},update_proj_gap=200,scale=0.25",
        "apollo": "rank={rank},proj=random,scale_type=channel,scale=1,update_proj_gap=200",
        "apollo-mini": "rank=1,proj=random,scale_type=tensor,scale=128,update_proj_gap=200",
    }
)
"""`optim_args` of optimizers of low rank. Source: `_get_galore_optimizer`, `_get_apollo_optimizer`;
zhuhanqing/APOLLO README, APOLLO-Mini: rank 1, scale 128, scale_type tensor."""
