"""Commands of ms-swift by its own SftArguments, and what DeepSpeed or Accelerate makes of them.

Needs MS_SWIFT_PATH, DEEPSPEED_PATH and ACCELERATE_PATH. Not run: the model, data, the engine.
Stand-ins: the GPU; the model; packages that it imports and does not use here.
"""

import json
import os
from pathlib import Path

import stand_ins
import under_trainers
from judge import judge

stand_ins.checkout("MS_SWIFT_PATH", "swift")
stand_ins.packages("aiohttp", "liger_kernel", "oss2", "cpm_kernels", "rouge", "nltk")
under_trainers.gpus()

from swift.arguments import SftArguments
from swift.utils import parse_args

SHAPE = {
    "model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "torch_dtype": "bfloat16",
    "max_position_embeddings": 131072,
}  # fmt: skip
"""Of a folder that stands for the model, which it would download."""


NAMED = ("--model_type", "qwen3", "--template", "qwen3")


def accept(launch):
    os.chdir(launch["folder"])
    Path("model").mkdir(exist_ok=True)
    Path("model", "config.json").write_text(json.dumps(SHAPE), "utf-8")
    words = launch["words"][2:]
    words[words.index("--model") + 1] = "model"
    arguments, left = parse_args(SftArguments, [*words, *NAMED])
    if left:
        raise ValueError(f"left over: {left}")
    understood = under_trainers.understood(launch, arguments.training_args)
    ranks = arguments.sequence_parallel_size
    return understood | {
        "cp": ranks,
        "dp": understood["dp"] // ranks,
        "recompute": "full" if arguments.gradient_checkpointing else "none",
        "seq_length": arguments.max_length,
        "rank": arguments.lora_rank if arguments.tuner_type == "lora" else 0,
        "bits": arguments.quant_bits or 16,
    }


if __name__ == "__main__":
    judge(accept)
