"""The page on a new model family is followed to the letter: a line of a table is all."""

import re
from pathlib import Path

import pytest

from trainplan.costmodel.base import SpecError
from trainplan.costmodel.families import model_from_config, registry
from trainplan.costmodel.families.family import Family
from trainplan.costmodel.model.params import num_parameters

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "add-a-rule-or-exporter.md"
SECTION = PAGE.read_text("utf-8").split("\n## A model family\n")[1].split("\n## ")[0]
LINES = re.findall(r"^```python\n(.*?)^```$", SECTION, re.MULTILINE | re.DOTALL)
PLAIN = {
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "vocab_size": 100,
    "max_position_embeddings": 128,
}
"""What a plain `config.json` says, and nothing else."""


@pytest.fixture(autouse=True)
def _added(monkeypatch):
    lines = eval("{" + "".join(LINES) + "}", {"Family": Family})
    monkeypatch.setattr(registry, "FAMILIES", {**registry.FAMILIES, **lines})


def read(model_type, **changes):
    return model_from_config({**PLAIN, "model_type": model_type, **changes}, "mine")


def test_a_line_alone_reads_a_plain_file_as_a_llama():
    mine, llama = read("mymodel"), read("llama")
    assert num_parameters(mine) == num_parameters(llama)
    assert mine.model_copy(update={"model_type": "llama"}) == llama
    assert not mine.read_by_fields


def test_a_plain_file_may_say_its_heads():
    mine = read("mymodel", head_dim=32, num_key_value_heads=2)
    assert (mine.head_dim, mine.num_key_value_heads) == (32, 2)


@pytest.mark.parametrize("field", PLAIN)
def test_what_its_file_lacks_is_named(field):
    config = {name: value for name, value in PLAIN.items() if name != field}
    with pytest.raises(SpecError, match=f"'mymodel' lacks '{field}': add it"):
        model_from_config({**config, "model_type": "mymodel"}, "mine")


def test_a_line_says_what_the_code_fixes_and_a_function_gives_the_rest():
    mine = read("mymodel2", head_dim=16, attention_bias=True)
    assert (mine.qk_norm, mine.rope_theta, mine.intermediate_size) == ("head", 5e5, 192)
    assert (mine.qkv_bias, mine.attention_output_bias) == (True, False)


def test_what_a_line_needs_is_named():
    with pytest.raises(SpecError, match="'mymodel2' lacks 'head_dim': add it"):
        read("mymodel2")
