"""Launches of verl by Hydra, its own configuration classes and `validate_config`.

Needs VERL_PATH. Not run: Ray, rollouts, any worker.
"""

import stand_ins
from judge import judge

FOLDER = stand_ins.checkout("VERL_PATH", "verl")
stand_ins.quiet()
stand_ins.packages("ray", "tensordict", "codetiming", "torchdata", "wandb", "vllm", "pylatexenc")

import transformers

transformers.AutoModelForVision2Seq = object  # of the release before 5, which verl asks for

from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import omega_conf_to_dataclass, validate_config


def accept(launch):
    _, _, name, *words = launch["words"]  # -m verl.trainer.main_ppo --config-name=...
    folder = str(FOLDER / "verl" / "trainer" / "config")
    with initialize_config_dir(folder, version_base=None):
        config = compose(name.partition("=")[2], words)
    OmegaConf.resolve(config)
    validate_config(config, need_reference_policy(config), need_critic(config))
    roles = config.actor_rollout_ref
    actor, rollout = (omega_conf_to_dataclass(one) for one in (roles.actor, roles.rollout))
    engine = actor.megatron
    for one in (config.critic.megatron, roles.ref.megatron):
        assert one.tensor_model_parallel_size == engine.tensor_model_parallel_size
        assert one.pipeline_model_parallel_size == engine.pipeline_model_parallel_size
    world = config.trainer.nnodes * config.trainer.n_gpus_per_node
    assert world == launch["ranks"], "the ranks are others"
    inner = engine.tensor_model_parallel_size * engine.pipeline_model_parallel_size
    dp = world // (inner * engine.context_parallel_size)
    batch = actor.ppo_mini_batch_size * rollout.n
    recompute = engine.override_transformer_config["recompute_granularity"]
    return {
        "tp": engine.tensor_model_parallel_size,
        "pp": engine.pipeline_model_parallel_size,
        "cp": engine.context_parallel_size,
        "dp": dp,
        "ep": engine.expert_model_parallel_size,
        "sequence_parallel": engine.sequence_parallel,
        "micro_batch_size": actor.ppo_micro_batch_size_per_gpu,
        "recompute": recompute or "none",
        "micro_batches": batch // (dp * actor.ppo_micro_batch_size_per_gpu),
    }


judge(accept)
