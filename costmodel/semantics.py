"""What changes a training beyond how fast it runs: chosen only where asked for, and always said.

Two runs that differ in one of these do not compute the same weights from the same data.
"""

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
                "delayed update",
                "a step computes with weights that lack the update of the step before",
                "Ren et al., ZeRO-Offload, arXiv:2101.06840, one-step delayed parameter update",
            ),
            Change(
                "low-rank gradients",
                "weights move along low-rank projections of their gradients, chosen anew every "
                "200 steps, and have no copy in fp32",
                "Zhao et al., GaLore, arXiv:2403.03507, sections 3 and 4",
            ),
            Change(
                "low-rank scaling",
                "gradients are scaled by norms in a random low-rank space instead of element by "
                "element, and weights have no copy in fp32",
                "Zhu et al., APOLLO, arXiv:2412.05270, section 4",
            ),
            Change(
                "fp8 states",
                "gradients, moments or weights are stored in 8 bits between steps",
                "Peng et al., FP8-LM, arXiv:2310.18313, section 2",
            ),
            Change(
                "bf16 states",
                "weights are updated in bf16, without a copy in fp32, from gradients and moments "
                "that are no wider",
                "Micikevicius et al., arXiv:1710.03740, section 3.1: updates smaller than half a "
                "unit in the last place of a weight in 16 bits are lost",
            ),
            Change(
                "diloco",
                "islands take local steps alone and are joined by an outer optimizer; what a token "
                "teaches then is not priced",
                "Douillard et al., DiLoCo, arXiv:2311.08105, algorithm 1",
            ),
            Change(
                "weights in 8 bits",
                "weights are rounded to 8 bits each time that they are gathered",
                "Wang et al., ZeRO++, arXiv:2306.10013, section 3.1 (qwZ)",
            ),
            Change(
                "gradients in 4 bits",
                "gradients are rounded to 4 bits twice on the way to where they are summed",
                "Wang et al., ZeRO++, arXiv:2306.10013, section 3.3 (qgZ)",
            ),
            Change(
                "tokens in 8 bits",
                "tokens, and gradients on the same way, are rounded to 8 bits before they are sent "
                "to experts",
                "DeepSeek-V3, arXiv:2412.19437, section 3.3.3",
            ),
            Change(
                "dropped tokens",
                "an expert leaves out the tokens beyond its capacity, which pass its layer by",
                "Fedus et al., Switch Transformers, arXiv:2101.03961, section 2.2",
            ),
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
