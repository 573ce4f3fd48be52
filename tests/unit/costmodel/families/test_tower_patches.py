"""Patches of an image that are merged are whole squares of them, whatever its size."""

import copy
import json
from pathlib import Path

import pytest

from trainplan.costmodel.families.reading import model_from_config

TOWERS = json.loads((Path(__file__).parents[3] / "golden" / "towers.json").read_text())


@pytest.mark.parametrize("side", [1540, 1554, 14, 42])
def test_patches_that_fill_no_square_are_left_out(side):
    config = copy.deepcopy(TOWERS["Mistral-Small-3.1-24B"]["config"])
    config["vision_config"]["image_size"] = side
    patches = (side // 14) ** 2
    if patches < 4:
        with pytest.raises(Exception, match="patches_per_sample"):
            model_from_config(config, "a test")
        return
    tower = model_from_config(config, "a test").tower
    assert tower.merged_patches == 4
    assert tower.patches_per_sample == patches - patches % 4
    assert tower.tokens_per_sample == patches // 4
