"""What is written for a model that Megatron-Bridge builds from its Hugging Face configuration.

The configuration says the shape, and the bridge the fusions of layers that are its own.
"""

from collections.abc import Iterable, Iterator

from trainplan.costmodel.base import UnsupportedError
from trainplan.costmodel.families import Bridge
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.runtimes import RUNTIMES, RuntimeTraits, is_hybrid
from trainplan.planner.launch import Argument, RequiredVariable, assigned, option
from trainplan.planner.runtimes.exporter import with_traits
from trainplan.planner.runtimes.megatron_lm import keys
from trainplan.planner.runtimes.megatron_lm.write import run_arguments, written_model
from trainplan.planner.runtimes.megatron_lm.write.model import DROPOUT, VOCAB_MULTIPLE
from trainplan.planner.runtimes.megatron_lm.write.moe import dispatch_arguments
from trainplan.planner.runtimes.megatron_lm.write.notes import layout_notes, training_notes
from trainplan.planner.runtimes.megatron_lm.write.pipeline import pipeline_arguments
from trainplan.planner.runtimes.training_script.write import model_called

SAMPLES = RequiredVariable(
    "DATA_PATH", "the conversations with their samples: a dataset of Hugging Face, name or folder"
)
OF_TEXT = frozenset({"--split", "--dataloader-inter-document-masking", "--eval-iters"})
"""Options of a dataset of tokens, and of an evaluation on parts of it."""
FUSIONS = frozenset({keys.GELU_FUSION.flag, "--no-bias-dropout-fusion", "--no-rope-fusion"})
OWN = frozenset(
    f"model.{name}"
    for name in (
        *("bias_activation_fusion", "bias_dropout_fusion", "apply_rope_fusion"),
        *("gradient_accumulation_fusion", "masked_softmax_fusion", "persist_layer_norm"),
        "attention_softmax_in_fp32",
    )
)
"""Keys that a bridge sets for layers of its own."""


@with_traits
def built_arguments(
    job: Job, traits: RuntimeTraits, layout: Layout, bridge: Bridge
) -> tuple[Argument, ...]:
    """Options of Megatron-LM for all but the shape of the model.

    Raises:
        UnsupportedError: The layout or the job has something no option expresses.
    """
    run = run_arguments(job, layout, traits)
    left_out = OF_TEXT if bridge.has_tower else frozenset()
    fusions = (one for one in written_model(job) if one.flag in FUSIONS) if _plain(job) else ()
    return (
        *_around(job, traits),
        *fusions,
        *(one for one in run if one.flag not in {keys.LAYER_PATTERN.flag, *left_out}),
    )


def _plain(job: Job) -> bool:
    """Are its layers those of a GPT of Megatron Core?"""
    try:
        return not RUNTIMES["megatron-lm"].refuses(job.model) and bool(tuple(written_model(job)))
    except UnsupportedError:
        return False


def _around(job: Job, traits: RuntimeTraits) -> Iterator[Argument]:
    """What a run sets of a model: length, padding, dropout, and how tokens reach their experts."""
    yield keys.LENGTH(job.training.seq_length)
    yield option("model", "--make-vocab-size-divisible-by", VOCAB_MULTIPLE)
    dropout = DROPOUT if traits.kernels.dropout else 0.0
    yield keys.HIDDEN_DROPOUT(dropout)
    yield keys.ATTENTION_DROPOUT(dropout)
    if job.model.moe is not None:
        yield from dispatch_arguments(job, traits)


def without_its_own(arguments: Iterable[Argument], job: Job) -> Iterator[Argument]:
    """Without fusions that only layers of Megatron Core are known to have."""
    plain = _plain(job)
    return (one for one in arguments if plain or one.flag not in OWN)


def built_keys(job: Job, layout: Layout) -> Iterator[Argument]:
    """Keys that no option of Megatron-LM stands for."""
    model = job.model
    modules = model.num_nextn_predict_layers
    yield assigned("model", "model.mtp_num_layers", str(modules) if modules else "null")
    if is_hybrid(model):
        written = {one.flag: one.values for one in pipeline_arguments(model, layout)}
        (pattern,) = written[keys.LAYER_PATTERN.flag]
        assert isinstance(pattern, str)
        stages = pattern.partition("/")[0]  # the bridge adds what predicts further tokens
        yield assigned("layout", "model.hybrid_layer_pattern", f'"{stages}"')
    shared = model.moe and model.moe.shared_expert_intermediate_size
    if shared and not job.options.overlap_shared_experts:  # some bridges do by themselves
        yield assigned("layout", "model.moe_shared_expert_overlap", "false")
    if layout.recompute == "none":  # some bridges recompute by themselves
        yield assigned("layout", "model.recompute_granularity", "null")
    if tower := model.tower:
        parts = {"none": (), "encoder": ("model",), "all": ("model", "projection")}[tower.frozen]
        for part in parts:
            yield assigned("model", f"model.freeze_{tower.modality}_{part}", "true")
        yield assigned("data", "validation.eval_iters", "0")


def hf_model(job: Job) -> RequiredVariable:
    """Where the configuration comes from."""
    called = model_called(job)
    known = f", such as {called}" if called and "/" in called else ""
    return RequiredVariable(
        "HF_MODEL", f"the model{known}: a name on Hugging Face, or a folder with its config.json"
    )


@with_traits
def built_notes(job: Job, traits: RuntimeTraits, layout: Layout, bridge: Bridge) -> tuple[str, ...]:
    """One sentence each."""
    return (
        *training_notes(job),
        *layout_notes(job, layout, traits),
        *_model_notes(job, bridge),
    )


def _model_notes(job: Job, bridge: Bridge) -> Iterator[str]:
    model = job.model
    weights = (
        "the frozen weights are those of PRETRAINED_CHECKPOINT"
        if model.trained
        else "LOAD_WEIGHTS=1 starts from its weights, and otherwise they are drawn anew"
    )
    yield (
        "the recipe compares layers, widths and vocabulary of HF_MODEL with the plan, and nothing "
        f"else of it; {weights}"
    )
    if bridge.remote:
        yield "HF_MODEL brings code of its own for its configuration, which is run: trust it first"
    if model.left_out and not bridge.has_tower:
        yield f"the decoder of HF_MODEL is trained without its {model.left_out}, as planned"
    elif bridge.has_tower and model.tower is None:
        yield f"Bridge builds {bridge.architecture} with its tower, which the plan does not price"
    if model.tower:
        yield (
            f"a sequence has {model.tower.samples_per_sequence} samples in the plan: choose the "
            "data accordingly; nothing is evaluated in between"
        )
