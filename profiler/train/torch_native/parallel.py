"""The grid of ranks, and how a decoder is cut over it: DTensor over tp, FSDP2 over dp and cp."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor import parallel as cut

from trainplan.costmodel.base import BYTES_FP32
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.runtimes import RuntimeTraits
from trainplan.profiler.train.torch_native.model import Decoder
from trainplan.profiler.train.torch_native.ring import Ring

NAMES = ("pp", "dp_replicate", "dp", "tp")
"""Dimensions of the grid from the outermost; `dp` has the ranks that share one copy of the weights,
those of one sequence next to each other."""
TYPES: Mapping[str, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16}
"""Of activations and of weights as products read them, by precision."""


@dataclass(frozen=True, slots=True)
class Grid:
    """The ranks of a layout, and the place of this one."""

    mesh: DeviceMesh
    ring: Ring
    pp_rank: int
    replica: int
    """Which sequences it takes."""

    def groups(self) -> dict[str, str]:
        """Name of each group of several ranks, by that of its process group."""
        sizes = zip(NAMES, self.mesh.shape, strict=True)
        named = {self.mesh.get_group(n).group_name: n for n, size in sizes if size > 1}
        if len(self.ring.ranks) > 1:
            named[self.ring.group.group_name] = "cp"
        return named


def degrees(layout: Layout) -> tuple[int, int, int, int]:
    """Sizes of the grid; under ZeRO-0 each replica has a copy of its own."""
    replicas = layout.dp if layout.zero_stage == 0 else layout.dp_replicate
    return layout.pp, replicas, layout.dp // replicas * layout.cp, layout.tp


def grid_of(layout: Layout, rank: int, device: str) -> Grid:
    """Make all groups; every rank of the world calls it.

    Source: ranks from the outermost, pp, dp, cp, tp: torchtitan `distributed/parallel_dims.py`.
    """
    sizes = degrees(layout)
    mesh = init_device_mesh(device, sizes, mesh_dim_names=NAMES)
    _, replicas, shards, tp = sizes
    place = rank // tp % shards
    ring = Ring((rank,), 0, None)
    for first in range(layout.world_size) if layout.cp > 1 else ():
        if first // tp % layout.cp:
            continue
        ranks = tuple(first + tp * number for number in range(layout.cp))
        group = dist.new_group(list(ranks))
        if rank in ranks:
            ring = Ring(ranks, ranks.index(rank), group)
    replica = rank // (tp * shards) % replicas * (shards // layout.cp) + place // layout.cp
    return Grid(mesh, ring, rank // (tp * shards * replicas), replica)


def tied(part: Decoder) -> bool:
    """Are embedding and head one weight?"""
    return bool(part.head and part.embedding and part.head.weight is part.embedding.weight)


def cut_over_tensor_ranks(part: Decoder, mesh: DeviceMesh, layout: Layout) -> None:
    """Heads, MLP and vocabulary; with sequence parallelism norms and residual stream as well.

    A tied weight is cut twice alike, and tied again.

    Source: torchtitan `models/llama3/parallelize.py`, apply_tp;
    `planner/runtimes/fsdp2/train_fsdp2.txt`.
    """
    parallel = layout.sequence_parallel
    stream, whole = Shard(1) if parallel else Replicate(), Replicate()
    plan = {
        "attention": cut.PrepareModuleInput(
            input_layouts=(stream, None), desired_input_layouts=(whole, None)
        ),
        "attention.output": cut.RowwiseParallel(output_layouts=stream),
        "mlp": cut.PrepareModuleInput(input_layouts=stream, desired_input_layouts=whole),
        "mlp.down": cut.RowwiseParallel(output_layouts=stream),
    }
    columns = ("attention.query", "attention.key", "attention.value", "mlp.gate", "mlp.up")
    plan |= {name: cut.ColwiseParallel() for name in columns}
    plan |= {n: cut.SequenceParallel() for n in ("attention_norm", "mlp_norm") if parallel}
    for layer in part.layers.values():
        own = {n: way for n, way in plan.items() if n != "mlp.gate" or layer.mlp.gate is not None}
        cut.parallelize_module(layer, mesh, own, src_data_rank=None)
    ends = {
        "embedding": cut.RowwiseParallel(input_layouts=whole, output_layouts=stream),
        "norm": cut.SequenceParallel() if parallel else None,
        "head": cut.ColwiseParallel(
            input_layouts=stream, output_layouts=Shard(-1), use_local_output=False
        ),
    }
    there = {n: way for n, way in ends.items() if way and getattr(part, n) is not None}
    one = tied(part)
    cut.parallelize_module(part, mesh, there, src_data_rank=None)
    if one and part.head and part.embedding:
        part.head.weight = part.embedding.weight


def shard(
    part: Decoder, mesh: DeviceMesh, layout: Layout, traits: RuntimeTraits, dtype: torch.dtype
) -> None:
    """Every layer is a unit of FSDP2, and the ends are units or lie in that of the whole.

    Weights are freed behind the forward pass under ZeRO-3 alone, never in a pipeline, and never
    ends in the unit of the whole.
    Source: `Sharding.ends_at_root`; torchtitan `distributed/fsdp.py`, reshard_after_forward_policy.
    """
    over = mesh["dp_replicate", "dp"] if mesh["dp_replicate"].size() > 1 else mesh["dp"]
    policy = MixedPrecisionPolicy(
        param_dtype=None if dtype == torch.float32 else dtype,
        reduce_dtype=torch.float32 if traits.gradients.message_bytes == BYTES_FP32 else dtype,
    )
    ends: list[nn.Module | list[nn.Module]] = []
    if not traits.sharding.ends_at_root and not tied(part):
        ends += [part.embedding] if part.embedding is not None else []
        ends += [[part.norm, part.head]] if part.head is not None else []
    freed = layout.zero_stage == 3 and layout.pp == 1
    for unit in (*part.layers.values(), *ends):
        fully_shard(unit, mesh=over, mp_policy=policy, reshard_after_forward=freed)
    root = freed and not traits.sharding.ends_at_root
    fully_shard(part, mesh=over, mp_policy=policy, reshard_after_forward=root)


def local(tensor: torch.Tensor) -> torch.Tensor:
    """What this rank has of a tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def copies(weight: nn.Parameter, mesh: DeviceMesh) -> int:
    """Ranks of a stage that hold the same piece of a weight."""
    pieces = 1
    if isinstance(weight, DTensor):
        sizes = zip(weight.placements, weight.device_mesh.shape, strict=True)
        for placement, size in sizes:
            pieces *= 1 if placement.is_replicate() else size
    return int(mesh.size() // mesh["pp"].size() // pieces)
