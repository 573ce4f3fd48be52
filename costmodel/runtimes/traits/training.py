"""What a runtime can train beside every weight, and how it holds what is frozen and adapted."""

from __future__ import annotations

from dataclasses import dataclass

from trainplan.costmodel.architecture import Method


@dataclass(frozen=True, slots=True)
class Adapting:
    """Adapters and frozen weights of a runtime; by default it trains every weight or nothing."""

    methods: tuple[Method, ...] = ()
    """What it takes of `Trained.method`."""
    joins: bool = False
    """Queries, keys and values are one matrix with one adapter, and so are gate and up."""
    experts: bool = False
    """Routed experts may have adapters: the local ones of a rank share one."""
    cuts: bool = False
    """Adapters are cut over tensor ranks."""
    plain_replicas: bool = False
    """Where nothing is sharded adapters and their gradients are in 16 bits, without a master
    weight, and their moments in fp32."""


NOTHING = Adapting()
