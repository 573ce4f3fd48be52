"""Runtimes by the `runtime` values of measured runs. To add one: write its file, add one line."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from costmodel.errors import unknown_name
from costmodel.runtimes.base import RuntimeTraits
from costmodel.runtimes.megatron_lm import MEGATRON_LM

RUNTIMES: Mapping[str, RuntimeTraits] = MappingProxyType({"megatron-lm": MEGATRON_LM})


def runtime(name: str) -> RuntimeTraits:
    """Traits of a runtime.

    Raises:
        CatalogError: No such runtime; the message names the nearest.
    """
    if name not in RUNTIMES:
        raise unknown_name("runtime", name, RUNTIMES, f"known: {', '.join(RUNTIMES)}")
    return RUNTIMES[name]
