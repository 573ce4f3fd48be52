"""Ranks along every dimension, and the cluster they run on.

Source: torchtitan/distributed/parallel_dims.py.
"""

from __future__ import annotations

from typing import NamedTuple

from trainplan.costmodel.spec import ClusterSpec
from trainplan.costmodel.spec.cluster import parse_cluster
from trainplan.planner.readers.reading import Asked, Field, Launch, Word
from trainplan.planner.readers.torchtitan.told import Config

ASSUMED_GPU = "h100-sxm"
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


def world_size(launch: Launch, asked: Asked) -> int | None:
    """Ranks the launch starts, where it says so."""
    told = [_whole(word) for word in (launch.nodes, launch.gpus_per_node)]
    if told[0] and told[1]:
        return told[0] * told[1]
    return asked.cluster.num_gpus if asked.cluster else None


def _whole(word: Word | None) -> int | None:
    plain = word is not None and not word.unresolved and word.text.isdecimal()
    return int(word.text) if word is not None and plain and len(word.text) < 10 else None


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


def cluster_of(config: Config, launch: Launch, asked: Asked, ranks: int) -> ClusterSpec | None:
    """The cluster asked about, or so many GPUs of a common kind."""
    if asked.cluster is not None:
        if asked.cluster.num_gpus != ranks:
            says = (
                f"the launch runs {ranks} ranks and the cluster has {asked.cluster.num_gpus} GPUs"
            )
            config.problem("world_size", "illegal", f"{says}: make them equal")
            return None
        return asked.cluster
    nodes, each = _whole(launch.nodes), _whole(launch.gpus_per_node)
    told = {"cluster.num_nodes": launch.nodes, "cluster.gpus_per_node": launch.gpus_per_node}
    for name, word in told.items():
        if word is not None and (number := _whole(word)) is not None:
            config.fields.append(Field(name, number, "stated", word.text, word.place))
    if nodes is None or each is None or nodes * each != ranks:
        nodes, each = (ranks // 8, 8) if ranks % 8 == 0 else (1, ranks)
    config.fields.append(Field("cluster.gpu", ASSUMED_GPU, "assumed"))
    return parse_cluster(f"{nodes}x{each}:{ASSUMED_GPU}")
