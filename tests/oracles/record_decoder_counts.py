"""Write tests/golden/decoder_counts.json: configurations of transformers and their counts.

Run in an environment with transformers and torch: python -m tests.oracles.record_decoder_counts
"""

import json
import sys

from tests.golden.decoder_counts import PATH
from tests.oracles.decoder_configs import (
    built,
    model_types,
    parameters,
    transformers,
    variants,
    written,
)
from trainplan.costmodel.families.aliases import is_harmless


def recorded(model_type):
    """Each variant's count, and its fields but those that never change one."""
    found = {}
    for name, changes in variants(model_type).items():
        if name != "default":
            config = built(model_type, changes)
            fields = {key: value for key, value in written(config).items() if not is_harmless(key)}
            fields |= {"model_type": config.model_type}
            found[name] = {"parameters": parameters(config), "config": fields}
    return found


def main():
    transformers.logging.set_verbosity_error()
    types = {}
    for model_type in model_types():
        try:
            types[model_type] = recorded(model_type)
        except Exception as error:  # noqa: BLE001
            sys.stderr.write(f"{model_type}: transformers builds none: {error}\n")
    lines = [
        f"    {json.dumps(model_type)}: {{\n"
        + ",\n".join(f"      {json.dumps(name)}: {json.dumps(one)}" for name, one in found.items())
        + "\n    }"
        for model_type, found in types.items()
    ]
    source = f"transformers {transformers.__version__}, meta device"
    PATH.write_text(
        f'{{\n  "source": {json.dumps(source)},\n  "types": {{\n' + ",\n".join(lines) + "\n  }\n}\n"
    )


if __name__ == "__main__":
    main()
