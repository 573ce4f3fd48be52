"""Files of LLaMA-Factory on Megatron-Core by its own parser, with the classes of mcore_adapter.

Needs LLAMA_FACTORY_PATH, MCORE_ADAPTER_PATH (the folder of that name in ROLL) and megatron-core.
Not run: the checks behind the parser, which open the model; any step.
"""

import os
import sys

import stand_ins
from judge import judge

stand_ins.checkout("LLAMA_FACTORY_PATH", "llamafactory", "src")
stand_ins.checkout("MCORE_ADAPTER_PATH", "mcore_adapter", "src")
stand_ins.quiet()
os.environ.update(USE_MCA="1", DISABLE_VERSION_CHECK="1")
import torch._dynamo
import transformers

stand_ins.packages("trl", "av", "gradio", "apex", "fire", "sse_starlette", "tyro")

from llamafactory.hparams import parser

transformers.training_args.is_torch_bf16_gpu_available = lambda: True


def accept(launch):
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):  # it would wait for the others
        del os.environ[name]
    sys.argv = launch["words"][1:]
    _, data, training, _, _ = parser._parse_train_mca_args(parser.read_args())
    assert data.cutoff_len
    return {
        "tp": training.tensor_model_parallel_size,
        "pp": training.pipeline_model_parallel_size,
        "vpp": training.virtual_pipeline_model_parallel_size or 1,
        "cp": training.context_parallel_size,
        "ep": training.expert_model_parallel_size or 1,
        "sequence_parallel": training.sequence_parallel,
        "micro_batch_size": training.per_device_train_batch_size,
        "recompute": training.recompute_granularity or "none",
        "micro_batches": training.gradient_accumulation_steps,
    }


judge(accept)
