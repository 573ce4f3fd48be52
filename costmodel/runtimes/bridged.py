"""What Megatron-Bridge does not build, and degrees that a model it builds has not."""

import numpy as np

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.columns import BoolColumn
from trainplan.costmodel.families import bridge_of
from trainplan.costmodel.job import Job
from trainplan.costmodel.layouts import LayoutTable, rule
from trainplan.costmodel.runtimes.megatron.features import unsupported_feature
from trainplan.costmodel.runtimes.traits.layers import is_hybrid

HYBRID = "Mamba layers, or layers of a mixer or a feed-forward alone"


def unbridged(model: ModelSpec) -> str | None:
    """What of a model neither a bridge nor the vanilla GPT has, as a noun phrase; null: nothing."""
    bridge = bridge_of(model)
    if bridge is not None:
        return bridge.lacks or None
    feature = unsupported_feature(model) or (HYBRID if is_hybrid(model) else None)
    if feature is None or model.model_type is None:
        return feature
    return f"{feature}, nor has it a bridge of model_type {model.model_type!r}"


def _without(degree: str, job: Job, table: LayoutTable) -> BoolColumn:
    bridge = bridge_of(job.model)
    dense = bridge is not None and job.model.moe is None and degree in bridge.dense_ones
    never = bridge is not None and (dense or degree in bridge.ones)
    return np.asarray(never & (getattr(table, degree) > 1))


@rule(
    "vpp",
    "Megatron-Bridge builds this model without virtual stages: use vpp=1",
    "Megatron-Bridge models/hybrid/hybrid_provider.py:291 and kimi/kimi_k3_spec.py:54",
)
def bridge_without_virtual_stages(job: Job, table: LayoutTable) -> BoolColumn:
    """Models of a pattern of layers."""
    return _without("vpp", job, table)


@rule(
    "cp",
    "Megatron-Bridge builds this model without context parallelism: use cp=1",
    "Megatron-Bridge models/gemma_vl/gemma3_vl_provider.py:67 and "
    "mimo_v2_flash/mimo_v2_flash_provider.py:85",
)
def bridge_without_context(job: Job, table: LayoutTable) -> BoolColumn:
    """Models with a bias on scores, or values of another width."""
    return _without("cp", job, table)


@rule(
    "pp",
    "Megatron-Bridge builds this model without a pipeline: use pp=1",
    "Megatron-Bridge models/gemma/gemma4_provider.py:201, Gemma4DenseProvider",
)
def bridge_without_pipeline(job: Job, table: LayoutTable) -> BoolColumn:
    """Dense Gemma 4."""
    return _without("pp", job, table)


BRIDGE_MODEL_RULES = (
    bridge_without_virtual_stages,
    bridge_without_context,
    bridge_without_pipeline,
)
