"""Launches of torchtitan by its own configuration, mesh, and trainer up to the first weight.

Needs TORCHTITAN_PATH. Model parts are cut and parallelised on the meta device. Not run: kernels,
steps, memory; torchft itself, in whose place every class does nothing.
"""

import os
import sys
import tempfile
import types

import stand_ins
from judge import judge

CHECKOUT = stand_ins.checkout("TORCHTITAN_PATH", "torchtitan")
stand_ins.quiet()
stand_ins.packages("torchft")

import torch
import torch._utils
import torch.testing._internal.distributed.fake_pg

torch._utils._get_available_device_type = lambda: "cpu"
OF_A_GPU = {
    "get_device_name": "cpu",
    "get_device_properties": types.SimpleNamespace(total_memory=80 << 30, name="cpu"),
    "reset_peak_memory_stats": None,
    "empty_cache": None,
    "memory_stats": {},
    "max_memory_reserved": 0,
}
for name, answer in OF_A_GPU.items():
    if not hasattr(torch.cpu, name):
        setattr(torch.cpu, name, lambda *_, answer=answer: answer)

from torchtitan.tools import utils

# before others take it by name; its own asks for a GPU first
utils.has_cuda_capability = lambda *wanted: torch.cuda.get_device_capability() >= wanted

from torchtitan.config import ConfigManager
from torchtitan.distributed.parallel_dims import ParallelDims
from torchtitan.experiments.torchft.trainer import FaultTolerantTrainer
from torchtitan.trainer import Trainer


class _AllocatesError(Exception):
    pass


def accept(launch):
    stand_ins.gpu(launch["capability"])
    sys.path[:0] = os.environ["PYTHONPATH"].split(os.pathsep)
    os.environ["HF_ASSETS_PATH"] = f"{CHECKOUT}/tests/assets/tokenizer"
    os.environ["NGPU"] = str(launch["ranks"])
    os.environ["OUTPUT_PATH"] = tempfile.mkdtemp()
    os.chdir(CHECKOUT)  # its data for tests
    _, _, *flags = launch["words"]  # -m torchtitan.train
    config = ConfigManager().parse_args(flags)
    mesh = ParallelDims.from_config(config.parallelism, launch["ranks"])
    config.comm.mode = "fake_backend"
    trainer = _built(config)
    batches = trainer.num_pp_microbatches if mesh.pp > 1 else trainer.gradient_accumulation_steps
    return {
        "tp": mesh.tp,
        "pp": mesh.pp,
        "cp": mesh.cp,
        "dp": mesh.dp_replicate * mesh.dp_shard,
        "ep": mesh.ep,
        "micro_batches": batches,
        "outer": _joined(config, trainer),
        "parameters": "cpu" if config.training.enable_cpu_offload else "none",
        "operations": {
            "save_interval": config.checkpoint.interval,
            "async_save": config.checkpoint.async_mode != "disabled",
        },
    }


def _built(config) -> Trainer:
    """The trainer, as far as the weights of its model parts."""

    parts = []

    def allocate(part, *_, **__):
        parts.append(part)
        raise _AllocatesError

    torch.nn.Module.to_empty = allocate
    kind = Trainer
    if isinstance(config, FaultTolerantTrainer.Config):  # it reads its data before its model
        kind, config.tokenizer = FaultTolerantTrainer, None
        type(config.dataloader).build = lambda *_, **__: None
    trainer = kind.__new__(kind)
    try:
        kind.__init__(trainer, config)
    except _AllocatesError:
        trainer.model_parts = parts
        return trainer
    raise RuntimeError("the trainer allocated no weights")


def _joined(config, trainer):
    """Islands, local steps and fragments that hold each weight once; null without outer steps."""
    joins = getattr(config, "fault_tolerance", None)
    if joins is None:
        return None
    if joins.semi_sync_method != "diloco" or not trainer.ft_manager.enabled:
        raise RuntimeError("no outer step joins it")
    model, layers = trainer.model_parts[0], len(trainer.model_config.layers)
    cut = getattr(config.model_spec, "fragment_fn", None)
    fragments = cut(model, joins, layers) if cut else [model]
    held = [id(weight) for one in fragments for weight in one.parameters()]
    if sorted(held) != sorted(id(weight) for weight in model.parameters()):
        raise RuntimeError("fragments do not hold each weight once")
    every, rest = divmod(joins.sync_steps, len(fragments))
    if rest or joins.fragment_sync_delay >= every:  # torchft, local_sgd.py, DiLoCo
        raise RuntimeError("torchft refuses the steps between outer steps")
    return joins.group_size, joins.sync_steps, len(fragments)


if __name__ == "__main__":
    judge(accept, last=True)
