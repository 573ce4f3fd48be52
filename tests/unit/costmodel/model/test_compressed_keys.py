"""Attention to compressed keys beside a window."""

import pytest

from trainplan.costmodel.mixers.attended_tokens import attention_span
from trainplan.costmodel.mixers.products import indexer_flop
from trainplan.costmodel.presets.presets import preset

FLASH = preset("deepseek-v4-flash")


def kind(rate):
    return next(one for one in FLASH.kinds if one.key_compression == rate)


def counted(length, rate, most):
    """Keys of every token, counted: its window of 128, and compressed keys before it."""
    window = [min(t, 128) for t in range(length)]
    compressed = [min(t // rate, most) for t in range(length)]
    return sum(window) / length + sum(compressed) / length


@pytest.mark.parametrize(("rate", "most"), [(4, 512), (128, 10**9)])
@pytest.mark.parametrize("length", [2048, 4096, 16384])
def test_a_token_sees_its_window_and_the_compressed_keys_before_it(rate, most, length):
    expected = counted(length, rate, most)
    assert attention_span(kind(rate), length) == pytest.approx(expected, rel=0.01)


def test_layers_without_compressed_keys_see_their_window_alone():
    plain = next(one for one in FLASH.kinds if one.key_compression is None)
    assert attention_span(plain, 4096) == 128 * (1 - 128 / 8192)


def test_an_indexer_scores_compressed_keys():
    sparse = kind(4)
    whole = sparse.model_copy(update={"key_compression": None})
    assert 4 * indexer_flop(sparse, 4096) == indexer_flop(whole, 4096) == 4096 * 64 * 129
