"""Options for rotary positions and their scaling to longer sequences.

Source: Megatron-LM `megatron/training/argument_utils.py`, `_apply_yarn_config_from_args`: the
`--yarn-` options are read outside latent attention only; `MLATransformerConfig` has its own fields,
which have no options (`transformer_config.py:3318`).
"""

from collections.abc import Iterator

from trainplan.costmodel.architecture import ModelSpec, RopeScaling
from trainplan.planner.launch import Argument, switch
from trainplan.planner.runtimes.megatron_lm import keys

YARN_LENGTH, YARN_BETA_FAST, YARN_BETA_SLOW = 4096, 32.0, 1.0
"""What latent attention uses. Source: `transformer_config.py:3318`."""
LLAMA_LENGTH, LLAMA_LOW, LLAMA_HIGH = 8192, 1.0, 4.0
"""What Llama 3 scaling uses. Source: `rotary_pos_embedding.py:95`."""


def rope_arguments(model: ModelSpec) -> Iterator[Argument]:
    """Base, rotated part and scaling."""
    yield keys.ROTARY_BASE(int(model.rope_theta))
    scaling = model.rope_scaling
    if model.mla:
        yield from _latent_rope(scaling)
        return
    if model.partial_rotary_factor != 1.0:
        yield keys.ROTARY_PERCENT(model.partial_rotary_factor)
    if scaling is None:
        return
    if scaling.rope_type == "yarn":
        yield from _yarn(scaling)
        yield from _yarn_ramp(scaling, model)
    elif scaling.rope_type == "llama3":
        yield keys.LLAMA_SCALING()
        yield keys.LLAMA_FACTOR(scaling.factor)
    elif scaling.rope_type == "linear":
        yield keys.INTERPOLATION(int(scaling.factor))


def _latent_rope(scaling: RopeScaling | None) -> Iterator[Argument]:
    """Latent attention: plain or YaRN; only YaRN has a fused kernel."""
    if scaling is None:
        yield keys.ROPE_TYPE("rope")
        yield switch("model", "--no-rope-fusion")
        return
    yield keys.ROPE_TYPE("yarn")
    yield from _yarn(scaling)


def _yarn(scaling: RopeScaling) -> Iterator[Argument]:
    """Stretch and strength of the attention logits: in every kind of attention."""
    yield keys.YARN_FACTOR(scaling.factor)
    if scaling.mscale is not None:
        yield keys.MSCALE(scaling.mscale)
    if scaling.mscale_all_dim is not None:
        yield keys.MSCALE_ALL(scaling.mscale_all_dim)


def _yarn_ramp(scaling: RopeScaling, model: ModelSpec) -> Iterator[Argument]:
    """Which dimensions are stretched: options outside latent attention only."""
    yield keys.YARN_LENGTH(_length(scaling, model))
    if scaling.beta_fast is not None:
        yield keys.YARN_FAST(scaling.beta_fast)
    if scaling.beta_slow is not None:
        yield keys.YARN_SLOW(scaling.beta_slow)
    if scaling.truncate is False:
        yield keys.YARN_ROUNDED.off()


def _length(scaling: RopeScaling, model: ModelSpec) -> int:
    """Length before scaling. Source: transformers `modeling_rope_utils.py` where it is not said."""
    return scaling.original_max_position_embeddings or model.max_position_embeddings


def rope_notes(model: ModelSpec) -> Iterator[str]:
    """Numbers of the scaling that no option says and that the runtime has another value for."""
    scaling = model.rope_scaling
    if scaling is None or model.position_embedding != "rope":
        return
    for name, wanted, used in _fixed(scaling, model):
        if wanted is not None and wanted != used:
            yield (
                f"rope_scaling.{name} = {wanted} has no option for this kind of attention: the "
                f"runtime uses {used}"
            )


def _fixed(scaling: RopeScaling, model: ModelSpec) -> tuple[tuple[str, float | None, float], ...]:
    """(name, value of the model, value of the runtime) where no option sets it."""
    if scaling.rope_type == "yarn" and model.mla:
        return (
            ("original_max_position_embeddings", _length(scaling, model), YARN_LENGTH),
            ("beta_fast", scaling.beta_fast, YARN_BETA_FAST),
            ("beta_slow", scaling.beta_slow, YARN_BETA_SLOW),
            ("truncate", scaling.truncate, True),
        )
    if scaling.rope_type == "llama3":
        return (
            (
                "original_max_position_embeddings",
                scaling.original_max_position_embeddings,
                LLAMA_LENGTH,
            ),
            ("low_freq_factor", scaling.low_freq_factor, LLAMA_LOW),
            ("high_freq_factor", scaling.high_freq_factor, LLAMA_HIGH),
        )
    return ()
