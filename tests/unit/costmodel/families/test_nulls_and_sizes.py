"""Of every family: null is no value unless its class says so, and large counts end at once."""

import time
import tracemalloc
from collections.abc import Iterator, Mapping

import pytest

from tests.golden.decoder_counts import recorded
from tests.grids import Request
from trainplan.costmodel.base import PlanError, SpecError
from trainplan.costmodel.families.reading import read_config
from trainplan.costmodel.families.registry import FAMILIES, NOT_MODELLED, SAME, not_null
from trainplan.costmodel.presets.presets import preset_config, preset_names

Config = Mapping[str, object]
PRESETS = {name: preset_config(name) for name in preset_names()}
CLASSES = {f"{one.model_type} {one.variant}": one.config for one in recorded()}
FILES = {
    name: config
    for name, config in {**PRESETS, **CLASSES}.items()
    if config["model_type"] not in NOT_MODELLED
}
ONE_OF_EACH = {str(config["model_type"]): name for name, config in FILES.items()}.values()
"""A file of each model type."""
MANY = 48_000_000


def family_of(config: Config) -> str:
    model_type = str(config["model_type"])
    return SAME.get(model_type, model_type)


@pytest.mark.parametrize("name", FILES)
def test_a_field_that_is_not_null_in_its_class_is_refused_as_null(name: str):
    config = FILES[name]
    section = "text_config" if "text_config" in config else None
    values = config[section] if section else config
    assert isinstance(values, Mapping)
    fields = not_null(family_of(values)) & values.keys()
    fields -= {"tie_word_embeddings"} if section else set()  # which the whole file may say
    for field in fields if family_of(values) in FAMILIES else ():
        changed = {**values, field: None}
        with pytest.raises(SpecError, match=f"{field}' is null: give its value"):
            read_config({**config, section: changed} if section else changed, "x")


@pytest.mark.parametrize(
    ("model_type", "field"),
    [
        ("arcee", "intermediate_size"),
        ("beam", "num_experts"),
        ("qwen3_moe", "num_local_experts"),
        ("llama", "tie_word_embeddings"),
    ],
)
def test_a_null_never_drops_a_part_of_a_model(model_type: str, field: str):
    assert field in not_null(model_type)


def test_a_null_is_taken_where_the_class_takes_one():
    for field in ("num_key_value_heads", "head_dim"):
        assert field not in not_null("llama")
    assert "n_inner" not in not_null("gpt2")
    assert "sliding_window" not in not_null("mistral")


def with_many(values: Config) -> Iterator[Config]:
    """The file with each whole number of it, or all of a list, changed to a large one."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from ({**values, name: one} for one in with_many(value))
        elif isinstance(value, int) and not isinstance(value, bool):
            yield {**values, name: MANY}
        elif isinstance(value, list) and value and isinstance(value[0], int):
            yield {**values, name: [MANY] * len(value)}


@pytest.mark.parametrize("name", FILES if Request.full else ONE_OF_EACH)
def test_a_large_number_is_read_or_refused_at_once(name: str):
    for config in with_many(FILES[name]):
        before = time.process_time()
        tracemalloc.start()
        try:
            read_config(config, "x")
        except PlanError:
            pass
        finally:
            _, most_bytes = tracemalloc.get_traced_memory()
            tracemalloc.stop()
        assert time.process_time() - before < 0.5
        assert most_bytes < 20_000_000


@pytest.mark.parametrize("model_type", ["solar_open", "longcat_flash", "llama"])
def test_many_layers_are_refused_with_their_field(model_type: str):
    config = CLASSES[f"{model_type} small"]
    name = "num_layers" if model_type == "longcat_flash" else "num_hidden_layers"
    with pytest.raises(SpecError, match=f"'{name}' must be a positive integer of at most 1,024"):
        read_config({**config, name: MANY}, "x")
