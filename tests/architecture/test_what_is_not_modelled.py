"""The page of what is not modelled denies nothing that an option, trait or model field has."""

import dataclasses
import re
from pathlib import Path

from pydantic import BaseModel

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.hardware import ClusterSpec
from trainplan.costmodel.job import RuntimeOptions, TrainingSpec
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.runtimes import RUNTIMES, RuntimeTraits

PAGE = Path(__file__).parents[2] / "docs/explanation/what-is-not-modelled.md"
BULLETS = [
    " ".join(one.split())
    for one in re.split(r"^\* ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
]
TRUE = {
    "offload_modules": "in a search where",
    "offload_activation_layers": "only in memory",
    "dp_replicate": "as measured",
    "shard": "its traffic is checked by none",
    **dict.fromkeys(("weight_bits", "gradient_bits"), "as measured"),
    **dict.fromkeys(("moe_dispatcher", "moe_dispatch_dtype"), "as measured"),
    "overlap_moe_a2a": "also where the other micro batch is in a dense layer",
    "routing": "unless `--option routing=`",
    "gradient_dtype": "unless `--option gradient_dtype=bf16`",
    "schedule": "`plan schedule` runs them",
    "precision": "that MS-AMP casts to fp8 and keeps",
}
"""Names on the page that the code has, with the words that say what of them is not priced."""
DENIED = {
    "Replicas of different speed": ("microbatches_per_replica",),
    "Encoder-decoders": ("encoder_layers", "num_decoder_layers", "is_encoder_decoder"),
    "Evaluation, and data loading": ("evaluation_interval", "eval_interval"),
    "`fused_group_mlp`": ("fused_group_mlp",),
    "no failed links": ("failed_links",),
    "Whether a setting that a search switches on": ("driver", "nccl", "deepep_build"),
}
"""Claims of the page, with names under which the code would have it."""
PRICED = {
    "n_group": r"node-limited|any node",
    "overlap_tp_comm": r"overlap of tensor.parallel",
    "overlap_moe_a2a": r"overlap of .*expert communication",
    "cuda_graph": r"cuda graphs",
    "moe_capacity_factor": r"capacity",
    "mean_experts_per_tok": r"experts that compute nothing are not",
    "pue": r"\bPUE\b",
    "hpz": r"secondary|second cop",
    "kg_co2_per_kwh": r"carbon",
    "mtbf_node_days": r"restarts are not",
}
"""What the code prices, with words of a line that denies it."""


def fields(one, seen=frozenset()):
    """Names of all fields of a class of ours, and of the classes of their values."""
    if one in seen:
        return
    pydantic = isinstance(one, type) and issubclass(one, BaseModel)
    if pydantic:
        kinds = {name: field.annotation for name, field in one.model_fields.items()}
    elif dataclasses.is_dataclass(one):
        kinds = {field.name: field.type for field in dataclasses.fields(one)}
    else:
        kinds = {}
    for name, kind in kinds.items():
        yield name
        for inner in (kind, *getattr(kind, "__args__", ())):
            yield from fields(inner, seen | {one})


CLASSES = (RuntimeOptions, TrainingSpec, ModelSpec, ClusterSpec, Layout, RuntimeTraits)
KNOWN = {name for one in CLASSES for name in fields(one)} | {
    field.name
    for traits in RUNTIMES.values()
    for part in (getattr(traits, one.name) for one in dataclasses.fields(traits))
    if dataclasses.is_dataclass(part)
    for field in dataclasses.fields(part)
}


def test_what_the_page_names_and_the_code_has_is_named_with_what_of_it_is_missing():
    for line in BULLETS:
        for quoted in re.findall(r"`([^`]+)`", line):
            for name in KNOWN.intersection(re.findall(r"[a-z_0-9]{5,}", quoted)):
                assert TRUE.get(name, f"a line of {name}") in line


def test_what_the_page_denies_no_field_of_the_code_has():
    text = " ".join(BULLETS)
    for claim, names in DENIED.items():
        assert claim in text
        assert not [one for one in KNOWN for name in names if re.search(rf"\b{name}\b", one)]


def test_the_page_does_not_deny_what_the_code_prices():
    for name, words in PRICED.items():
        assert name in KNOWN
        assert not [line for line in BULLETS if re.search(words, line, re.IGNORECASE)]


def test_no_setting_of_a_search_is_listed_as_left_out():
    chosen = {one.name for traits in RUNTIMES.values() for one in traits.settings}
    for line in BULLETS:
        if re.search(r"\bonly\b.* requests?\b|\bnot searched\b|\bnever searched\b", line):
            safe = [one for one in chosen if re.search(rf"\b{one}\b", line)]
            assert not safe
