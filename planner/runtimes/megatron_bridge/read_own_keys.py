"""Keys as the configuration of the release has them, and those that it has not."""

from collections.abc import Mapping
from difflib import get_close_matches

from trainplan.planner.runtimes.megatron_bridge.read_recipes import Recipe
from trainplan.planner.runtimes.megatron_bridge.write import COMMIT
from trainplan.planner.runtimes.megatron_bridge.write import MEGATRON_BRIDGE as EXPORTER
from trainplan.planner.runtimes.megatron_lm.read.releases import listed
from trainplan.planner.runtimes.reading import OF_RECIPE
from trainplan.planner.shell import Problem, Verdict, Word

NESTED = "model.transformer."


def own_keys(
    keys: Mapping[str, Word], recipe: Recipe | None, *, strict: bool
) -> tuple[dict[str, Word], tuple[Problem, ...]]:
    """Keys as those of a flat model, and those that the configuration does not have."""
    known = EXPORTER.flags
    own: dict[str, Word] = {}
    unknown: dict[str, Word] = {}
    problems: list[Problem] = []
    for key, word in keys.items():
        nested, flat = key.startswith(NESTED), key.replace(NESTED, "model.", 1)
        wants = recipe is not None and recipe.nested and flat in _of_transformer(known)
        if flat.startswith("model.") and nested != wants:
            right = flat if nested else flat.replace("model.", NESTED, 1)
            sure = strict or (recipe and recipe.file != OF_RECIPE.file)
            says = f"the model of this recipe has no {key[:80]} at {COMMIT[:8]}: write {right[:80]}"
            verdict: Verdict = "illegal" if sure else "unread"
            problems.append(Problem("unknown_key", verdict, says, word.place))
        elif "." in flat and flat.partition(".")[0] in _sections(known) and flat not in known:
            unknown[key] = word
            if strict:
                near = get_close_matches(flat, known, 1)
                hint = f": did you mean {near[0]}?" if near else ", leave it out"
                says = f"the configuration has no {key[:80]}{hint}"
                problems.append(Problem("unknown_key", "illegal", says, word.place))
        own[flat] = word
    if unknown and not strict:
        says = f"{listed(list(unknown))}: own of a fork or another release; the price is without"
        problems.append(Problem("unknown_key", "unread", says, next(iter(unknown.values())).place))
    return own, tuple(problems)


def nested_key(name: str) -> str:
    """A key where a nested model has it."""
    known = EXPORTER.flags
    return name.replace("model.", NESTED, 1) if name in _of_transformer(known) else name


OF_BUILDER = frozenset(
    f"model.{name}"
    for name in (
        "vocab_size",
        "should_pad_vocab",
        "make_vocab_size_divisible_by",
        "seq_length",
        "position_embedding_type",
        "rotary_base",
        "rotary_percent",
        "rope_scaling",
        "rope_scaling_factor",
        "seq_len_interpolation_factor",
        "share_embeddings_and_output_weights",
        "parallel_output",
        "fp16_lm_cross_entropy",
        "scatter_embedding_sequence_parallel",
        "use_transformer_engine_full_layer_spec",
    )
)
"""Keys beside those of a nested transformer. Source: `models/gpt/gpt_builder.py`."""


def _of_transformer(known: frozenset[str]) -> frozenset[str]:
    return known - OF_BUILDER


def _sections(known: frozenset[str]) -> frozenset[str]:
    return frozenset(key.partition(".")[0] for key in known)
