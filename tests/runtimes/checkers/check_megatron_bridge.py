"""Launches of Megatron-Bridge: the recipe file, its overrides, and the runtime's own validation.

Needs MEGATRON_BRIDGE_PATH and MEGATRON_LM_PATH. Not run: the model, kernels, memory.
"""

import os
import runpy
import sys

import megatron_checkout
import stand_ins
from judge import judge

NEED_CUDA = [
    "transformer_engine",
    "transformer_engine_torch",
    "modelopt",
    "nvidia_resiliency_ext",
    "megatron.energon",
    "qwen_vl_utils",
    "timm",
    "open_clip",
    "mlflow",
    "comet_ml",
    "flashinfer",
    "fla",
    "mamba_ssm",
    "causal_conv1d",
    "nemo_run",
    "wandb",
    "decord",
    "librosa",
    "soundfile",
    "imageio",
    "ftfy",
    "easydict",
    "webdataset",
    "mistral_common",
    "deep_ep",
    "multistorageclient",
    "megatron.bridge.diffusion",
    "megatron.bridge.recipes.flux",
    "megatron.bridge.recipes.wan",
]

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")
stand_ins.checkout("MEGATRON_BRIDGE_PATH", "megatron", "src")
megatron_checkout.load()

import torch
import transformers

# loaded before the stand-ins, which it would take for the packages
for name in ("AutoConfig", "AutoModelForCausalLM", "AutoProcessor", "AutoTokenizer",
             "GenerationConfig", "PreTrainedModel"):  # fmt: skip
    getattr(transformers, name)
stand_ins.packages(*NEED_CUDA)
torch.cuda.is_available = lambda: False

import megatron.bridge.training.config as configs
import megatron.bridge.training.pretrain
import megatron.bridge.utils.common_utils as common
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformer_engine.pytorch import optimizers

optimizers.FusedAdam = megatron_checkout.FusedAdam


def accept(launch):
    stand_ins.gpu(launch["capability"])
    _, module, *overrides = launch["words"]  # -m
    sys.path[:0] = os.environ["PYTHONPATH"].split(os.pathsep)
    container = runpy.run_module(module)["config"](overrides)
    for module in (configs, common):
        if hasattr(module, "get_world_size_safe"):
            module.get_world_size_safe = lambda: launch["ranks"]
    store = FakeStore()
    torch.distributed.init_process_group("fake", store=store, rank=0, world_size=launch["ranks"])
    configs.runtime_config_update(container)  # as pretrain() does, with all validation
    model, train = container.model, container.train
    dp = container.data_parallel_size
    return {
        "tp": model.tensor_model_parallel_size,
        "pp": model.pipeline_model_parallel_size,
        "vpp": model.virtual_pipeline_model_parallel_size or 1,
        "cp": model.context_parallel_size,
        "dp": dp,
        "ep": model.expert_model_parallel_size,
        "sequence_parallel": model.sequence_parallel,
        "micro_batches": train.global_batch_size // (train.micro_batch_size * dp),
        "operations": {
            "save_interval": container.checkpoint.save_interval,
            "async_save": container.checkpoint.async_save,
            "exit_minutes": train.exit_duration_in_mins,
            "exit_signal": getattr(train.exit_signal, "name", train.exit_signal),
            "wandb_project": container.logger.wandb_project,
        },
    }


if __name__ == "__main__":
    judge(accept)
