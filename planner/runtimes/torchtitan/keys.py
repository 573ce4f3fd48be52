"""Keys of a config: what the exporter sets and the reader reads, each with its default.

Source: pytorch/torchtitan, commit `write.COMMIT`, torchtitan/config/configs.py and trainer.py,
Trainer.Config.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from trainplan.planner.runtimes.keys import Option

T = TypeVar("T")

SECTIONS: Mapping[str, str] = MappingProxyType(
    {
        "training": "TrainingConfig",
        "parallelism": "ParallelismConfig",
        "compile": "CompileConfig",
        "fault_tolerance": "FaultTolerance",
        "comm": "CommConfig",
    }
)
"""Class of a section."""
MODEL, CHECKPOINT, LOSS = "model_spec", "activation_checkpoint", "loss"
"""Keys of the config itself."""


def _key(name: str, default: T) -> Option[T]:
    """Limits of numbers are the reader's own: a degree may be -1 where its default is."""
    return Option(name, default, least=-(1 << 63), most=1 << 63)


TOKENS = _key("training.num_tokens_per_microbatch_per_dp_rank", 16384)
STEP = _key("training.num_tokens_per_train_step", -1)
LENGTH = _key("training.max_context_length", 2048)
STEPS = _key("training.steps", 10000)
OFFLOADS = _key("training.enable_cpu_offload", default=False)
NO_GRAPHS = _key("training.disable_cuda_graphs", default=False)
PRECISION = _key("training.mixed_precision_param", "bfloat16")
STORED = _key("training.dtype", "float32")
REPLICATE = _key("parallelism.data_parallel_replicate_degree", 1)
SHARD = _key("parallelism.data_parallel_shard_degree", -1)
POLICY = _key("parallelism.fsdp_reshard_after_forward", "default")
TP = _key("parallelism.tensor_parallel_degree", 1)
SEQUENCE = _key("parallelism.enable_sequence_parallel", default=True)
SPMD = _key("parallelism.spmd_backend", "spmd_types")
PP = _key("parallelism.pipeline_parallel_degree", 1)
MODULES: Option[Any] = _key("parallelism.module_fqns_per_model_part", None)
FIRST_LESS = _key("parallelism.pipeline_parallel_first_stage_less_layers", 1)
LAST_LESS = _key("parallelism.pipeline_parallel_last_stage_less_layers", 1)
PER_STAGE: Option[Any] = _key("parallelism.pipeline_parallel_layers_per_stage", None)
SCHEDULE = _key("parallelism.pipeline_parallel_schedule", "1F1B")
SCHEDULE_CSV = _key("parallelism.pipeline_parallel_schedule_csv", "")
IN_PIPE = _key("parallelism.num_pp_microbatches", 1)
CP = _key("parallelism.context_parallel_degree", 1)
EP = _key("parallelism.expert_parallel_degree", 1)
COMPILE = _key("compile.enable", default=False)
COMPONENTS = _key("compile.components", ["model", "loss"])
JOINS = _key("fault_tolerance.enable", default=False)
METHOD = _key("fault_tolerance.semi_sync_method", "")
ISLANDS = _key("fault_tolerance.group_size", 0)
LEAST = _key("fault_tolerance.min_replica_size", 1)
ISLAND = _key("fault_tolerance.replica_id", 0)
EVERY = _key("fault_tolerance.sync_steps", 5)
QUANTIZES = _key("fault_tolerance.should_quantize", default=False)
FRAGMENTS = _key("fault_tolerance.num_fragments", 1)
DELAY = _key("fault_tolerance.fragment_sync_delay", 0)
MIXED = _key("fault_tolerance.fragment_update_alpha", 0.0)
JOINED_BY = _key("fault_tolerance.process_group", "gloo")
JOINED_WITHIN = _key("fault_tolerance.process_group_timeout_ms", 10000)
TRAINED_WITHIN = _key("comm.train_timeout_seconds", 100)
ASYNC_TP = _key("compile.enable_async_tensor_parallel", default=False)
