"""The Python file that every rank runs: what no `KEY=VALUE` sets."""

from trainplan.costmodel.architecture import ModelSpec, Projection, adapted, projections
from trainplan.costmodel.base import UnsupportedError
from trainplan.planner.launch import ConfigFile, RequiredVariable
from trainplan.planner.runtimes.training_script.trained import ALPHA_OVER_RANK

MODULE = "bridge_recipe"
PRETRAINED = RequiredVariable(
    "PRETRAINED_CHECKPOINT", "the checkpoint of the model whose weights stay frozen"
)
JOINED: tuple[frozenset[Projection], ...] = (frozenset({"q", "k", "v"}), frozenset({"gate", "up"}))
"""Matrices of which one of Megatron's holds all."""
SEPARATE: dict[Projection, str] = {
    "q": "linear_q",
    "k": "linear_k",
    "v": "linear_v",
    "q_down": "linear_q_down_proj",
    "q_up": "linear_q_up_proj",
    "kv_down": "linear_kv_down_proj",
    "kv_up": "linear_kv_up_proj",
    "o": "linear_proj",
    "index_q": "linear_wq_b",
    "index_k": "linear_wk",
    "index_weights": "linear_weights_proj",
    "in_proj": "in_proj",
    "out_proj": "out_proj",
    "latent_in": "fc1_latent_proj",
    "latent_out": "fc2_latent_proj",
    "gate": "linear_fc1_gate",
    "up": "linear_fc1_up",
    "down": "linear_fc2",
}
WHOLE = SEPARATE | dict.fromkeys(("q", "k", "v"), "linear_qkv")
WHOLE |= dict.fromkeys(("gate", "up"), "linear_fc1")
ADAPTERS = """\
    recipe.peft = {kind}(target_modules={modules}, dim={rank}, alpha={alpha}, dropout=0.0)
    recipe.checkpoint.pretrained_checkpoint = os.environ["PRETRAINED_CHECKPOINT"]
"""

TEXT = '''\
"""Recipe of Megatron-Bridge @{commit}: its vanilla GPT, a plan as KEY=VALUE arguments.

Written by `plan export`.
Checked: {checked}.
"""

import os
import sys
from functools import partial

import torch
from megatron.bridge.models.{module} import {provider}
from megatron.bridge.recipes.gpt.vanilla_gpt import vanilla_gpt_pretrain_config
{imports}from megatron.bridge.training.comm_overlap import CommOverlapConfig
from megatron.bridge.training.gpt_step import forward_step
from megatron.bridge.training.mixed_precision import bf16_mixed
from megatron.bridge.training.pretrain import pretrain
from megatron.bridge.training.utils.omegaconf_utils import process_config_with_overrides
from megatron.bridge.utils.vocab_utils import calculate_padded_vocab_size
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec


def config(overrides):
    """The recipe with these KEY=VALUE."""
    recipe = vanilla_gpt_pretrain_config()
    # layers of a mixture of experts may differ, which the default of the provider does not know
    layers = partial(get_gpt_decoder_block_spec, use_transformer_engine=True)
    recipe.model = {provider}({layers})
    recipe.model.deallocate_pipeline_outputs = True
    # objects rather than names, so that their fields are keys
    recipe.mixed_precision = bf16_mixed()
    recipe.comm_overlap = CommOverlapConfig(tp_comm_overlap=False)
    # keys are read as types where the default is one
    recipe.ddp.megatron_fsdp_main_grads_dtype = torch.float32
    recipe = process_config_with_overrides(recipe, cli_overrides=overrides)
    recipe.tokenizer.tokenizer_type = "HuggingFaceTokenizer"
    recipe.tokenizer.tokenizer_model = os.environ["TOKENIZER_MODEL"]
    recipe.tokenizer.vocab_size = None
    recipe.dataset.data_path = [os.environ["DATA_PATH"]]
    recipe.checkpoint.save = recipe.checkpoint.load = os.environ["CHECKPOINT_PATH"]
{adapters}    # a vocabulary that is set counts as padded
    recipe.model.vocab_size = calculate_padded_vocab_size(
        recipe.model.vocab_size,
        recipe.model.make_vocab_size_divisible_by,
        recipe.model.tensor_model_parallel_size,
    )
    return recipe


if __name__ == "__main__":
    pretrain(config=config(sys.argv[1:]), forward_step_func=forward_step)
'''


def recipe_file(model: ModelSpec, commit: str, checked: str) -> ConfigFile:
    """The recipe of this kind of model.

    Source: Megatron-Bridge `recipes/gpt/h100/vanilla_gpt.py` (defaults of Megatron-LM's own
    program), `models/deepseek/deepseek_v3_bridge.py` (latent attention, unlike layers),
    `training/setup.py`, `_validate_and_set_vocab_size`.
    """
    module, provider = (
        ("mla_provider", "MLAModelProvider") if model.mla else ("gpt_provider", "GPTModelProvider")
    )
    layers = "transformer_layer_spec=layers" if model.moe else ""
    imports, adapters = _adapters(model)
    text = TEXT.format(
        commit=commit,
        checked=checked,
        module=module,
        provider=provider,
        layers=layers,
        imports=imports,
        adapters=adapters,
    )
    return ConfigFile(f"{MODULE}.py", text)


def _adapters(model: ModelSpec) -> tuple[str, str]:
    """An import, and the lines that put adapters beside frozen weights; nothing where none are.

    Source: Megatron-Bridge `peft/lora.py` and `peft/canonical_lora.py`, target_modules;
    `training/config.py:1626`, which wants the checkpoint.
    """
    trained = model.trained
    if trained is None:
        return "", ""
    names: set[Projection] = {name for kind in model.kinds for name in adapted(kind)}
    there = {name for kind in model.kinds for name in projections(kind)}
    if missing := sorted(names - SEPARATE.keys()):
        raise UnsupportedError(
            f"megatron-bridge has no adapters of {', '.join(missing)}: name other modules"
        )
    whole = all(group & there <= names or not group & names for group in JOINED)
    kind, table = ("LoRA", WHOLE) if whole else ("CanonicalLoRA", SEPARATE)
    modules = list(dict.fromkeys(word for name, word in table.items() if name in names))
    rank = trained.rank or 0
    file = "lora" if whole else "canonical_lora"
    return f"from megatron.bridge.peft.{file} import {kind}\n", ADAPTERS.format(
        kind=kind, modules=modules, rank=rank, alpha=ALPHA_OVER_RANK * rank
    )
