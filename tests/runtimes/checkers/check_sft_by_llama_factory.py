"""Files of LLaMA-Factory by its own parser of arguments, and what DeepSpeed or Accelerate makes.

Needs LLAMA_FACTORY_PATH, DEEPSPEED_PATH and ACCELERATE_PATH. Not run: the model, data, the engine.
Stand-ins: the GPU; versions of packages, which it checks, are not those that it wants.
"""

import sys

import stand_ins
import under_trainers
from judge import judge

stand_ins.checkout("LLAMA_FACTORY_PATH", "llamafactory", "src")
under_trainers.gpus()

from llamafactory.hparams import parser

parser.check_version = lambda *_, **__: None
parser.is_torch_bf16_gpu_available = lambda: True


def accept(launch):
    sys.argv = launch["words"][1:]
    model, data, arguments, tuning, _ = parser.get_train_args()
    rows = data.cutoff_len + 1 if data.packing else data.cutoff_len  # one less, then padded
    return under_trainers.understood(launch, arguments) | {
        "recompute": "none" if model.disable_gradient_checkpointing else "full",
        "seq_length": rows,
        "rank": tuning.lora_rank if tuning.finetuning_type == "lora" else 0,
        "bits": model.quantization_bit or 16,
    }


if __name__ == "__main__":
    judge(accept)
