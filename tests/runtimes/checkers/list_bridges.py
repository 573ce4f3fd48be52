"""What a checkout of Megatron-Bridge builds, as JSON: its own list of architectures, its steps, and
the `model_type`s whose classes it or transformers brings.

Needs MEGATRON_BRIDGE_PATH and MEGATRON_LM_PATH.
"""

import importlib
import json
import sys

import check_megatron_bridge
import transformers
from judge import OUT
from megatron.bridge import AutoBridge

STEPS = sys.argv[1:]

if __name__ == "__main__":
    found = {
        "architectures": AutoBridge.list_supported_models(),
        "model_types": sorted(transformers.CONFIG_MAPPING),
        "steps": [one for one in STEPS if hasattr(importlib.import_module(one), "forward_step")],
    }
    print(json.dumps(found), file=OUT, flush=True)
