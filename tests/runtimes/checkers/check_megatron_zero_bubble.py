"""Launches of the zero-bubble fork by its own parser, validator and configuration.

Needs ZERO_BUBBLE_PATH. Not run: the model, its schedules, kernels, memory.
"""

import importlib.metadata
import sys

import stand_ins
from judge import judge

stand_ins.checkout("ZERO_BUBBLE_PATH", "megatron")
stand_ins.quiet()
stand_ins.gpu(9)

import torch  # before the stand-ins, which it would take for the packages

stand_ins.packages(
    "megatron.core.transformer.custom_layers.transformer_engine",
    "apex",
    "transformer_engine",
    "amp_C",
    "nvidia_resiliency_ext",
    "one_logger",
    "wandb",
    "zstandard",
    "nltk",
    "pulp",
    "flash_attn",
    "tensorstore",
    "zarr",
    "mip",
    "cvxpy",
    "pynvml",
)
version = importlib.metadata.version
importlib.metadata.version = lambda name: (
    "1.8.0" if name in ("transformer-engine", "transformer_engine") else version(name)
)

from megatron.training import arguments


def accept(launch):
    sys.argv = launch["words"]
    args = arguments.validate_args(arguments.parse_args(), {"tokenizer_type": "GPT2BPETokenizer"})
    arguments.core_transformer_config_from_args(args)
    dp = args.data_parallel_size
    return {
        "tp": args.tensor_model_parallel_size,
        "pp": args.pipeline_model_parallel_size,
        "vpp": args.virtual_pipeline_model_parallel_size or 1,
        "cp": args.context_parallel_size,
        "dp": dp,
        "ep": args.expert_model_parallel_size,
        "sequence_parallel": args.sequence_parallel,
        "micro_batches": args.global_batch_size // (args.micro_batch_size * dp),
    }


if __name__ == "__main__":
    judge(accept)
