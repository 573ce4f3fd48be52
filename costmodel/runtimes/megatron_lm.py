"""Megatron-LM: Megatron Core as `plan export` starts it.

Files and lines as in `costmodel.runtimes.megatron.core`.
"""

from dataclasses import replace

from trainplan.costmodel.runtimes.adapters import (
    adapters_leave_experts_whole,
    adapters_leave_fsdp_out,
)
from trainplan.costmodel.runtimes.megatron.core import MEGATRON_CORE
from trainplan.costmodel.runtimes.megatron.gtp_rules import GTP_RULES
from trainplan.costmodel.runtimes.megatron.options import (
    gathers_overlap_with_reductions,
    gathers_separately_or_with_reductions,
)
from trainplan.costmodel.runtimes.megatron.settings import LM_STATED
from trainplan.costmodel.runtimes.traits import Adapting

MEGATRON_LM = replace(
    MEGATRON_CORE,
    name="megatron-lm",
    # as exported; else distributed_data_parallel.py:517 waits in each rank
    sharding=replace(MEGATRON_CORE.sharding, gathers_separately=True, by_matrix=True),
    # A:1444, --hybrid-context-parallel
    communication=replace(MEGATRON_CORE.communication, context_by_sequence=True),
    stated=LM_STATED,
    # those of ms-swift, which adds them: mcore-bridge @f020e47 tuners/lora.py
    adapting=Adapting(methods=("lora",), joins=True, experts=True, local=True),
    rules=(
        *(
            gathers_separately_or_with_reductions if one is gathers_overlap_with_reductions else one
            for one in MEGATRON_CORE.rules
        ),
        adapters_leave_fsdp_out,
        adapters_leave_experts_whole,
        *GTP_RULES,
    ),
    # A, --attention-dropout and --hidden-dropout, both 0.1; recipes of gated models set 0
    recipe=replace(MEGATRON_CORE.recipe, ungated_dropout=True),
)
