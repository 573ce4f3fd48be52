"""Write tests/golden/composites.json and tables/ties.json: decoders inside larger configurations.

Of every class of transformers with a section for its decoder: its default configuration, the
parameters of the decoder, those of its token table, and whether the head is tied to it for every
pair of `tie_word_embeddings` (absent, true, false) of the whole file and of the section.
Run in an environment with transformers, timm and torch: python -m tests.oracles.record_composites
"""

import json
import sys
from itertools import product
from pathlib import Path

from tests.golden.composites import PATH, STATED, merged
from tests.oracles.decoder_configs import CONFIG_MAPPING, ROTATED, torch, transformers
from trainplan.costmodel.families import registry
from trainplan.costmodel.families.aliases import is_harmless

TIES = Path(registry.__file__).with_name("tables") / "ties.json"
SECTIONS = ("text_config", "llm_config", "language_config", "thinker_config", "decoder")
SEVERAL = {"full_attention": ROTATED, "sliding_attention": ROTATED}
NEEDED = {
    "aya_vision": {"vision_config": {"num_attention_heads": 16}},
    "cohere_compass": {"text_config": {"rope_parameters": SEVERAL}},
    "deepseek_ocr2": {"text_config": {"num_experts_per_tok": 6, "mlp_layer_types": None}},
    "gemma3": {"vision_config": {"image_size": 896, "patch_size": 14}},
    "glm4v_moe": {"text_config": {"head_dim": 128}},
    "hunyuan_vl": {"text_config": {"head_dim": 128}},
    "llama4": {"vision_config": {"vision_output_dim": 4096}},
    "ovis2": {"hidden_size": 4096, "vocab_size": 151_936},
    "qwen2_5_vl": {"vision_config": {"out_hidden_size": 8192}},
    "qwen3_omni_moe_thinker": {"text_config": {"head_dim": 128}},
    "qwen3_vl": {"vision_config": {"out_hidden_size": 4096}},
    "qwen3_vl_moe": {"vision_config": {"out_hidden_size": 2048}},
}
"""Sizes that make a default configuration consistent, or let it be built."""


def classes():
    """`model_type` -> the automatic class that builds it with a head."""
    return {
        **dict.fromkeys(
            transformers.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
            "AutoModelForCausalLM",
        ),
        **dict.fromkeys(
            transformers.models.auto.modeling_auto.MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES,
            "AutoModelForMultimodalLM",
        ),
        **dict.fromkeys(
            transformers.models.auto.modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
            "AutoModelForImageTextToText",
        ),
    }


def built(model_type, auto, file):
    config = CONFIG_MAPPING[model_type].from_dict(json.loads(json.dumps(file)))
    with torch.device("meta"):
        return getattr(transformers, auto).from_config(config)


def head(model):
    """The output projection, whatever the class says of it."""
    found = model.get_output_embeddings()
    if found is not None:
        return found
    return next(one for name, one in model.named_modules() if name.endswith("lm_head"))


def is_tied(model):
    return head(model).weight is model.get_input_embeddings().weight


def counted(model):
    """Parameters of the decoder without its token table and head, of the table, of the head."""
    table = model.get_input_embeddings().weight
    own = {id(one): one.numel() for one in model.get_decoder().parameters()}
    own |= {id(one): one.numel() for one in head(model).parameters()}
    own.pop(id(table), None)
    own.pop(id(head(model).weight), None)
    return {"body": sum(own.values()), "table": table.numel(), "head": head(model).weight.numel()}


def kept(file, section):
    """The file without what changes no count; other sections by their names alone."""
    outer = {key: value for key, value in file.items() if not is_harmless(key)}
    inner = {key: value for key, value in file[section].items() if not is_harmless(key)}
    inner |= {"model_type": file[section].get("model_type")}
    return outer | {"model_type": file["model_type"], section: inner}


def recorded(model_type, auto):
    needed = NEEDED.get(model_type, {})
    whole = CONFIG_MAPPING[model_type]().to_dict()
    file = merged(json.loads(json.dumps(whole, default=str)), needed)
    section = next((name for name in SECTIONS if isinstance(file.get(name), dict)), None)
    if section is None:
        return None
    ties = ""
    for outer, inner in product(STATED, STATED):
        changed = merged(
            file, {"tie_word_embeddings": outer, section: {"tie_word_embeddings": inner}}
        )
        model = built(model_type, auto, changed)
        ties += "y" if is_tied(model) else "n"
    file = kept(file, section)
    return {"section": section, "ties": ties, **counted(model), "config": file}


def main():
    transformers.logging.set_verbosity_error()
    types = {}
    for model_type, auto in sorted(classes().items()):
        try:
            found = recorded(model_type, auto)
        except Exception as error:  # noqa: BLE001
            sys.stderr.write(f"{model_type}: not recorded: {str(error)[:100]}\n")
        else:
            types |= {model_type: found} if found else {}
    lines = ",\n".join(f"    {json.dumps(name)}: {json.dumps(one)}" for name, one in types.items())
    source = f"transformers {transformers.__version__}, meta device"
    PATH.write_text(f'{{\n  "source": {json.dumps(source)},\n  "types": {{\n{lines}\n  }}\n}}\n')
    ties = {name: one["ties"] for name, one in types.items()}
    TIES.write_text(json.dumps(ties, indent=2) + "\n")


if __name__ == "__main__":
    main()
