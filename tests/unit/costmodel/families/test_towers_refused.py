"""Files of models with towers that are wrong, or hold what is not modelled: one line, the field."""

import copy
import json
from pathlib import Path

import pytest

from trainplan.costmodel.base.errors import PlanError
from trainplan.costmodel.families.reading import model_from_config

TOWERS = json.loads((Path(__file__).parents[3] / "golden" / "towers.json").read_text())


def changed(name, path, value):
    """A published file with one field changed; `...` takes it out."""
    config = copy.deepcopy(TOWERS[name]["config"])
    *sections, field = path.split(".")
    inner = config
    for section in sections:
        inner = inner[section]
    if value is ...:
        del inner[field]
    else:
        inner[field] = value
    return config


CASES = [
    ("Qwen2.5-VL-7B", "vision_config.depth", -3, "'vision_config.depth'|num_hidden_layers"),
    ("Qwen2.5-VL-7B", "vision_config.num_heads", 7, "not a multiple of num_attention_heads = 7"),
    ("Qwen2.5-VL-7B", "vision_config.out_hidden_size", 3000, "width 3000.*hidden_size is 3584"),
    ("Qwen2.5-VL-7B", "vision_config.fullatt_block_indexes", [40], "names layer 40"),
    ("Qwen2.5-VL-7B", "vision_config.patch_size", [14, 16], "equal sides"),
    ("Qwen2.5-VL-7B", "vision_config", 3, "'vision_config' must be an object"),
    ("Qwen2.5-VL-7B", "vision_config.hidden_act", "softsign", "'softsign'"),
    ("Qwen3-VL-8B", "vision_config.deepstack_visual_indexes", "all", "must be a list"),
    ("Qwen3-VL-8B", "text_config.hidden_size", ..., "lacks 'text_config.hidden_size'"),
    ("Qwen3-VL-8B", "vision_config.num_position_embeddings", "many", "positive integer"),
    ("LLaVA-1.5-7B", "vision_config.model_type", "dinov2", "'dinov2' is a tower that is not"),
    ("LLaVA-1.5-7B", "vision_config.image_size", 7, "image_size' = 7 is less than a patch of 14"),
    ("LLaVA-1.5-7B", "text_config.model_type", 5, "model_type"),
    ("LLaVA-1.5-7B", "text_config.model_type", "rwkv", "'rwkv'"),
    ("LLaVA-1.5-7B", "text_config.model_type", "no_such_decoder", "'no_such_decoder'"),
    ("Gemma-3-4B", "mm_tokens_per_image", 150, "do not pool to 'mm_tokens_per_image' = 150"),
    ("InternVL3-8B", "vision_config.norm_type", "batch_norm", "'batch_norm' is not modelled"),
    ("Qwen2-Audio-7B", "audio_config.d_model", True, "'audio_config.d_model' must be a positive"),
]


@pytest.mark.parametrize(("name", "path", "value", "says"), CASES)
def test_a_wrong_field_is_named_in_one_line(name, path, value, says):
    with pytest.raises(PlanError, match=says) as refused:
        model_from_config(changed(name, path, value), name)
    assert "\n" not in str(refused.value)


def test_a_file_without_a_section_for_its_tower_is_the_text_alone():
    model = model_from_config(changed("Gemma-3-4B", "vision_config", ...), "gemma")
    assert model.tower is None


def test_a_model_with_a_tower_that_is_not_read_is_refused_by_name():
    with pytest.raises(PlanError, match="glm4v"):
        model_from_config({"model_type": "glm4v", "vision_config": {}}, "glm")


def test_published_sizes_are_read_as_they_are_used():
    towers = {name: model_from_config(one["config"], name).tower for name, one in TOWERS.items()}
    qwen, gemma, audio = (
        towers[name] for name in ("Qwen2.5-VL-7B", "Gemma-3-4B", "Qwen2-Audio-7B")
    )
    assert (qwen.window_patches, qwen.num_windowed_layers) == (64, 28)
    assert (qwen.tokens_per_sample, qwen.patches_assumed) == (256, True)
    assert (gemma.patches_per_sample, gemma.tokens_per_sample) == (4096, 256)
    assert not gemma.patches_assumed
    assert (audio.modality, audio.tokens_per_sample) == ("audio", 750)
    assert [one.tensor_parallel for one in towers.values()].count(True) == 2  # both Qwen3-VL
    assert len(towers["Qwen3-VL-8B"].projectors) == 4
