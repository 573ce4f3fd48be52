"""The Python file that every rank runs: what no `KEY=VALUE` sets."""

import json

from trainplan.costmodel.architecture import ModelSpec, Projection, adapted, projections
from trainplan.costmodel.base import UnsupportedError
from trainplan.costmodel.families import Bridge
from trainplan.planner.launch import ConfigFile, RequiredVariable
from trainplan.planner.runtimes.training_script.trained import ALPHA_OVER_RANK

MODULE, PLANNED = "bridge_recipe", "planned_model.json"
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
"""Recipe of Megatron-Bridge @{commit}: {what}, a plan as KEY=VALUE arguments.

Written by `plan export`.
Checked: {checked}.
"""

{imports}


{before}def config(overrides):
    """The recipe with these KEY=VALUE."""
    recipe = vanilla_gpt_pretrain_config()
{model}    recipe.model.deallocate_pipeline_outputs = True
    # objects rather than names, so that their fields are keys
    recipe.mixed_precision = bf16_mixed()
    recipe.comm_overlap = CommOverlapConfig(tp_comm_overlap=False)
    # keys are read as types where the default is one
    recipe.ddp.megatron_fsdp_main_grads_dtype = torch.float32
    recipe = process_config_with_overrides(recipe, cli_overrides=overrides)
    recipe.tokenizer.tokenizer_type = "HuggingFaceTokenizer"
    recipe.tokenizer.tokenizer_model = os.environ["TOKENIZER_MODEL"]
    recipe.tokenizer.vocab_size = None
{data}    recipe.checkpoint.save = recipe.checkpoint.load = os.environ["CHECKPOINT_PATH"]
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
IMPORTS = (
    "from megatron.bridge.recipes.gpt.vanilla_gpt import vanilla_gpt_pretrain_config",
    "from megatron.bridge.training.comm_overlap import CommOverlapConfig",
    "from megatron.bridge.training.mixed_precision import bf16_mixed",
    "from megatron.bridge.training.pretrain import pretrain",
    "from megatron.bridge.training.utils.omegaconf_utils import process_config_with_overrides",
    "from megatron.bridge.utils.vocab_utils import calculate_padded_vocab_size",
)
GPT_STEP = "megatron.bridge.training.gpt_step"
TOKENS = """\
    recipe.dataset.data_path = [os.environ["DATA_PATH"]]
"""
VANILLA = """\
    # layers of a mixture of experts may differ, which the default of the provider does not know
    layers = partial(get_gpt_decoder_block_spec, use_transformer_engine=True)
    recipe.model = {provider}({layers})
"""
BUILDER = '''\
PLANNED = json.loads(Path(__file__).with_name("{planned}").read_text("utf-8"))
SIZES = ("num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size")


def builder():
    """What builds HF_MODEL, which has to be the model of the plan."""
    hf = AutoConfig.from_pretrained(os.environ["HF_MODEL"]{remote})
    decoder = getattr(hf, "llm_config", None) or hf.get_text_config()
    for name in SIZES:
        size = getattr(decoder, name, PLANNED[name])
        if size != PLANNED[name]:
            sys.exit(f"HF_MODEL has {{name}} = {{size}}, the plan {{PLANNED[name]}}")
    if {foreign}:
        hf = {part}
        hf.architectures = ["{architecture}"]
    return AutoBridge.from_hf_config(hf)


'''
BUILT = """\
    weights = os.environ["HF_MODEL"] if os.environ.get("LOAD_WEIGHTS") == "1" else None
    recipe.model = builder().to_megatron_provider(weights is not None, weights)
"""
SAMPLES = """\
    recipe.dataset = DirectHFSFTDatasetConfig(
        seq_length=4096,
        source=HFDatasetSourceConfig(path_or_dataset=os.environ["DATA_PATH"]),
        hf_processor_path=os.environ["HF_MODEL"],
        pad_to_max_length=True,
        do_validation=False,
        do_test=False,
    )
"""


def recipe_file(model: ModelSpec, commit: str, checked: str) -> ConfigFile:
    """The recipe of a model that is spelled out in keys.

    Source: Megatron-Bridge `recipes/gpt/h100/vanilla_gpt.py` (defaults of Megatron-LM's own
    program), `models/deepseek/deepseek_v3_bridge.py` (latent attention, unlike layers),
    `training/setup.py`, `_validate_and_set_vocab_size`.
    """
    module, provider = (
        ("mla_provider", "MLAModelProvider") if model.mla else ("gpt_provider", "GPTModelProvider")
    )
    layers = "transformer_layer_spec=layers" if model.moe else ""
    imports = (
        f"from megatron.bridge.models.{module} import {provider}",
        "from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec",
    )
    return _file(
        model,
        commit=commit,
        what="its vanilla GPT",
        checked=checked,
        standard=("from functools import partial",),
        imports=imports,
        before="",
        model=VANILLA.format(provider=provider, layers=layers),
        data=TOKENS,
    )


def built_files(
    model: ModelSpec, bridge: Bridge, commit: str, checked: str
) -> tuple[ConfigFile, ...]:
    """The recipe of a model that `AutoBridge` builds, and the model that was planned.

    Source: Megatron-Bridge `models/conversion/auto_bridge.py`, from_hf_config and
    to_megatron_provider; `recipes/common.py`, _sft_common_vlm; `scripts/training/recipe_runner.py`,
    the forward steps.
    """
    sees = bridge.has_tower
    samples = (
        "from megatron.bridge.data.builders import DirectHFSFTDatasetConfig, HFDatasetSourceConfig"
    )
    before = BUILDER.format(
        planned=PLANNED,
        remote=", trust_remote_code=True" if bridge.remote else "",
        foreign="not hf.architectures" if sees else "decoder is not hf or not hf.architectures",
        part="hf" if sees else "decoder",
        architecture=bridge.architecture,
    )
    recipe = _file(
        model,
        commit=commit,
        what=f"AutoBridge of {bridge.architecture}",
        checked=checked,
        standard=("import json", "from pathlib import Path"),
        imports=(
            "from megatron.bridge import AutoBridge",
            "from transformers import AutoConfig",
            *((samples,) if sees else ()),
        ),
        before=before,
        model=BUILT + (SAMPLES if sees else ""),
        data="" if sees else TOKENS,
        step=bridge.step or GPT_STEP,
    )
    planned = model.model_copy(update={"trained": None})
    text = json.dumps(planned.model_dump(mode="json", exclude_defaults=True), indent=1)
    return recipe, ConfigFile(PLANNED, text + "\n")


def _file(
    spec: ModelSpec,
    *,
    standard: tuple[str, ...],
    imports: tuple[str, ...],
    step: str = GPT_STEP,
    **parts: str,
) -> ConfigFile:
    peft, adapters = _adapters(spec)
    plain = sorted(("import os", "import sys", *standard), key=lambda one: one.startswith("from"))
    stepped = f"from {step} import forward_step"
    others = sorted((*IMPORTS, *imports, stepped, *((peft,) if peft else ())))
    lines = "\n".join((*plain, "", "import torch", *others))
    return ConfigFile(f"{MODULE}.py", TEXT.format(imports=lines, adapters=adapters, **parts))


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
    return f"from megatron.bridge.peft.{file} import {kind}", ADAPTERS.format(
        kind=kind, modules=modules, rank=rank, alpha=ALPHA_OVER_RANK * rank
    )
