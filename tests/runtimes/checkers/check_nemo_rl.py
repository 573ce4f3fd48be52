"""Files of NeMo RL by its own reader of configurations, over its recipe, and its `MasterConfig`.

Needs NEMO_RL_PATH. Not run: Ray, any worker, Megatron-Bridge.
"""

import typing
from pathlib import Path
from unittest import mock

import stand_ins
from judge import judge

FOLDER = stand_ins.checkout("NEMO_RL_PATH", "nemo_rl")
stand_ins.quiet()
import torch._dynamo  # of packages that stand in below some look like others to it
import transformers  # before what stands in

stand_ins.packages(
    "PIL",
    "aiohttp",
    "blobfile",
    "cv2",
    "decord",
    "fastapi",
    "math_verify",
    "matplotlib",
    "megatron",
    "mlflow",
    "nemo_automodel",
    "nemo_gym",
    "nemo_rl.models.generation.dynamo.dynamo_generation",
    "nemo_rl.models.generation.sglang.sglang_generation",
    "num2words",
    "nvidia",
    "prometheus_client",
    "pylatexenc",
    "pynvml",
    "ray",
    "scipy",
    "soundfile",
    "swanlab",
    "tensorboard",
    "tensordict",
    "torch.utils.tensorboard",
    "torchaudio",
    "torchdata",
    "torchvision",
    "transformer_engine",
    "vllm",
    "wandb",
    "zmq",
)

import ray
import typing_extensions
from packaging.version import Version

ray.remote = lambda *given, **_: given[0] if given else lambda one: one

typing.TypedDict = typing_extensions.TypedDict  # as Python has it from 3.12 on
with mock.patch.object(Version, "__lt__", lambda *_: True):  # it wants transformers before 5.12
    from nemo_rl.algorithms.grpo import MasterConfig
from nemo_rl.models.policy import MegatronConfig
from nemo_rl.utils.config import load_config, register_omegaconf_resolvers
from omegaconf import OmegaConf

RECIPE = FOLDER / "examples" / "configs" / "grpo_math_1B_megatron.yaml"
register_omegaconf_resolvers()


def accept(launch):
    path = Path(launch["words"][2])  # examples/run_grpo.py --config FILE
    text = path.read_text("utf-8").replace('"nemo_rl_recipe"', f'"{RECIPE}"')
    path.write_text(text, "utf-8")
    known = {*_names(OmegaConf.to_container(load_config(RECIPE))), *MegatronConfig.__annotations__}
    engine = OmegaConf.to_container(OmegaConf.load(path))["policy"]["megatron_cfg"]
    engine.pop("model_overrides", None)  # names of Megatron-Bridge's
    assert not {*_names(engine)} - known, "keys that it does not know"
    config = MasterConfig(**OmegaConf.to_container(load_config(path), resolve=True))
    policy, grpo = config.policy, config.grpo
    engine = policy["megatron_cfg"]
    world = config.cluster["num_nodes"] * config.cluster["gpus_per_node"]
    assert world == launch["ranks"], "the ranks are others"
    batch, micro = policy["train_global_batch_size"], policy["train_micro_batch_size"]
    assert grpo.num_prompts_per_step * grpo.num_generations_per_prompt == batch
    inner = engine["tensor_model_parallel_size"] * engine["pipeline_model_parallel_size"]
    dp = world // (inner * engine["context_parallel_size"])
    recomputes = engine["activation_checkpointing"]
    return {
        "tp": engine["tensor_model_parallel_size"],
        "pp": engine["pipeline_model_parallel_size"],
        "cp": engine["context_parallel_size"],
        "dp": dp,
        "ep": engine["expert_model_parallel_size"],
        "sequence_parallel": engine["sequence_parallel"],
        "micro_batch_size": micro,
        "recompute": engine["recompute_granularity"] if recomputes else "none",
        "micro_batches": batch // (dp * micro),
    }


def _names(section):
    for name, value in section.items():
        yield name
        if isinstance(value, dict):
            yield from _names(value)


judge(accept)
