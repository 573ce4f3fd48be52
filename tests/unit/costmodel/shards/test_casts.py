"""Bytes of casts, by hand."""

import pytest

from trainplan.costmodel.shards.cuts import cast_weight_bytes


@pytest.fixture(scope="module")
def on(make_job):
    def job(gpu, precision):
        made = make_job("llama3-8b", f"1x8:{gpu}", seq_length=4096, global_batch_size=64)
        training = made.training.model_copy(update={"precision": precision})
        return made.model_copy(update={"training": training})

    return job


@pytest.mark.parametrize(
    ("gpu", "precision", "size"),
    [
        ("h100-sxm", "fp8", 2.0),  # rows, and their transpose
        ("b200", "fp8", 1.0),  # products read either way
        ("mi355x", "fp8", 2.0),
        ("b200", "mxfp8", 2 + 2 / 32),  # a scale beside 32, along rows and along columns
        ("b200", "nvfp4", 1 + 2 / 16),
    ],
)
def test_a_weight_is_cast_once_for_each_order_that_products_read_it_in(on, gpu, precision, size):
    assert cast_weight_bytes(on(gpu, precision)) == size
