"""Which options of expert capacity Megatron Core takes.

Files and lines as in `costmodel.runtimes.megatron.core`.
"""

import numpy as np

from trainplan.costmodel.columns import BoolColumn
from trainplan.costmodel.job import Job
from trainplan.costmodel.layouts import LayoutTable, rule


@rule(
    "ep",
    "moe_pad_to_capacity excludes moe_dispatcher=deepep: leave one of them out",
    "Megatron-LM transformer_config.py:1755",
)
def deepep_pads_nothing(job: Job, table: LayoutTable) -> BoolColumn:
    """DeepEP has no buffers of fixed size."""
    return np.full(len(table), pads(job) and job.options.moe_dispatcher == "deepep")


@rule(
    "ep",
    "moe_router_padding rounds rows up for quantized products: choose precision fp8, mxfp8 or "
    "nvfp4, or leave it out",
    "Megatron-LM transformer_config.py:2649",
)
def router_padding_needs_quantized_products(job: Job, table: LayoutTable) -> BoolColumn:
    """Products in 16 bits take any number of rows."""
    enabled = job.options.moe_router_padding is True and job.model.moe is not None
    return np.full(len(table), enabled and not job.training.casts)


def pads(job: Job) -> bool:
    """Does every expert get its capacity?"""
    return job.options.moe_pad_to_capacity is True and job.model.moe is not None


CAPACITY_RULES = (deepep_pads_nothing, router_padding_needs_quantized_products)
