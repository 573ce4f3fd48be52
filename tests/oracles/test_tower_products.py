"""FLOPs of the products of towers against those that torch counts in transformers' own code."""

import importlib

import pytest

from tests.oracles.towers import file_of, model_of, torch
from trainplan.costmodel.families.reading import model_from_config
from trainplan.costmodel.towers.tower import encoder_forward_flop, projector_forward_flop

pytestmark = pytest.mark.oracle


def counted(call):
    """FLOPs of one call."""
    counter = importlib.import_module("torch.utils.flop_counter").FlopCounterMode(display=False)
    with torch.no_grad(), counter:
        call()
    return counter.get_total_flops()


def seen(name, **fields):
    """The tower of a file, with another number of patches."""
    tower = model_from_config(file_of(name), name).tower
    return tower.model_copy(update=fields)


@pytest.mark.parametrize("name", ["qwen2_vl", "qwen2_5_vl", "qwen3_vl"])
def test_products_of_an_image_of_any_size_are_those_of_transformers(name):
    side = 32  # four windows of 8 x 8 on each side
    tower = seen(name, patches_per_sample=side**2)
    visual = model_of(file_of(name), attn_implementation="eager").model.visual
    pixels = torch.zeros(side**2, tower.embeddings[0].in_features)
    flop = counted(lambda: visual(pixels, grid_thw=torch.tensor([[1, side, side]])))
    assert flop == encoder_forward_flop(tower) + projector_forward_flop(tower)


@pytest.mark.parametrize("name", ["llava", "gemma3", "internvl"])
def test_products_of_an_image_of_one_size_are_those_of_transformers(name):
    tower = seen(name)
    model = model_of(file_of(name), attn_implementation="eager").model
    size = file_of(name)["vision_config"]["image_size"]
    size = size[0] if isinstance(size, list) else size
    pixels = torch.zeros(1, 3, size, size)
    flop = counted(lambda: model.get_image_features(pixel_values=pixels))
    assert flop == encoder_forward_flop(tower) + projector_forward_flop(tower)


def test_products_of_sound_are_those_of_transformers():
    tower = seen("qwen2_audio")
    model = model_of(file_of("qwen2_audio"), attn_implementation="eager")
    mel = torch.zeros(1, 40, 2 * tower.patches_per_sample)

    def run():
        found = model.model.audio_tower(mel).last_hidden_state
        model.model.multi_modal_projector(found)

    assert counted(run) == encoder_forward_flop(tower) + projector_forward_flop(tower)
