"""Bytes outside the tensors of the model."""

from __future__ import annotations

from costmodel.units import GB

CONTEXT_BYTES = 0.55 * GB
"""CUDA context and libraries of one process.

Source: ai-dynamo/aiconfigurator system files, `other_mem`; agrees with nvidia-smi on idle jobs.
"""
COMMUNICATOR_BYTES = 0.4 * GB
"""NCCL buffers. Source: ai-dynamo/aiconfigurator system files, `nccl_mem` (0.34-0.41 GB)."""
RESERVE_FACTOR = 1.05
"""Reserved by the caching allocator over allocated at the peak.

Source: 24 measured B200 runs: 1.028 to 1.065.
"""
