"""Published ways to use host, drives and links, by name.

One without a living runtime (`Method.runtime` is none) is priced as a method and never exported.
"""

from trainplan.costmodel.lanes.methods import (
    deep_optimizer_states,
    fuyou,
    harmony,
    patrickstar,
    pipeoffload,
    protrain,
    se_moe,
    ssdtrain,
    twin_flow,
    zero_infinity,
    zero_offload,
)
from trainplan.costmodel.lanes.methods.method import Kept, Method

METHODS = {
    method.name: method
    for method in (
        zero_offload.METHOD,
        zero_offload.DELAYED,
        twin_flow.METHOD,
        deep_optimizer_states.METHOD,
        zero_infinity.METHOD,
        fuyou.METHOD,
        ssdtrain.METHOD,
        pipeoffload.METHOD,
        protrain.METHOD,
        patrickstar.METHOD,
        harmony.METHOD,
        se_moe.METHOD,
    )
}

__all__ = ["METHODS", "Kept", "Method"]
