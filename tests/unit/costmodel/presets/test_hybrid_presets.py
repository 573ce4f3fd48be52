"""Presets of hybrid models have the parameters that their makers count."""

import pytest

from trainplan.costmodel.model.params import num_active_parameters, num_parameters
from trainplan.costmodel.presets.presets import preset

PUBLISHED = {
    "nemotron-3-nano-30b-a3b": (31.6e9, 3.6e9),  # arXiv:2512.20848, embeddings counted
    "nemotron-3-super": (120.6e9, 12.7e9),  # Nemotron 3 Super model card
    "nemotron-3-ultra": (550e9, 55e9),  # arXiv:2606.15007
    "deepseek-v4-flash": (284e9, 13e9),  # model card
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_hybrid_preset_has_as_many_parameters_as_published(name):
    total, active = PUBLISHED[name]
    assert num_parameters(preset(name)) == pytest.approx(total, rel=0.002)
    assert num_active_parameters(preset(name)) == pytest.approx(active, rel=0.07)


@pytest.mark.parametrize(
    ("name", "mamba", "experts", "attention"),
    [
        ("nemotron-3-nano-30b-a3b", 23, 23, 6),
        ("nemotron-3-super", 40, 40, 8),
        ("nemotron-3-ultra", 48, 48, 12),
    ],
)
def test_a_nemotron_has_its_layers(name, mamba, experts, attention):
    model = preset(name)
    counts = [model.mixers.count(mixer) for mixer in ("mamba", "none", "full_attention")]
    assert counts == [mamba, experts, attention]
    assert model.num_moe_layers == experts


def test_a_deepseek_v4_compresses_its_keys_by_turns():
    model = preset("deepseek-v4-flash")
    rates = [model.kinds[kind].key_compression for kind in model.kind_of_layer]
    assert rates == [None, None, *[4, 128] * 20, 4]
