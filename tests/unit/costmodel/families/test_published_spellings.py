"""Files as their publishers write them, where transformers writes them otherwise."""

import pytest

from tests.golden.decoder_counts import recorded
from trainplan.costmodel.architecture.model import ModelSpec
from trainplan.costmodel.base.errors import SpecError, UnsupportedError
from trainplan.costmodel.families.reading import model_from_config
from trainplan.costmodel.model.params import num_active_parameters, num_parameters

SMALL = {one.model_type: one.config for one in recorded() if one.variant == "small"}


def written(model_type: str, *without: str, **changes: object) -> ModelSpec:
    config = {key: value for key, value in SMALL[model_type].items() if key not in without}
    return model_from_config({**config, **changes}, "mine")


def small(model_type: str) -> ModelSpec:
    return model_from_config(SMALL[model_type], "mine")


def test_qwen3_next_gives_an_interval_of_full_attention() -> None:
    model = written("qwen3_next", "layer_types", full_attention_interval=3)
    linear, full = "linear_attention", "full_attention"
    assert model.mixers == (linear, linear, full) * 2


def test_kimi_linear_counts_its_layers_from_one() -> None:
    lists = {"full_attn_layers": [4], "kda_layers": [1, 2, 3, 5, 6]}
    sizes = {"num_heads": 32, "head_dim": 128, "short_conv_kernel_size": 3}
    config = {"linear_attn_config": {**lists, **sizes}}
    model = written("kimi_linear", "layer_types", **config)
    assert model.mixers.index("full_attention") == 3
    assert model.mixers.count("full_attention") == 1
    assert model.linear_attention
    assert model.linear_attention.key_head_dim == 128


def test_kimi_linear_layers_named_twice_are_refused() -> None:
    sizes = {"num_heads": 32, "head_dim": 128, "short_conv_kernel_size": 3}
    lists = {"full_attn_layers": [4], "kda_layers": [1, 2, 3, 4, 5, 6], **sizes}
    with pytest.raises(SpecError, match="do not name each of the 6 layers once"):
        written("kimi_linear", "layer_types", linear_attn_config=lists)


def test_nemotron_h_writes_its_layers_as_one_word() -> None:
    left = ("layers_block_type", "layer_types", "num_hidden_layers")
    model = written("nemotron_h", *left, hybrid_override_pattern="M-*E")
    halves = [(kind.mixer, kind.feed_forward) for kind in model.kinds]
    assert halves == [
        ("mamba", "none"),
        ("none", "mlp"),
        ("full_attention", "none"),
        ("none", "moe"),
    ]


@pytest.mark.parametrize(
    ("word", "error", "says"),
    [
        ("M-X", UnsupportedError, "'hybrid_override_pattern' has 'X'"),
        ("M-", SpecError, "has 2 layers, 'num_hidden_layers' is 4"),
    ],
)
def test_a_word_that_is_none_of_its_layers_is_refused(
    word: str, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        left = ("layers_block_type", "layer_types")
        written("nemotron_h", *left, num_hidden_layers=4, hybrid_override_pattern=word)


def test_granite_4_calls_its_layers_mamba_and_attention() -> None:
    types = ["mamba", "attention", "mamba", "mamba", "mamba", "attention"]
    model = written("granitemoehybrid", layer_types=types)
    assert model.mixers.count("mamba") == 4


def test_a_granite_4_without_experts_has_the_shared_mlp_alone() -> None:
    model = written("granitemoehybrid", num_local_experts=0)
    assert model.moe is None
    assert model.intermediate_size == SMALL["granitemoehybrid"]["shared_intermediate_size"]


def test_minimax_lists_full_layers_by_ones() -> None:
    model = written("minimax", "layer_types", attn_type_list=[0, 0, 0, 0, 0, 1])
    assert model.mixers == ("linear_attention",) * 5 + ("full_attention",)


def test_mimo_lists_sliding_layers_by_ones() -> None:
    pattern = [0, 1, 1, 0, 1, 1]
    model = written("mimo_v2_flash", "layer_types", hybrid_layer_pattern=pattern)
    slides = [mixer == "sliding_attention" for mixer in model.mixers]
    assert slides == [bool(one) for one in pattern]


def test_deepseek_v4_gives_a_ratio_of_compression_for_each_layer() -> None:
    ratios = [0, 4, 128, 4, 128, 4]
    model = written("deepseek_v4", "layer_types", compress_ratios=ratios)
    assert model.mixers.count("sparse_attention") == 3
    with pytest.raises(UnsupportedError, match="'compress_ratios' has 8"):
        written("deepseek_v4", "layer_types", compress_ratios=[8] * 6)


@pytest.mark.parametrize(
    ("model_type", "changes", "layers"),
    [
        ("smollm3", {"no_rope_layers": [1, 0, 1, 0, 0, 1]}, 3),
        ("smollm3", {"no_rope_layers": None, "no_rope_layer_interval": 3}, 2),
        ("llama4_text", {"no_rope_layers": [1, 1, 0] * 2}, 2),
        ("cohere2", {"layer_types": ["sliding_attention", "full_attention"] * 3}, 3),
        ("cohere2", {"layer_types": ["full_attention"] * 6}, 0),
    ],
)
def test_layers_without_positions_are_counted(
    model_type: str, changes: dict[str, object], layers: int
) -> None:
    model = written(model_type, *(["layer_types"] * (model_type == "llama4_text")), **changes)
    assert model.unrotated_layers == layers


def test_hunyuan_lists_the_same_number_for_every_layer() -> None:
    config = {"moe_topk": [2] * 6, "num_shared_expert": [1] * 6, "moe_intermediate_size": [176] * 6}
    assert written("hunyuan_v1_moe", **config).moe == small("hunyuan_v1_moe").moe
    with pytest.raises(UnsupportedError, match="'moe_topk' differs between layers"):
        written("hunyuan_v1_moe", moe_topk=[1, 2] * 3)
    with pytest.raises(SpecError, match="'moe_topk' has 2 entries, 'num_hidden_layers' is 6"):
        written("hunyuan_v1_moe", moe_topk=[2, 2])


def test_the_longest_sequence_may_be_left_to_the_class_where_positions_have_no_table() -> None:
    assert written("falcon", "max_position_embeddings").max_position_embeddings == 2048
    with pytest.raises(SpecError, match="lacks 'max_position_embeddings'"):
        written("biogpt", "max_position_embeddings")


def test_gemma_4_gives_sizes_of_all_full_layers_once() -> None:
    sizes = {"global_head_dim": 64, "attention_k_eq_v": True, "num_global_key_value_heads": 4}
    model = written("gemma4_text", "per_layer_config", **sizes)
    full = next(kind for kind in model.kinds if kind.mixer == "full_attention")
    assert (full.head_dim, full.num_key_value_heads) == (64, 4)
    assert full.key_value_projections == "keys"


def test_llama_4_chunks_the_layers_it_rotates() -> None:
    left = ("layer_types", "attention_chunk_size")
    model = written("llama4_text", *left, no_rope_layers=[1, 1, 0] * 2)
    assert model.mixers == ("chunked_attention", "chunked_attention", "full_attention") * 2
    assert model.attention_chunk_size == 8192


def test_ling_mini_2_has_its_published_size() -> None:
    """Source: inclusionAI/Ling-V2, README: 16 B parameters, 1.4 B active."""
    model = model_from_config(
        {
            "model_type": "bailing_moe",
            "hidden_size": 2048,
            "intermediate_size": 5120,
            "num_attention_heads": 16,
            "num_key_value_heads": 4,
            "num_hidden_layers": 20,
            "max_position_embeddings": 32768,
            "vocab_size": 157184,
            "rms_norm_eps": 1e-6,
            "moe_intermediate_size": 512,
            "num_experts": 256,
            "num_experts_per_tok": 8,
            "num_shared_experts": 1,
            "head_dim": 128,
            "use_qk_norm": True,
            "first_k_dense_replace": 1,
            "score_function": "sigmoid",
            "moe_router_enable_expert_bias": True,
        },
        "ling-mini-2.0",
    )
    balancing = 19 * 256  # biases of routers: in the file, buffers of the class
    assert num_parameters(model) == 16_255_643_392 - balancing
    assert num_active_parameters(model) == 1_432_973_056 - balancing


def test_step_3_has_its_published_size() -> None:
    """Source: arXiv:2507.19427, table 1: 316 B parameters of the language model, 38 B active."""
    model = model_from_config(
        {
            "model_type": "step3_text",
            "hidden_size": 7168,
            "intermediate_size": 18432,
            "num_attention_heads": 64,
            "num_attention_groups": 1,
            "num_hidden_layers": 61,
            "max_position_embedding": 65536,
            "vocab_size": 128815,
            "rms_norm_eps": 1e-5,
            "moe_intermediate_size": 5120,
            "moe_num_experts": 48,
            "moe_top_k": 3,
            "share_expert_dim": 5120,
            "share_q_dim": 2048,
            "head_dim": 256,
            "norm_expert_weight": False,
            "moe_layers_enum": ",".join(map(str, range(4, 60))),
        },
        "step-3",
    )
    assert num_parameters(model) == 316_294_538_240
    assert round(num_active_parameters(model) / 1e9) == 39


def test_longcat_flash_has_its_published_size_without_weights_of_experts_that_have_none() -> None:
    """Source: arXiv:2509.01322, abstract: 560 B parameters."""
    sizes = {
        **SMALL["longcat_flash"],
        "hidden_size": 6144,
        "num_layers": 28,
        "num_attention_heads": 64,
        "ffn_hidden_size": 12288,
        "q_lora_rank": 1536,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "moe_topk": 12,
        "n_routed_experts": 512,
        "zero_expert_num": 256,
        "expert_ffn_hidden_size": 2048,
        "vocab_size": 131072,
    }
    assert round(num_parameters(model_from_config(sizes, "longcat")) / 1e9) == 561


@pytest.mark.parametrize("model_type", ["helium", "deepseek_v2", "laguna", "nemotron_h"])
def test_a_switch_that_is_not_modelled_is_refused_by_its_name(model_type: str) -> None:
    switches = {"helium": {"head_dim": 64}, "laguna": {"attention_bias": True}}
    changes = switches.get(model_type, {"mlp_bias": True})
    with pytest.raises((SpecError, UnsupportedError), match=f"'{next(iter(changes))}'"):
        written(model_type, **changes)


@pytest.mark.parametrize(
    ("stated", "weight"),
    [
        ({"router_aux_loss_coef": 0.001}, 0.001),
        ({"router_aux_loss_coef": 0.0}, 0.0),
        ({"aux_loss_alpha": 0.003}, 0.003),
        ({"router_aux_loss_coef": None}, None),
        ({"router_aux_loss_coef": "much"}, None),
        ({}, None),
    ],
)
def test_the_weight_of_the_loss_that_balances_is_read(stated: dict, weight: float) -> None:
    assert written("qwen3_moe", "router_aux_loss_coef", **stated).moe.router_aux_loss_coef == weight
    biased = {"topk_method": "noaux_tc", **stated}
    assert written("deepseek_v3", "router_aux_loss_coef", **biased).moe.router_aux_loss_coef is None
