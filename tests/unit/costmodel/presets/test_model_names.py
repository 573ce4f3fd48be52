"""Names of Hugging Face stand for the presets that have their architecture."""

import pytest

from trainplan.costmodel.base.errors import CatalogError
from trainplan.costmodel.model.params import num_parameters
from trainplan.costmodel.presets.presets import (
    preset,
    preset_config,
    preset_named,
    preset_names,
    repositories,
)


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("meta-llama/Llama-3.1-8B", "llama3.1-8b"),
        ("META-LLAMA/llama-3.1-8b-INSTRUCT", "llama3.1-8b"),
        ("meta-llama/Llama-3.1-405B-Instruct-FP8", "llama3.1-405b"),
        ("meta-llama/Llama-2-7b-chat-hf", "llama2-7b"),
        ("meta-llama/Llama-3.3-70B-Instruct", "llama3.1-70b"),
        ("Qwen/Qwen3-32B", "qwen3-32b"),
        ("Qwen/Qwen3-8B-Base", "qwen3-8b"),
        ("Qwen/Qwen3-30B-A3B-Instruct-2507", "qwen3-30b-a3b"),
        ("Qwen/Qwen3-235B-A22B-Thinking-2507-FP8", "qwen3-235b-a22b"),
        ("deepseek-ai/DeepSeek-V3-Base", "deepseek-v3"),
        ("deepseek-ai/DeepSeek-R1", "deepseek-v3"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"),
        ("google/gemma-2-9b-it", "gemma2-9b"),
        ("Llama-3.1-8B", "llama3.1-8b"),
        ("Llama3-8B", "llama3-8b"),
        ("gpt2", "gpt2"),
        ("openai-community/gpt2", "gpt2"),
    ],
)
def test_a_name_of_hugging_face_is_the_preset_with_its_architecture(typed: str, name: str):
    assert preset_named(typed) == name
    assert preset(typed) == preset(name)


@pytest.mark.parametrize(
    "typed",
    [
        "unsloth/Llama-3.1-8B",
        "meta-llama/Llama-3.1-8B-pruned",
        "mistralai/Mistral-7B-v0.3",
        "Qwen/Qwen3-15B",
        "/",
        "",
        "-instruct",
    ],
)
def test_an_owner_or_a_size_of_its_own_is_no_preset(typed: str):
    assert preset_named(typed) is None
    with pytest.raises(CatalogError, match="unknown model"):
        preset(typed)


def test_each_name_stands_for_one_preset_and_the_first_is_where_it_was_read():
    seen: dict[str, str] = {}
    for name in preset_names():
        source = str(preset_config(name)["_source"])
        called = repositories(name)
        assert bool(called) == source.startswith("https://huggingface.co/"), name
        if called:
            assert f"/{called[0]}" in source, name
        for one in called:
            assert one.count("/") == 1
            assert seen.setdefault(one.lower(), name) == name
            assert preset_named(one) == name


def test_other_sizes_of_a_family_are_other_presets():
    sizes = [num_parameters(preset(f"meta-llama/Llama-3.{n}")) for n in ("2-1B", "2-3B", "1-8B")]
    assert sizes == sorted(set(sizes))
