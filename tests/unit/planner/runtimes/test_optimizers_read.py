"""Optimizers and the types of their moments, as launches of two runtimes name them."""

import pytest

from tests.unit.planner.runtimes.test_deepspeed_reader import read as of_engine
from tests.unit.planner.runtimes.test_megatron_reader import causes, field, read


@pytest.mark.parametrize(
    ("more", "optimizer", "zero_stage"),
    [
        ("", "adamw", 0),
        ("--optimizer muon", "muon", 0),
        ("--optimizer muon --use-distributed-optimizer", "muon", 1),
        ("--optimizer dist_muon", "dist-muon", 1),
        ("--optimizer lion", "lion", 0),
        ("--optimizer soap", "soap", 0),
        ("--optimizer sgd", "sgd", 0),
    ],
)
def test_an_optimizer_is_read_by_the_word_of_the_runtime(more, optimizer, zero_stage):
    reading = read(more)
    assert reading.job.training.optimizer.name == optimizer
    assert reading.layout.zero_stage == zero_stage
    assert "unmodelled_optimizer" not in causes(reading, "unmodelled")
    assert field(reading, "training.optimizer").value == optimizer


def test_an_optimizer_without_a_price_is_priced_as_adam_and_said():
    reading = read("--optimizer adaptive_muon")
    assert reading.job.training.optimizer.name == "adamw"
    assert "unmodelled_optimizer" in causes(reading, "unmodelled")


@pytest.mark.parametrize(
    ("first", "second", "dtype"),
    [
        ("fp8", "fp16", "fp16"),
        ("fp8", "fp8", "fp8"),
        ("bf16", "fp8", "bf16"),
        ("fp32", "fp8", None),
    ],
)
def test_moments_are_read_in_the_wider_of_their_types(first, second, dtype):
    reading = read(
        "--use-distributed-optimizer --use-precision-aware-optimizer "
        f"--exp-avg-dtype {first} --exp-avg-sq-dtype {second}"
    )
    assert reading.job.options.moment_dtype == dtype


@pytest.mark.parametrize(
    ("word", "name"), [("AdamW", "adamw"), ("Lion", "lion"), ("muon", "muon"), ("SGD", "sgd")]
)
def test_an_optimizer_is_read_by_the_word_of_the_engine(word, name):
    reading = of_engine(optimizer={"type": word})
    assert reading.job.training.optimizer.name == name
    assert "optimizer" not in {one.cause for one in reading.problems}


def test_an_optimizer_without_a_price_is_said():
    reading = of_engine(optimizer={"type": "OneBitAdam"})
    assert reading.job.training.optimizer.name == "adamw"
    assert "optimizer OneBitAdam is priced as AdamW" in [one.says for one in reading.problems]
