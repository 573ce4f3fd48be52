"""Options for attention and positions."""

from collections.abc import Iterator

from trainplan.costmodel.architecture import MlaSpec, ModelSpec
from trainplan.planner.launch import Argument
from trainplan.planner.runtimes.megatron_lm import keys
from trainplan.planner.runtimes.megatron_lm.write.hybrid import variant_arguments
from trainplan.planner.runtimes.megatron_lm.write.rope import rope_arguments

POSITIONS = {"rope": "rope", "learned": "learned_absolute", "none": "none"}


def attention_arguments(model: ModelSpec) -> Iterator[Argument]:
    """Heads, groups, latent attention, windows, sinks, norms on queries and keys, positions."""
    if model.mla:
        yield from _latent(model.mla)
    else:
        yield keys.CHANNELS(model.head_dim)
        if model.num_key_value_heads != model.num_attention_heads:
            yield keys.GROUPED()
            yield keys.GROUPS(model.num_key_value_heads)
    if _qk_norm(model):
        yield keys.QK_NORM()
    if model.attention_sinks:
        yield keys.SOFTMAX("learnable")
    if model.num_sliding_window_layers:
        yield from _window(model)
    yield from variant_arguments(model)
    yield keys.POSITIONS(_positions(model))
    if model.position_embedding == "rope":
        yield from rope_arguments(model)


def _positions(model: ModelSpec) -> str:
    """Kind of positions; outside latent attention YaRN is a kind of its own."""
    scaling = model.rope_scaling
    yarn = scaling is not None and scaling.rope_type == "yarn" and model.mla is None
    if not yarn or model.position_embedding != "rope":
        return POSITIONS[model.position_embedding]
    return "yarn"


def _latent(mla: MlaSpec) -> Iterator[Argument]:
    yield keys.LATENT()
    if mla.q_lora_rank:
        yield keys.Q_RANK(mla.q_lora_rank)
    yield keys.KV_RANK(mla.kv_lora_rank)
    yield keys.QK_CHANNELS(mla.qk_nope_head_dim)
    yield keys.ROTARY_CHANNELS(mla.qk_rope_head_dim)
    yield keys.V_CHANNELS(mla.v_head_dim)
    yield keys.CHANNELS(mla.v_head_dim)


def _qk_norm(model: ModelSpec) -> bool:
    """Latent attention always norms its compressed queries and keys (arXiv:2405.04434, 2.1.2)."""
    return model.mla is not None or model.qk_norm == "head"


def _window(model: ModelSpec) -> Iterator[Argument]:
    """`--window-size LEFT,RIGHT`: positions seen besides the token's own; which layers have it.

    Every n-th layer sees all, or a list gives those that do not a 1.
    Source: Megatron-LM `core/transformer/utils.py`, is_layer_window_attention.
    """
    assert model.sliding_window is not None
    yield keys.WINDOW(f"{model.sliding_window - 1},0")
    slides = [kind == "sliding_attention" for kind in model.mixers]
    if all(slides):
        return
    every = slides.index(False) + 1
    if slides == [(i + 1) % every != 0 for i in range(len(slides))]:
        yield keys.WINDOW_SKIPS(every)
    else:
        yield keys.WINDOW_SKIPS(_list_text([int(one) for one in slides]))


def _list_text(values: list[int]) -> str:
    return "[" + ",".join(str(value) for value in values) + "]"
