"""Whose parallelism a runtime runs: Megatron's, or torch's own."""

from __future__ import annotations

from typing import Literal

Library = Literal["megatron-core", "torch"]
OF_TORCH = frozenset(
    {"torchtitan", "accelerate", "fsdp2", "llm-foundry-fsdp", "fms-fsdp", "torch-eager"}
)


def library_of(runtime: str) -> Library:
    """The library that cuts a model as the runtime of that name does.

    Those that have pipelines, experts and tensor parallelism of their own follow Megatron's.
    """
    return "torch" if runtime in OF_TORCH else "megatron-core"
