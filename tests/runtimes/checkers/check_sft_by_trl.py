"""Files of TRL by its own parser, into its classes, and what DeepSpeed or Accelerate makes of them.

Needs TRL_PATH, DEEPSPEED_PATH and ACCELERATE_PATH. Not run: the model, data, the engine.
Stand-ins: the GPU.
"""

import sys

import stand_ins
import under_trainers
from judge import judge

stand_ins.checkout("TRL_PATH", "trl")
under_trainers.gpus()

from trl.scripts.sft import make_parser


def accept(launch):
    sys.argv = launch["words"][1:]
    parsed = make_parser().parse_args_and_config(fail_with_unknown_args=False)
    _, arguments, model, _ = parsed[:4]
    if parsed[4:]:
        raise ValueError(f"left over: {parsed[4:]}")
    return under_trainers.understood(launch, arguments) | {
        "recompute": "full" if arguments.gradient_checkpointing else "none",
        "seq_length": arguments.max_length,
        "rank": model.lora_r if model.use_peft else 0,
        "bits": 4 if model.load_in_4bit else 16,
    }


if __name__ == "__main__":
    judge(accept)
