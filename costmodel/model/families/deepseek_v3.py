"""DeepSeek-V3 and R1, Kimi K2: DeepSeek-V2 with sigmoid routing and a balancing bias.

Source: transformers `DeepseekV3Config`; arXiv:2412.19437, section 2; arXiv:2507.20534, section 2.3.
"""

from __future__ import annotations

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.model.families.deepseek_v2 import deepseek_v2
from trainplan.costmodel.model.families.reader import HfConfig
from trainplan.costmodel.model.families.routing import BALANCED_WITHOUT_LOSS

DEFAULTS = {
    "scoring_func": "sigmoid",
    "topk_method": BALANCED_WITHOUT_LOSS,
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.5,
}


def deepseek_v3(config: HfConfig) -> ModelSpec:
    """Read a DeepSeek-V3 or a Kimi K2."""
    return deepseek_v2(config.with_defaults(DEFAULTS))
