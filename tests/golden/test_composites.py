"""Decoders inside larger configurations have the parameters of the classes of transformers."""

from itertools import product

import pytest

from tests.golden.composites import STATED, merged, recorded
from trainplan.costmodel.base import PlanError
from trainplan.costmodel.families.reading import model_from_config
from trainplan.costmodel.model.params import num_parameters
from trainplan.costmodel.towers.tower import tower_params

RECORDED = recorded()
REFUSED = """
    florence2 gemma4_unified_assistant kosmos-2 kosmos-2.5
    mllama pix2struct t5gemma2 vision-encoder-decoder
"""


def read(name, config):
    """Parameters without the tower; null: refused with a sentence."""
    try:
        model = model_from_config(config, name)
    except PlanError:
        return None
    return num_parameters(model) - (tower_params(model.tower) if model.tower else 0)


@pytest.mark.parametrize("name", sorted(RECORDED))
def test_a_decoder_is_tied_as_its_class_ties_it_and_has_its_count(name):
    one = RECORDED[name]
    right, found = {}, {}
    for (outer, inner), tie in zip(product(STATED, STATED), one["ties"], strict=True):
        stated = {"tie_word_embeddings": inner}
        config = merged(one["config"], {"tie_word_embeddings": outer, one["section"]: stated})
        right[outer, inner] = one["body"] + one["table"] + (one["head"] if tie == "n" else 0)
        found[outer, inner] = read(name, config)
    if name in REFUSED.split():
        assert set(found.values()) == {None}
    else:
        assert found == right


def test_no_more_classes_are_refused_than_are_named():
    assert len(REFUSED.split()) < len(RECORDED) / 4
