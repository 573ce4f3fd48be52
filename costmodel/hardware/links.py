"""Measured links between nodes, and the order of nodes chosen for them."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, NonNegativeFloat, PositiveFloat, model_validator

from trainplan.costmodel.spec import Spec

MOST_LINKED_NODES = 1024
"""A matrix of more nodes does not fit in a configuration file."""

NODE_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$"
NodeName = Annotated[str, Field(pattern=NODE_NAME)]
"""A host name: letters, digits, dots, hyphens and underscores."""


class LinkSpec(Spec):
    """Bandwidth between every two nodes, as measured.

    The fastest link counts as the NICs of the nodes; the others are slower in proportion.
    """

    nodes: tuple[NodeName, ...] = Field(min_length=1, max_length=MOST_LINKED_NODES)
    """Host names, in the order they are given to the job today."""
    gb_per_s: tuple[tuple[NonNegativeFloat, ...], ...]
    """GB/s from the node of the row to the node of the column; the diagonal is not read, and of
    both directions the slower counts."""
    node_speed: tuple[PositiveFloat, ...] | None = None
    """Speed of each node's GPUs over that of the others, 1 for a healthy node; null: all alike."""

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        count = len(self.nodes)
        if len(set(self.nodes)) != count:
            twice = sorted({name for name in self.nodes if self.nodes.count(name) > 1})
            raise ValueError(f"nodes names {', '.join(twice)} twice: give every node once")
        if len(self.gb_per_s) != count or any(len(row) != count for row in self.gb_per_s):
            raise ValueError(f"gb_per_s must have {count} rows of {count} numbers, one per node")
        for i, row in enumerate(self.gb_per_s):
            dead = [self.nodes[j] for j, rate in enumerate(row) if rate == 0 and i != j]
            if dead:
                raise ValueError(
                    f"gb_per_s from {self.nodes[i]} to {dead[0]} is 0: give a number above 0, or "
                    "leave a node that cannot be reached out of the cluster"
                )
        if self.node_speed is not None and len(self.node_speed) != count:
            raise ValueError(f"node_speed must have {count} numbers, one per node")
        if self.node_speed is not None and max(self.node_speed) > 1:
            raise ValueError("node_speed is at most 1, the speed of a healthy node")
        return self


class Placement(Spec):
    """Which node holds which ranks, chosen on measured links."""

    nodes: tuple[NodeName, ...]
    """Names in rank order: the first holds the lowest ranks."""
    step_time_s: float
    """In this order; with all links as fast as the fastest it is that of the estimate."""
    lower_bound_s: float
    """No order of the nodes has a smaller step time."""
    gap_fraction: float
    """(step time - lower bound) / step time."""
    identity_step_time_s: float
    """In the order of the cluster file."""

    @property
    def gain_fraction(self) -> float:
        """Step time saved over the order of the cluster file.

        Source: seconds saved over the seconds of the old order: (old - new) / old = 1 - new / old.
        """
        return 1 - self.step_time_s / self.identity_step_time_s
