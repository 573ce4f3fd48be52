"""What a setting needs to start: kinds of GPU, links between them, a release of the runtime."""

from dataclasses import dataclass, replace
from typing import Literal

from trainplan.costmodel import catalog
from trainplan.costmodel.hardware import GpuSpec, NodeGroup
from trainplan.costmodel.job import Job


@dataclass(frozen=True, slots=True)
class Needs:
    """On which machines, and since which release, a value of an option starts."""

    release: str = ""
    """Least release of Megatron Core that has it; empty: any, or another runtime's."""
    architectures: frozenset[str] = frozenset()
    """Those its kernels are built for; empty: any."""
    joined: Literal["", "peers", "nvlink"] = ""
    """GPUs of a node write into each other's memory, over any bus, or over NVLink alone."""
    captures: bool = False
    """Kernels are captured in graphs, as CUDA and HIP do."""

    def missing(self, job: Job) -> str | None:
        """What of the machine keeps a job from it; null: nothing."""
        groups = ((one, catalog.device(one)) for one in job.cluster.groups)
        return next((why for one in groups if (why := self._missing(*one))), None)

    def _missing(self, group: NodeGroup, device: GpuSpec) -> str | None:
        whole = 1 < group.domain_gpus(device) >= group.gpus_per_node
        if self.captures and device.vendor not in CAPTURING:
            return f"{group.gpu} captures no graphs of CUDA or HIP"
        if self.architectures and device.architecture not in self.architectures:
            names = ", ".join(sorted(one.capitalize() for one in self.architectures))
            return f"its kernels run on {names} alone"
        if self.joined == "nvlink" and not (device.link.startswith("NVLink") and whole):
            return "no NVLink joins all GPUs of a node"
        if self.joined == "peers" and not device.reaches_peers:
            return f"{group.gpu} has no access to the memory of other GPUs of its node"
        return None


CAPTURING = frozenset(("nvidia", "amd", "unknown"))
"""Vendors; unknown: of a profile of a GPU that the catalog does not have."""
ANYWHERE = Needs()
USER_BUFFERS = Needs(joined="peers")
"""Source: Transformer Engine `userbuffers` and torch symmetric memory map the buffers of other
ranks into a process; drivers of GeForce GPUs refuse it (NVIDIA/nccl issue 1127)."""
DEEPEP = Needs(
    "0.16 (0.12 by --moe-enable-deepep)", frozenset(("ampere", "hopper", "blackwell")), "nvlink"
)
"""Source: DeepEP README, Requirements: NVLink with peer access between every pair of a node, RDMA
between nodes; Megatron-Bridge @067f987d `training/flex_dispatcher_backend.py`, compute capability
8, 9 or 10."""
BULK_COPIES = replace(DEEPEP, architectures=frozenset(("hopper", "blackwell")))
"""Source: DeepEP @94a9f8f6, branch `hybrid-ep`, `csrc/hybrid_ep/pybind_hybrid_ep.cu` ("Hopper+")
and its kernels' cp.async.bulk, which PTX has from sm_90 on, though Megatron-Bridge lets Ampere
pass; TransformerEngine @d0067d0d `common/ep/ep_backend.cpp:149`."""
NEEDS = {
    "cp_comm_type=a2a": Needs("0.10"),
    "cp_comm_type=all_gather": Needs("0.10"),
    "cuda_graph=partial": Needs("0.18 (0.16 by --cuda-graph-scope)", captures=True),
    "cuda_graph=full_iteration": Needs("0.18", captures=True),
    "moe_dispatcher=deepep": DEEPEP,
    "moe_dispatcher=hybridep": replace(BULK_COPIES, release="0.16 (or the container 25.11)"),
    "moe_dispatcher=ncclep": replace(
        BULK_COPIES, release="0.19, with Transformer Engine built with NVTE_BUILD_WITH_NCCL_EP=1"
    ),
    "delay_wgrad=true": Needs("0.14, with Transformer Engine 2.8"),
    "fp8_attention=true": Needs(architectures=frozenset(("hopper", "blackwell", "rubin"))),
    "gradient_dtype=bf16": Needs("0.12"),
    "microbatch_group_size=double": Needs("0.10"),
    "microbatch_group_size=least": Needs("0.10"),
    "moe_dispatcher=allgather": Needs("0.6"),
    "moment_dtype=bf16": Needs("0.13"),
    "overlap_moe_a2a=true": Needs("0.14, with PyTorch 2.6"),
    "overlap_shared_experts=true": Needs("0.10"),
    "overlap_tp_comm=true": USER_BUFFERS,
}
"""Of values as `--option` takes them, by default or stated.

The release is that of the newest word which launches have for it; in brackets, of other words.

Source of releases: Megatron-LM CHANGELOG.md and tags (HybridEP and --moe-flex-dispatcher-backend
are in core_v0.16.0, not in core_v0.15.3, `moe_router` of --cuda-graph-scope too;
Megatron-Bridge's runs of the container 25.11 have HybridEP; --cuda-graph-modules and the
`full_iteration` of --cuda-graph-impl are in core_v0.18.0, `ncclep` in core_v0.19.0);
docs.nvidia.com/megatron-core/developer-guide/0.16.0, Mixture of Experts, What's New;
Megatron-Bridge skill perf-expert-parallel-overlap (PyTorch).
"""
