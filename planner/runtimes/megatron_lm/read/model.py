"""The shape of the network: the inverse of the exporter's `model`, `attention` and `rope`."""

from collections.abc import Iterator

from trainplan.costmodel.architecture import (
    FeedForward,
    LinearAttentionSpec,
    Mixer,
    MlaSpec,
    ModelSpec,
    MoeSpec,
    RopeScaling,
    placed_layers,
)
from trainplan.planner.runtimes.megatron_lm import keys
from trainplan.planner.runtimes.megatron_lm.read.arguments import Arguments
from trainplan.planner.runtimes.megatron_lm.read.moe import expert_layers, mlp_width, read_experts
from trainplan.planner.runtimes.megatron_lm.read.releases import GATED_GELU

POSITIONS = {"rope": "rope", "yarn": "rope", "mrope": "rope", "none": "none"}
"""Kinds of the cost model; all others are tables."""
LINEAR = ("gdn", "gated_delta_net")
"""Names of linear attention by the gated delta rule, the second an older one."""
OUTPUT_GATE = "attention_output_gate"
NORMS = {"RMSNorm": "rmsnorm", "LayerNorm": "layernorm"}


MOST_LAYERS = 1 << 16
"""More would fill the memory, and no run has them."""


def num_layers(arguments: Arguments) -> int | None:
    """Decoder layers; null: none are said, or too many."""
    stated = arguments.whole(keys.LAYERS) or arguments.whole("encoder_num_layers")
    return stated if stated and 0 < stated <= MOST_LAYERS else None


def head_dim(arguments: Arguments) -> int:
    """Channels of a head; of latent attention those of queries and keys."""
    if arguments.on(keys.LATENT):
        return arguments.count(keys.QK_CHANNELS) + arguments.count(keys.ROTARY_CHANNELS)
    heads = arguments.count(keys.HEADS, 1)
    return arguments.whole(keys.CHANNELS) or arguments.count(keys.HIDDEN) // heads


def key_value_heads(arguments: Arguments) -> int:
    """Groups, which count only beside `--group-query-attention`."""
    if arguments.on(keys.GROUPED):
        return arguments.count(keys.GROUPS, 1)
    return arguments.count(keys.HEADS)


def positions(arguments: Arguments) -> str:
    """Kind of positions in the runtime's words."""
    if arguments.on("use_rotary_position_embeddings"):
        return "rope"
    return arguments.text(keys.POSITIONS)


def model_fields(arguments: Arguments, vocab_size: int) -> dict[str, object]:
    """Fields of `ModelSpec` but the name."""
    biased, layers = arguments.on(keys.BIASES), num_layers(arguments)
    experts = read_experts(arguments, layers or 0)
    dense = experts is None or experts.first_k_dense_replace > 0 or experts.moe_layer_freq > 1
    latent = arguments.on(keys.LATENT)
    kind = POSITIONS.get(positions(arguments), "learned")
    return {
        "num_hidden_layers": layers,
        "hidden_size": arguments.whole(keys.HIDDEN),
        "intermediate_size": mlp_width(arguments),
        "num_attention_heads": arguments.whole(keys.HEADS),
        "num_key_value_heads": key_value_heads(arguments),
        "head_dim": head_dim(arguments),
        "vocab_size": vocab_size,
        "max_position_embeddings": arguments.whole(keys.MAX_POSITIONS),
        "position_embedding": kind,
        "norm": NORMS[arguments.text(keys.NORM)],
        "norm_eps": arguments.number(keys.EPSILON),
        "qkv_bias": biased or arguments.on(keys.QKV_BIAS),
        "attention_output_bias": biased,
        "mlp_bias": biased and dense,
        "qk_norm": "head" if arguments.on(keys.QK_NORM) and not latent else "none",
        "attention_sinks": arguments.text(keys.SOFTMAX) == "learnable",
        "tie_word_embeddings": not arguments.on(keys.UNTIED),
        "num_nextn_predict_layers": arguments.count(keys.PREDICTIONS),
        "mla": _latent(arguments) if latent else None,
        **({"attention_output_gate": "elementwise"} if arguments.on(OUTPUT_GATE) else {}),
        **_activation(arguments),
        **_window(arguments, layers or 0, experts),
        **(_rope(arguments, latent=latent) if kind == "rope" else {}),
    }


def _latent(arguments: Arguments) -> MlaSpec:
    return MlaSpec(
        q_lora_rank=arguments.whole(keys.Q_RANK),
        kv_lora_rank=arguments.count(keys.KV_RANK),
        qk_nope_head_dim=arguments.count(keys.QK_CHANNELS),
        qk_rope_head_dim=arguments.count(keys.ROTARY_CHANNELS),
        v_head_dim=arguments.count(keys.V_CHANNELS),
    )


def _activation(arguments: Arguments) -> dict[str, object]:
    """GELU where nothing is said: by tanh in the kernel that adds a bias as well, else exact."""
    clamp = {"swiglu_limit": arguments.number(keys.CLAMP)}
    if arguments.on(keys.SWIGLU):
        return {"activation": "silu", "gated_mlp": True, **clamp}
    if arguments.on(keys.QUICK_GEGLU):
        return {"activation": "silu", "gated_mlp": True, "model_type": "gpt_oss", **clamp}
    if any(name in arguments.own for name in GATED_GELU):
        return {"activation": "gelu_tanh", "gated_mlp": True}
    if arguments.on(keys.SQUARED_RELU):
        return {"activation": "relu2", "gated_mlp": False}
    fused = arguments.on(keys.GELU_FUSION) and arguments.on(keys.BIASES)
    return {"activation": "gelu_tanh" if fused else "gelu", "gated_mlp": False}


def _window(arguments: Arguments, layers: int, experts: MoeSpec | None) -> dict[str, object]:
    """Every n-th layer sees all, or those a list gives 0; others have windows, or are linear."""
    window, skip = arguments.integers(keys.WINDOW), arguments.value(keys.WINDOW_SKIPS)
    if not layers:
        return {"moe": experts}
    feed_forwards = _feed_forwards(arguments, layers, experts)
    if arguments.text(keys.VARIANT) in LINEAR:
        linears = _but_every(arguments.value("linear_attention_freq"), layers)
        kinds: list[Mixer] = ["linear_attention" if one else "full_attention" for one in linears]
        placed = placed_layers(kinds, experts, feed_forwards)
        return {"linear_attention": _linear(arguments), **placed}
    if len(window) != 2:
        return placed_layers(["full_attention"] * layers, experts, feed_forwards)
    slides = _but_every(skip, layers)
    mixers: list[Mixer] = ["sliding_attention" if one else "full_attention" for one in slides]
    return {"sliding_window": window[0] + 1, **placed_layers(mixers, experts, feed_forwards)}


def _but_every(pattern: object, layers: int) -> list[bool]:
    """All layers but each n-th, or those that a list gives 1; without either all."""
    if isinstance(pattern, int) and pattern > 0:
        return [(i + 1) % pattern != 0 for i in range(layers)]
    if isinstance(pattern, tuple) and len(pattern) == layers:
        return [one == 1 for one in pattern]
    return [True] * layers


def _linear(arguments: Arguments) -> LinearAttentionSpec:
    """Source: Megatron-LM @d98e8a64 `core/transformer/transformer_config.py:363`."""
    return LinearAttentionSpec(
        num_key_heads=arguments.count("linear_num_key_heads"),
        num_value_heads=arguments.count("linear_num_value_heads"),
        key_head_dim=arguments.count("linear_key_head_dim"),
        value_head_dim=arguments.count("linear_value_head_dim"),
        conv_kernel=arguments.count("linear_conv_kernel_dim"),
    )


def _feed_forwards(
    arguments: Arguments, layers: int, experts: MoeSpec | None
) -> tuple[FeedForward, ...]:
    places = expert_layers(arguments, layers) if experts else (False,) * layers
    if experts and len(places) != layers:
        return experts.placed(layers)
    return tuple("moe" if one else "mlp" for one in places)


def _rope(arguments: Arguments, *, latent: bool) -> dict[str, object]:
    return {
        "rope_theta": float(arguments.count(keys.ROTARY_BASE)),
        "partial_rotary_factor": 1.0 if latent else arguments.number(keys.ROTARY_PERCENT),
        "rope_scaling": _latent_scaling(arguments) if latent else _scaling(arguments),
    }


def _latent_scaling(arguments: Arguments) -> RopeScaling | None:
    """YaRN unless told otherwise; with a factor of 1 it scales nothing."""
    factor = arguments.number(keys.YARN_FACTOR) or 1.0
    if arguments.text(keys.ROPE_TYPE) == "rope" or factor == 1.0:
        return None
    return RopeScaling(rope_type="yarn", factor=factor, **dict(_strengths(arguments)))


def _scaling(arguments: Arguments) -> RopeScaling | None:
    if positions(arguments) == "yarn":
        return RopeScaling(
            rope_type="yarn",
            factor=arguments.number(keys.YARN_FACTOR) or 1.0,
            original_max_position_embeddings=arguments.whole(keys.YARN_LENGTH),
            beta_fast=arguments.number(keys.YARN_FAST),
            beta_slow=arguments.number(keys.YARN_SLOW),
            truncate=None if arguments.on(keys.YARN_ROUNDED) else False,
            **dict(_strengths(arguments)),
        )
    if arguments.on(keys.LLAMA_SCALING):
        factor = arguments.number(keys.LLAMA_FACTOR) or 8.0
        return RopeScaling(rope_type="llama3", factor=factor)
    stretch = arguments.whole(keys.INTERPOLATION)
    return RopeScaling(rope_type="linear", factor=stretch) if stretch else None


def _strengths(arguments: Arguments) -> Iterator[tuple[str, float | None]]:
    """Only what is written: the runtime's defaults are those of a model that says nothing."""
    for name in ("mscale", "mscale_all_dim"):
        yield name, (arguments.number(name) or None) if name in arguments else None


def read_model(arguments: Arguments, vocab_size: int) -> ModelSpec:
    """The network of a launch that names its shape.

    Raises:
        ValidationError: The sizes make none.
    """
    return ModelSpec.model_validate(model_fields(arguments, vocab_size))
