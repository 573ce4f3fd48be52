"""Launches of Megatron-Bridge: the recipe file, its overrides, and the runtime's own validation.

Needs MEGATRON_BRIDGE_PATH and MEGATRON_LM_PATH. Not run: the model, kernels, memory, and code that
a repository of Hugging Face brings, for which classes of the fields of its file stand.
"""

import json
import os
import runpy
import sys
from pathlib import Path

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
             "CONFIG_MAPPING", "GenerationConfig", "PreTrainedModel"):  # fmt: skip
    getattr(transformers, name)
stand_ins.packages(*NEED_CUDA)
torch.cuda.is_available = lambda: False

import megatron.bridge.training.config as configs
import megatron.bridge.training.pretrain
import megatron.bridge.utils.common_utils as common
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformer_engine.pytorch import optimizers

optimizers.FusedAdam = megatron_checkout.FusedAdam


def stand_for_remote_code(config):
    """Registers a class of the fields of a file that no class of transformers reads."""
    mapping = transformers.CONFIG_MAPPING
    if config["model_type"] in mapping:
        return

    def part(values):
        known = mapping[values["model_type"]] if values.get("model_type") in mapping else None
        fields = {name: value for name, value in values.items() if name != "model_type"}
        return (known or transformers.PretrainedConfig)(**fields)

    class Remote(transformers.PretrainedConfig):
        model_type = config["model_type"]

        def __init__(self, **values):
            super().__init__(
                **{n: part(v) if n.endswith("_config") else v for n, v in values.items()}
            )

    transformers.AutoConfig.register(Remote.model_type, Remote)


def accept(launch):
    if folder := os.environ.get("HF_MODEL"):
        stand_for_remote_code(json.loads((Path(folder) / "config.json").read_text("utf-8")))
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
    routed = "E" in (getattr(model, "hybrid_layer_pattern", None) or "E")
    experts = (getattr(model, "num_moe_experts", None) or 0) * routed
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
            "local_save_interval": container.checkpoint.non_persistent_save_interval,
            "copies": container.checkpoint.replication and container.checkpoint.replication_factor,
            "exit_minutes": train.exit_duration_in_mins,
            "exit_signal": getattr(train.exit_signal, "name", train.exit_signal),
            "wandb_project": container.logger.wandb_project,
        },
        "hidden_size": model.hidden_size,
        "experts": experts,
        "recompute": model.recompute_granularity or "none",
        "shares": bool(experts and getattr(model, "moe_shared_expert_overlap", False)),
        "predictions": getattr(model, "mtp_num_layers", None) or 0,
    }


if __name__ == "__main__":
    judge(accept)
