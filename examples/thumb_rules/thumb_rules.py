"""All rules, in the order of the tables."""

import bridge_thumbs
import megatron_thumbs
import torch_thumbs

RULES = (*megatron_thumbs.RULES, *bridge_thumbs.RULES, *torch_thumbs.RULES)
