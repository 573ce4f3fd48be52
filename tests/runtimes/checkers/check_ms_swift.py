"""Launches of `megatron sft` of ms-swift by its own parser, `MegatronSftArguments`.

Needs MS_SWIFT_PATH and mcore-bridge with megatron-core. Not run: the model, which is not there; any
step.
"""

import importlib
import logging
import os
from unittest import mock

import stand_ins
from judge import judge

stand_ins.checkout("MS_SWIFT_PATH", "swift")
stand_ins.quiet()
stand_ins.gpu(9)
import megatron.core.models.gpt  # before Transformer Engine stands in
import torch._dynamo
import transformers

stand_ins.packages("mcore_bridge", "transformer_engine")
stand_ins.packages(
    "PIL",
    "aiohttp",
    "json_repair",
    "modelscope",
    "trl",
)
hub = importlib.import_module("modelscope.utils.logger")

log = logging.getLogger("hub")
log.addHandler(logging.NullHandler())
hub.get_logger = lambda *_, **__: log
importlib.import_module("modelscope.hub.utils.utils").get_cache_dir = lambda *_, **__: "."

from swift.megatron.arguments import MegatronSftArguments
from swift.utils import parse_args


def accept(launch):
    os.chdir(launch["folder"])
    with mock.patch.object(MegatronSftArguments, "__post_init__", lambda _: None):
        args, rest = parse_args(MegatronSftArguments, launch["words"][2:])
    assert not rest, f"not taken: {rest}"
    args._init_vpp_size()
    dp = launch["ranks"] // (
        args.tensor_model_parallel_size
        * args.pipeline_model_parallel_size
        * args.context_parallel_size
    )
    return {
        "tp": args.tensor_model_parallel_size,
        "pp": args.pipeline_model_parallel_size,
        "vpp": args.virtual_pipeline_model_parallel_size or 1,
        "cp": args.context_parallel_size,
        "ep": args.expert_model_parallel_size,
        "sequence_parallel": args.sequence_parallel,
        "micro_batch_size": args.micro_batch_size,
        "recompute": args.recompute_granularity,
        "micro_batches": args.global_batch_size // (dp * args.micro_batch_size),
    }


judge(accept)
