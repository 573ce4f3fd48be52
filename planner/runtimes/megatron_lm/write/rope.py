"""Options for rotary positions and their scaling to longer sequences.

Source: Megatron-LM `megatron/training/argument_utils.py`, `_apply_yarn_config_from_args`: the
`--yarn-` options are read outside latent attention only; `MLATransformerConfig` has its own fields,
which have no options (`transformer_config.py:3318`).
"""

from collections.abc import Iterator

from trainplan.costmodel.architecture import ModelSpec, RopeScaling
from trainplan.planner.launch import Argument, option, switch

YARN_LENGTH, YARN_BETA_FAST, YARN_BETA_SLOW = 4096, 32.0, 1.0
"""What latent attention uses. Source: `transformer_config.py:3318`."""
LLAMA_LENGTH, LLAMA_LOW, LLAMA_HIGH = 8192, 1.0, 4.0
"""What Llama 3 scaling uses. Source: `rotary_pos_embedding.py:95`."""


def rope_arguments(model: ModelSpec) -> Iterator[Argument]:
    """Base, rotated part and scaling."""
    yield option("model", "--rotary-base", int(model.rope_theta))
    scaling = model.rope_scaling
    if model.mla:
        yield from _latent_rope(scaling)
        return
    if model.partial_rotary_factor != 1.0:
        yield option("model", "--rotary-percent", model.partial_rotary_factor)
    if scaling is None:
        return
    if scaling.rope_type == "yarn":
        yield from _yarn(scaling)
        yield from _yarn_ramp(scaling, model)
    elif scaling.rope_type == "llama3":
        yield switch("model", "--use-rope-scaling")
        yield option("model", "--rope-scaling-factor", scaling.factor)
    elif scaling.rope_type == "linear":
        yield option("model", "--rotary-seq-len-interpolation-factor", int(scaling.factor))


def _latent_rope(scaling: RopeScaling | None) -> Iterator[Argument]:
    """Latent attention: plain or YaRN; only YaRN has a fused kernel."""
    if scaling is None:
        yield option("model", "--rope-type", "rope")
        yield switch("model", "--no-rope-fusion")
        return
    yield option("model", "--rope-type", "yarn")
    yield from _yarn(scaling)


def _yarn(scaling: RopeScaling) -> Iterator[Argument]:
    """Stretch and strength of the attention logits: in every kind of attention."""
    yield option("model", "--rotary-scaling-factor", scaling.factor)
    if scaling.mscale is not None:
        yield option("model", "--mscale", scaling.mscale)
    if scaling.mscale_all_dim is not None:
        yield option("model", "--mscale-all-dim", scaling.mscale_all_dim)


def _yarn_ramp(scaling: RopeScaling, model: ModelSpec) -> Iterator[Argument]:
    """Which dimensions are stretched: options outside latent attention only."""
    yield option("model", "--yarn-original-max-position-embeddings", _length(scaling, model))
    if scaling.beta_fast is not None:
        yield option("model", "--yarn-beta-fast", scaling.beta_fast)
    if scaling.beta_slow is not None:
        yield option("model", "--yarn-beta-slow", scaling.beta_slow)
    if scaling.truncate is False:
        yield switch("model", "--no-yarn-correction-range-round-to-int")


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
