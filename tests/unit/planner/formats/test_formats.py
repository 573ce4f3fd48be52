"""Whose configuration a file is: by the keys that only its format has."""

import pytest

from trainplan.planner.formats import FORMATS, document_of, format_of

FILES = {
    "axolotl": "base_model: a/b\nsequence_len: 4096\nfsdp_config: {}\nmixed_precision: bf16\n",
    "llama_factory": "model_name_or_path: a/b\nstage: sft\nfinetuning_type: full\n",
    "nemo1": "trainer: {num_nodes: 4}\nexp_manager: {}\nmodel: {tensor_model_parallel_size: 4}\n",
    "accelerate": "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\n",
    "deepspeed": "zero_optimization: {stage: 3}\n",
    "": "answer: 42\n",
}


@pytest.mark.parametrize("name", FILES)
def test_a_format_is_known_by_keys_that_only_it_has(name: str) -> None:
    [document] = document_of(FILES[name], ".yaml")
    assert format_of(document) == name


def test_tags_of_other_programs_are_no_error_and_are_not_followed() -> None:
    [document] = document_of("a: !include other.yaml\nb: !!python/name:os.system x\n", ".yaml")
    assert document == {"a": "other.yaml", "b": "x"}


def test_documents_of_one_file_are_read_one_by_one() -> None:
    assert document_of("kind: A\n---\n- 1\n---\nkind: B\n", ".yaml") == (
        {"kind": "A"},
        {"kind": "B"},
    )


@pytest.mark.parametrize(
    ("text", "suffix"),
    [("a: [", ".yaml"), ("{", ".json"), ("[" * 100_000, ".json"), ("=", ".toml")],
)
def test_what_cannot_be_read_has_no_documents(text: str, suffix: str) -> None:
    assert document_of(text, suffix) == ()


def test_a_larger_yaml_than_any_configuration_is_not_parsed() -> None:
    assert document_of("".join(f"k{n}: {n}\n" for n in range(150_000)), ".yaml") == ()


def test_every_format_has_keys_and_a_source() -> None:
    assert all(one.own and all(one.own) and one.source for one in FORMATS.values())
