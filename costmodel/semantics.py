"""What changes a training beyond how fast it runs: chosen only where asked for, and always said.

Two runs that differ in one of these do not compute the same weights from the same data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that a run may do to its training."""

    name: str
    says: str
    """What changes, to stand behind "changes the training:"."""
    source: str


CHANGES: Mapping[str, Change] = MappingProxyType(
    {
        one.name: one
        for one in (
            Change(
                "adapters",
                "low-rank adapters are trained, every weight of the model is frozen",
                "Hu et al., LoRA, arXiv:2106.09685, section 4.1",
            ),
            Change(
                "4-bit weights",
                "low-rank adapters are trained, frozen matrices are rounded to 4 bits",
                "Dettmers et al., QLoRA, arXiv:2305.14314, section 3",
            ),
            Change(
                "frozen layers",
                "frozen layers, with layer 0 the embedding too, keep the weights they have",
                "derived: what has no gradient does not move",
            ),
        )
    }
)
"""By name. To add one: one entry here, and its name where the choice is declared."""
