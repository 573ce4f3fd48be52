"""Which model a launch means: a preset of its shape, and how many tokens its vocabulary has."""

import re
from collections.abc import Callable, Iterator
from functools import cache

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.base import PlanError
from trainplan.costmodel.job import Job
from trainplan.costmodel.presets import preset, preset_names
from trainplan.planner.launch import Argument
from trainplan.planner.runtimes.megatron_lm import keys
from trainplan.planner.runtimes.megatron_lm.read.arguments import Arguments, shown
from trainplan.planner.runtimes.megatron_lm.write import written_model

TOKENIZERS = {"GPT2BPETokenizer": 50_257, "Llama2Tokenizer": 32_000}
"""Entries of tokenizers that are one file. Source: gpt2 and Llama 2 (arXiv:2307.09288, 2.2)."""
OWN_FILES = {"GPT2BPETokenizer": r"gpt-?2", "Llama2Tokenizer": r"llama"}
"""Files that have so many entries, by their paths; others of the same kind have their own."""
FILES = ("vocab_file", "tokenizer_model", "merge_file")
ASSUMED = 131_072
"""Entries where nothing says any. Source: assumed; recent tokenizers have 128 k to 152 k."""
OF_NO_SHAPE = frozenset(
    {
        "name",
        "model_type",
        "max_position_embeddings",
        "rope_theta",
        "rope_scaling",
        "norm_eps",
        "head_dim",
        "partial_rotary_factor",
    }
)
"""Fields that move neither bytes nor operations; channels of a head are told by the other sizes."""
OF_NO_EXPERTS = frozenset({"n_group", "topk_group", "routed_scaling_factor", "norm_topk_prob"})


def _shape(model: ModelSpec, *, vocabulary: bool) -> dict[str, object]:
    shape = {name: value for name, value in model if name not in OF_NO_SHAPE}
    moe = model.moe
    shape["moe"] = moe and {name: value for name, value in moe if name not in OF_NO_EXPERTS}
    if not vocabulary:
        del shape["vocab_size"]
    return shape


@cache
def _shapes(*, vocabulary: bool) -> tuple[tuple[ModelSpec, dict[str, object]], ...]:
    """Presets and their shapes: a check that reads a launch again and again compares them all."""
    return tuple((p, _shape(p, vocabulary=vocabulary)) for p in map(preset, preset_names()))


def like(model: ModelSpec, *, vocabulary: bool) -> Iterator[ModelSpec]:
    """Presets of the same shape, the most alike first."""
    wanted = _shape(model, vocabulary=vocabulary)
    found = [one for one, shape in _shapes(vocabulary=vocabulary) if shape == wanted]
    longest = model.max_position_embeddings

    def unlike(one: ModelSpec) -> tuple[int, bool]:
        alike = sum(a == b for a, b in zip(one, model, strict=True))
        return -alike, one.max_position_embeddings < longest

    yield from sorted(found, key=unlike)


def named(job: Job, request: ModelSpec | None) -> Job:
    """The job with the model's name, where the asked one or a preset has its shape.

    One whose launch would be word for word the same is the model, with what no option says.
    """
    shape = _shape(job.model, vocabulary=True)
    own = request if request and _shape(request, vocabulary=True) == shape else None
    alike = own or next(like(job.model, vocabulary=True), None)
    if alike is None:
        return job
    stated = {"max_position_embeddings": job.model.max_position_embeddings}
    whole = job.model_copy(update={"model": alike.model_copy(update=stated)})
    if _words(whole) == _words(job):
        return whole
    renamed = {"name": alike.name, "model_type": alike.model_type}
    return job.model_copy(update={"model": job.model.model_copy(update=renamed)})


def _words(job: Job) -> tuple[Argument, ...]:
    """What the exporter writes of a model; nothing where it refuses."""
    try:
        return tuple(written_model(job))
    except PlanError:
        return ()


def vocabulary(
    arguments: Arguments, model_of: Callable[[str], ModelSpec | None]
) -> tuple[int | None, str]:
    """Entries that the launch states or its tokenizer has, and whose they are where assumed.

    Null: nothing says any. A tokenizer that reads a file has as many as the file.
    """
    stated = arguments.whole("padded_vocab_size") or arguments.whole(keys.VOCABULARY)
    if stated:
        return stated, ""
    kind = arguments.text(keys.TOKENIZER)
    known = (arguments.given[dest] for dest in FILES if dest in arguments)
    files = [str(one.value) for one in known if not one.unresolved]
    if not kind and any(re.search(OWN_FILES["GPT2BPETokenizer"], one, re.I) for one in files):
        kind = "GPT2BPETokenizer"
    if kind not in TOKENIZERS:
        model = next((model for one in files if (model := model_of(one))), None)
        return (model.vocab_size, "") if model else (None, "")
    is_own = not files or any(re.search(OWN_FILES[kind], one, re.I) for one in files)
    whose = (
        "" if is_own else f"as of the usual file of {kind}, and {shown(files[0])} may be another"
    )
    return TOKENIZERS[kind], whose
