"""foundation-model-stack FSDP: torch FSDP1 with bf16 reduction, compiled layers.

Source: foundation-model-stack/fms-fsdp `fms_fsdp/policies/mixed_precision.py` (bf16 parameters and
reduction) and `fms_fsdp/utils/train_utils.py` (SDPA, torch.compile).
"""

from __future__ import annotations

from dataclasses import replace

from trainplan.costmodel.runtimes.base import EAGER_HEAD_BYTES
from trainplan.costmodel.runtimes.llm_foundry_fsdp import LLM_FOUNDRY_FSDP

FMS_FSDP = replace(
    LLM_FOUNDRY_FSDP,
    name="fms-fsdp",
    version="2024",
    kernels="fused",
    ends_at_root=True,  # fms_fsdp/policies/wrapping.py, get_wrapper
    head_bytes_per_logit=EAGER_HEAD_BYTES,
    # foundation-model-stack fms/modules/attention.py: keys_e, values_e
    footprint=replace(LLM_FOUNDRY_FSDP.footprint, repeats_key_values=True),
)
