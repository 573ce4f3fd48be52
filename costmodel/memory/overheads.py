"""Bytes outside the tensors of the model."""

from __future__ import annotations

from trainplan.costmodel import catalog
from trainplan.costmodel.base import GIB
from trainplan.costmodel.runtimes.base import RuntimeTraits
from trainplan.costmodel.spec import Job

RESERVE_FACTOR = 1.05
"""Reserved by the caching allocator over allocated at the peak.

Source: 24 measured B200 runs: 1.028 to 1.065.
"""
WORKSPACE_BYTES, OLD_WORKSPACE_BYTES = GIB / 32, GIB / 128
"""Scratch memory of cuBLAS for one library from Hopper on (32 MiB), and before (8 MiB).

Source: PyTorch notes on CUDA semantics, default of `CUBLAS_WORKSPACE_CONFIG`; Transformer Engine
`get_cublas_workspace_size_bytes`.
"""
OLD_ARCHITECTURES = frozenset({"volta", "turing", "ampere", "ada"})
"""NVIDIA's before Hopper, as the catalog names them."""


def workspace_bytes(job: Job, traits: RuntimeTraits) -> float:
    """Scratch memory of all libraries on the GPU that takes most of it."""
    names = {catalog.device(group).architecture for group in job.cluster.groups}
    each = OLD_WORKSPACE_BYTES if names <= OLD_ARCHITECTURES else WORKSPACE_BYTES
    return traits.footprint.workspaces * each
