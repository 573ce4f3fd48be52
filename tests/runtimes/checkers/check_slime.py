"""Launches of slime by its own parser and validation, over those of Megatron-LM.

Needs SLIME_PATH and MEGATRON_LM_PATH. Not run: Ray, SGLang (whose options are stand-ins, all but
those that launches set), any worker.
"""

import os
import sys
from pathlib import Path

import megatron_checkout
import stand_ins
from judge import judge

megatron_checkout.load()
stand_ins.checkout("SLIME_PATH", "slime")
stand_ins.packages("ray", "sglang", "sglang_router", "httpx", "wandb", "pylatexenc")

from sglang.srt.server_args import ServerArgs
from sglang_router.launch_router import RouterArgs


def _server(parser):
    parser.add_argument("--mem-fraction-static", type=float)


ServerArgs.add_cli_args = staticmethod(_server)
RouterArgs.add_cli_args = staticmethod(lambda parser, **_: None)

from slime.utils import arguments


def accept(launch):
    stand_ins.gpu(launch["capability"])
    os.chdir(launch["folder"])
    Path("ref_load").mkdir(exist_ok=True)  # REF_LOAD, which it looks for
    sys.argv = launch["words"]
    from slime.backends.megatron_utils import arguments as engine

    # the checkpoint is not there to compare its config.json with
    parse = engine.megatron_parse_args
    engine.megatron_parse_args = lambda **k: parse(**k | {"skip_hf_validate": True})
    arguments.sglang_validate_args = lambda _: None
    args = arguments.parse_args()
    assert args.world_size == launch["ranks"], "the ranks are others"
    return {
        "tp": args.tensor_model_parallel_size,
        "pp": args.pipeline_model_parallel_size,
        "vpp": args.virtual_pipeline_model_parallel_size or 1,
        "cp": args.context_parallel_size,
        "dp": args.data_parallel_size,
        "ep": args.expert_model_parallel_size,
        "sequence_parallel": args.sequence_parallel,
        "micro_batch_size": args.micro_batch_size,
        "recompute": args.recompute_granularity or "none",
        "micro_batches": args.global_batch_size
        // (args.data_parallel_size * args.micro_batch_size),
    }


judge(accept)
