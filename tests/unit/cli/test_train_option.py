"""`--train`: what it takes, and what it says of the rest."""

import pytest

from trainplan.costmodel.base.errors import SpecError
from trainplan.costmodel.job.trained import with_trained
from trainplan.costmodel.presets.presets import preset


@pytest.fixture(scope="module")
def model():
    return preset("llama3-8b")


def test_full_and_nothing_leave_the_model_as_it_is(model):
    assert with_trained(model, None) is model
    assert with_trained(model, "full") == model


@pytest.mark.parametrize(
    "text",
    ["lora:rank=16,modules=q,v", "qlora:rank=64,modules=all", "frozen:layers=0-20"],
)
def test_the_text_of_what_is_trained_reads_back(model, text):
    assert with_trained(model, text).trained.text == text


def test_modules_are_all_where_none_are_named(model):
    assert with_trained(model, "qlora:rank=8").trained.modules == ("all",)


def test_one_layer_may_be_frozen(model):
    assert with_trained(model, "frozen:layers=3").trained.layers == (3, 3)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("some", "write full, lora"),
        ("full:rank=2", "write full, lora"),
        ("lora", "rank is a number"),
        ("lora:rank=", "takes rank and modules"),
        ("lora:rank=x", "rank is a number"),
        ("lora:rank=0", "must be above 0"),
        ("lora:rank=8,rank=9", "each once"),
        ("lora:rank=8,layers=0-2", "takes rank and modules"),
        ("lora:rank=8,modules=q,wq", "no layer has the module 'wq'; this model takes all"),
        ("lora:rank=8,modules=kv_up", "no layer has the module 'kv_up'"),
        ("frozen", "first and last layer"),
        ("frozen:layers=a-b", "first and last layer"),
        ("frozen:layers=3-2", "the first comes last"),
        ("frozen:layers=0-32", "the model has layers 0 to 31"),
        ("frozen:tower", "has no tower"),
    ],
)
def test_anything_else_is_refused_in_one_line(model, text, says):
    with pytest.raises(SpecError, match=says) as found:
        with_trained(model, text)
    assert "\n" not in str(found.value)
    assert str(found.value).startswith("--train")
