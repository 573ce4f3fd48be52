"""foundation-model-stack FSDP: torch FSDP1 with bf16 reduction, compiled layers.

Source: foundation-model-stack/fms-fsdp `fms_fsdp/policies/mixed_precision.py` (bf16 parameters and
reduction) and `fms_fsdp/utils/train_utils.py` (SDPA, torch.compile).
"""

from dataclasses import replace

from trainplan.costmodel.runtimes.fsdp import FSDP1

FMS_FSDP = replace(
    FSDP1,
    name="fms-fsdp",
    version="2024",
    # fms_fsdp/policies/wrapping.py, get_wrapper
    sharding=replace(FSDP1.sharding, ends_at_root=True),
    # fms_fsdp/policies/ac_handler.py, a share
    recompute=replace(FSDP1.recompute, layers="some"),
    # foundation-model-stack fms/modules/attention.py: keys_e, values_e
    footprint=replace(FSDP1.footprint, repeats_key_values=True),
)
