"""Ranks along every dimension.

Source: torchtitan/distributed/parallel_dims.py.
"""

from __future__ import annotations

from typing import NamedTuple

from trainplan.planner.runtimes.torchtitan.read.told import Config

PARALLEL = "parallelism"
TP, PP = f"{PARALLEL}.tensor_parallel_degree", f"{PARALLEL}.pipeline_parallel_degree"
CP, EP = f"{PARALLEL}.context_parallel_degree", f"{PARALLEL}.expert_parallel_degree"
REPLICATE = f"{PARALLEL}.data_parallel_replicate_degree"
SHARD = f"{PARALLEL}.data_parallel_shard_degree"
SEQUENCE = f"{PARALLEL}.enable_sequence_parallel"
POLICY = f"{PARALLEL}.fsdp_reshard_after_forward"
TOKENS = "training.num_tokens_per_microbatch_per_dp_rank"
STEP, LENGTH = "training.num_tokens_per_train_step", "training.max_context_length"
IN_PIPE = f"{PARALLEL}.num_pp_microbatches"
GRAPHS = "training.disable_cuda_graphs"
CHECKPOINT = "activation_checkpoint"


class Degrees(NamedTuple):
    """Ranks along every dimension."""

    tp: int
    pp: int
    cp: int
    ep: int
    replicate: int
    shard: int

    @property
    def dp(self) -> int:
        """Replicas."""
        return self.replicate * self.shard


def told_degrees(config: Config) -> Degrees:
    """Degrees as they are told; the shard degree may be -1."""
    return Degrees(*(config.count(key) for key in (TP, PP, CP, EP, REPLICATE, SHARD)))


def filled(config: Config, told: Degrees, world: int | None) -> Degrees | None:
    """Degrees that fill the world; null: the runtime stops, or it cannot be known."""
    shard = told.shard
    rest = told.tp * told.pp * told.cp * told.replicate
    if shard == -1 and world is None:
        says = "the number of ranks is not told, and the shard degree is what they leave: give it"
        config.problem("world_size", "unread", says)
        return None
    if shard == -1:
        shard = (world or 0) // rest
    if shard < 1 or (world is not None and rest * shard != world):
        product = f"dp_replicate {told.replicate} * dp_shard {shard} * cp {told.cp} * tp {told.tp}"
        says = f"{product} * pp {told.pp} is not the {world} ranks: change a degree or the ranks"
        config.problem("world_size", "illegal", says, SHARD)
        return None
    return told._replace(shard=shard)
