"""Parameter counts as publishers print them, and as transformers counts them."""

from typing import NamedTuple

import pytest

from trainplan.costmodel.architecture.model import ModelSpec
from trainplan.costmodel.model import params
from trainplan.costmodel.presets.presets import preset, preset_names

HUB = "https://huggingface.co/"


class Exact(NamedTuple):
    model: str
    parameters: int
    source: str


class Printed(NamedTuple):
    model: str
    billions: str
    source: str


SAFETENSORS = [
    # "parameters" in the safetensors metadata of the model page, unless another place is named
    Exact("deepseek-v2", 235_741_434_880, HUB + "deepseek-ai/DeepSeek-V2"),
    Exact("deepseek-v2-lite", 15_706_484_224, HUB + "deepseek-ai/DeepSeek-V2-Lite"),
    Exact("gemma2-27b", 27_227_128_320, HUB + "google/gemma-2-27b"),
    Exact("gemma2-9b", 9_241_705_984, HUB + "google/gemma-2-9b"),
    Exact("gemma3-1b", 999_885_952, HUB + "google/gemma-3-1b-pt"),
    Exact("glm4-9b", 9_400_279_040, HUB + "zai-org/GLM-4-9B-0414"),
    Exact("gpt-neox-20b", 20_554_567_680, HUB + "EleutherAI/gpt-neox-20b, table of the card"),
    Exact("llama2-13b", 13_015_864_320, HUB + "meta-llama/Llama-2-13b-hf"),
    Exact("llama2-70b", 68_976_648_192, HUB + "meta-llama/Llama-2-70b-hf"),
    Exact("llama2-7b", 6_738_415_616, HUB + "meta-llama/Llama-2-7b-hf"),
    Exact("llama3-70b", 70_553_706_496, HUB + "meta-llama/Meta-Llama-3-70B"),
    Exact("llama3-8b", 8_030_261_248, HUB + "meta-llama/Meta-Llama-3-8B"),
    Exact("llama3.1-405b", 405_853_388_800, HUB + "meta-llama/Llama-3.1-405B"),
    Exact("llama3.1-70b", 70_553_706_496, HUB + "meta-llama/Llama-3.1-70B"),
    Exact("llama3.1-8b", 8_030_261_248, HUB + "meta-llama/Llama-3.1-8B"),
    Exact("llama3.2-1b", 1_235_814_400, HUB + "meta-llama/Llama-3.2-1B"),
    Exact("llama3.2-3b", 3_212_749_824, HUB + "meta-llama/Llama-3.2-3B"),
    Exact("mistral-7b", 7_241_732_096, HUB + "mistralai/Mistral-7B-v0.1"),
    Exact("mixtral-8x22b", 140_620_634_112, HUB + "mistral-community/Mixtral-8x22B-v0.1"),
    Exact("mixtral-8x7b", 46_702_792_704, HUB + "mistralai/Mixtral-8x7B-v0.1"),
    Exact("olmo2-13b", 13_716_198_400, HUB + "allenai/OLMo-2-1124-13B"),
    Exact("olmo2-32b", 32_234_279_936, HUB + "allenai/OLMo-2-0325-32B"),
    Exact("olmo2-7b", 7_298_617_344, HUB + "allenai/OLMo-2-1124-7B"),
    Exact("phi3-mini", 3_821_079_552, HUB + "microsoft/Phi-3-mini-4k-instruct"),
    Exact("pythia-1.4b", 1_414_647_808, HUB + "EleutherAI/pythia-1.4b, table of the card"),
    Exact("qwen2.5-72b", 72_706_203_648, HUB + "Qwen/Qwen2.5-72B"),
    Exact("qwen2.5-7b", 7_615_616_512, HUB + "Qwen/Qwen2.5-7B"),
    Exact("qwen3-235b-a22b", 235_093_634_560, HUB + "Qwen/Qwen3-235B-A22B"),
    Exact("qwen3-30b-a3b", 30_532_122_624, HUB + "Qwen/Qwen3-30B-A3B"),
    Exact("qwen3-32b", 32_762_123_264, HUB + "Qwen/Qwen3-32B"),
    Exact("qwen3-8b", 8_190_735_360, HUB + "Qwen/Qwen3-8B"),
]

COUNTED = [
    # published without an exact count of weights: counted on a model of transformers 5.23.0 built
    # on torch.device("meta"), without the biases that balance a router, which are buffers
    Exact("deepseek-v3", 671_026_404_352, "DeepseekV3ForCausalLM without MTP"),
    Exact("deepseek-v4-flash", 284_332_230_231, "DeepseekV4ForCausalLM of transformers 5.24.0"),
    Exact("gemma3-27b", 27_009_346_304, "Gemma3ForCausalLM, the language model alone"),
    Exact("gpt-oss-120b", 116_829_156_672, "GptOssForCausalLM"),
    Exact("gpt-oss-20b", 20_914_757_184, "GptOssForCausalLM"),
    Exact("gpt2", 124_439_808, "GPT2LMHeadModel"),
    Exact("gpt2-xl", 1_557_611_200, "GPT2LMHeadModel"),
    Exact("gpt3-175b", 174_604_259_328, "GPT2LMHeadModel"),
    Exact("gpt3-6.7b", 6_658_404_352, "GPT2LMHeadModel"),
    Exact("kimi-k2", 1_026_408_209_408, "DeepseekV3ForCausalLM without MTP"),
    Exact("megatron-1.7b", 1_652_230_656, "GPT2LMHeadModel"),
    Exact("megatron-3.6b", 3_562_168_320, "GPT2LMHeadModel"),
    Exact("megatron-7.5b", 7_467_786_240, "GPT2LMHeadModel"),
    Exact("megatron-18.4b", 18_449_756_160, "GPT2LMHeadModel"),
    Exact("megatron-39.1b", 39_096_041_472, "GPT2LMHeadModel"),
    Exact("megatron-76.1b", 76_050_739_200, "GPT2LMHeadModel"),
    Exact("megatron-145.6b", 145_622_261_760, "GPT2LMHeadModel"),
    Exact("megatron-310.1b", 310_130_540_544, "GPT2LMHeadModel"),
    Exact("megatron-529.6b", 529_600_819_200, "GPT2LMHeadModel"),
    Exact("megatron-1008b", 1_008_038_758_400, "GPT2LMHeadModel"),
    Exact("mt-nlg-530b", 529_600_819_200, "GPT2LMHeadModel"),
    Exact("nemotron-3-nano-30b-a3b", 31_577_937_344, "NemotronHForCausalLM of 5.24.0"),
    Exact("nemotron-3-super", 120_668_687_360, "NemotronHForCausalLM of 5.24.0"),
    Exact("nemotron-3-ultra", 549_308_968_960, "NemotronHForCausalLM of 5.24.0"),
    Exact("opt-125m", 125_239_296, "OPTForCausalLM"),
    Exact("opt-6.7b", 6_658_473_984, "OPTForCausalLM"),
    Exact("opt-66b", 65_719_701_504, "OPTForCausalLM"),
    Exact("qwen2.5-1.5b", 1_543_714_304, "Qwen2ForCausalLM of 5.9.0"),
    Exact("qwen2.5-14b", 14_770_033_664, "Qwen2ForCausalLM of 5.9.0"),
    Exact("qwen3-0.6b", 596_049_920, "Qwen3ForCausalLM of 5.9.0"),
    Exact("qwen3-1.7b", 1_720_574_976, "Qwen3ForCausalLM of 5.9.0"),
    Exact("qwen3-4b", 4_022_468_096, "Qwen3ForCausalLM of 5.9.0"),
    Exact("qwen3-14b", 14_768_307_200, "Qwen3ForCausalLM of 5.9.0"),
    Exact("qwen3-next-80b-a3b", 79_674_391_296, "Qwen3NextForCausalLM of 5.9.0"),
    Exact("qwen3-vl-30b-a3b", 31_070_754_032, "Qwen3VLMoeForConditionalGeneration of 5.9.0"),
    Exact("qwen3-vl-235b-a22b", 235_670_022_896, "Qwen3VLMoeForConditionalGeneration of 5.9.0"),
    Exact("qwen3.5-35b-a3b", 34_660_610_688, "Qwen3_5MoeForCausalLM of 5.9.0, the decoder"),
    Exact("qwen3.5-122b-a10b", 122_111_526_912, "Qwen3_5MoeForCausalLM of 5.9.0, the decoder"),
    Exact("qwen3.5-397b-a17b", 396_346_350_336, "Qwen3_5MoeForCausalLM of 5.9.0, the decoder"),
]

SC21 = "arXiv:2104.04473, table 1"
TOTALS = [
    Printed("megatron-1.7b", "1.7", SC21),
    Printed("megatron-3.6b", "3.6", SC21),
    Printed("megatron-7.5b", "7.5", SC21),
    Printed("megatron-18.4b", "18.4", SC21),
    Printed("megatron-39.1b", "39.1", SC21),
    Printed("megatron-76.1b", "76.1", SC21),
    Printed("megatron-145.6b", "145.6", SC21),
    Printed("megatron-310.1b", "310.1", SC21),
    Printed("megatron-529.6b", "529.6", SC21),
    Printed("megatron-1008b", "1008.0", SC21),
    Printed("mt-nlg-530b", "530", "arXiv:2201.11990, title"),
    Printed("gpt3-175b", "175", "arXiv:2005.14165, abstract"),
    Printed("gpt3-6.7b", "6.7", "arXiv:2005.14165, table 2.1"),
    Printed("opt-125m", "0.125", "arXiv:2205.01068, table 1"),
    Printed("opt-6.7b", "6.7", "arXiv:2205.01068, table 1"),
    Printed("opt-66b", "66", "arXiv:2205.01068, table 1"),
    Printed("mixtral-8x7b", "46.7", "https://mistral.ai/news/mixtral-of-experts"),
    Printed("mixtral-8x22b", "141", "https://mistral.ai/news/mixtral-8x22b"),
    Printed("deepseek-v2", "236", "arXiv:2405.04434, abstract"),
    Printed("deepseek-v2-lite", "15.7", "arXiv:2405.04434, appendix B"),
    Printed("deepseek-v3", "671", "arXiv:2412.19437, abstract"),
    Printed("qwen2.5-72b", "72.7", HUB + "Qwen/Qwen2.5-72B"),
    Printed("qwen3-8b", "8.2", HUB + "Qwen/Qwen3-8B"),
    Printed("qwen3-30b-a3b", "30.5", HUB + "Qwen/Qwen3-30B-A3B"),
    Printed("gpt-oss-120b", "116.83", "arXiv:2508.10925, table 1"),
    Printed("gpt-oss-20b", "20.91", "arXiv:2508.10925, table 1"),
]

ACTIVE = [
    Printed("mixtral-8x7b", "12.9", "https://mistral.ai/news/mixtral-of-experts"),
    Printed("mixtral-8x22b", "39", "https://mistral.ai/news/mixtral-8x22b"),
    Printed("deepseek-v2", "21", "arXiv:2405.04434, abstract"),
    Printed("qwen3-235b-a22b", "22", HUB + "Qwen/Qwen3-235B-A22B"),
]

ACTIVE_WITHOUT_INPUT_EMBEDDING = [
    Printed(
        "gpt-oss-120b", "5.13", "arXiv:2508.10925, table 1 (unembedding counts, embedding not)"
    ),
    Printed("gpt-oss-20b", "3.61", "arXiv:2508.10925, table 1 (unembedding counts, embedding not)"),
    Printed(
        "deepseek-v3", "37", "arXiv:2412.19437, abstract; 0.9B head counted, README_WEIGHTS.md"
    ),
    Printed("kimi-k2", "32", HUB + "moonshotai/Kimi-K2-Base, model summary"),
]


def as_printed(count: int, billions: str) -> str:
    """The count in billions with as many decimals as the printed number."""
    return f"{count / 1e9:.{len(billions.partition('.')[2])}f}"


def name(row: Exact | Printed) -> str:
    return row.model


@pytest.mark.parametrize("row", SAFETENSORS, ids=name)
def test_count_equals_the_published_count_to_the_digit(row: Exact) -> None:
    assert params.num_parameters(preset(row.model)) == row.parameters, row.source


@pytest.mark.parametrize("row", COUNTED, ids=name)
def test_count_equals_that_of_the_transformers_model_to_the_digit(row: Exact) -> None:
    assert params.num_parameters(preset(row.model)) == row.parameters, row.source


@pytest.mark.parametrize("row", TOTALS, ids=name)
def test_total_agrees_with_the_printed_number_in_every_printed_digit(row: Printed) -> None:
    total = params.num_parameters(preset(row.model))
    assert as_printed(total, row.billions) == row.billions, row.source


@pytest.mark.parametrize("row", ACTIVE, ids=name)
def test_active_parameters_agree_with_the_printed_number(row: Printed) -> None:
    active = params.num_active_parameters(preset(row.model))
    assert as_printed(active, row.billions) == row.billions, row.source


@pytest.mark.parametrize("row", ACTIVE_WITHOUT_INPUT_EMBEDDING, ids=name)
def test_active_parameters_without_the_input_table_agree(row: Printed) -> None:
    model = preset(row.model)
    active = params.num_active_parameters(model) - params.embedding_params(model)
    assert as_printed(active, row.billions) == row.billions, row.source


def test_gpt2_file_is_the_weights_and_twelve_causal_masks() -> None:
    """Source: https://huggingface.co/openai-community/gpt2, safetensors: 137,022,720."""
    model = preset("gpt2")
    masks = model.num_hidden_layers * model.max_position_embeddings**2
    assert params.num_parameters(model) + masks == 137_022_720


def fp8_scales(model: ModelSpec) -> int:
    """Scales of DeepSeek-V3's published file: one per 128 x 128 block of every fp8 matrix.

    Source: https://huggingface.co/deepseek-ai/DeepSeek-V3, README_WEIGHTS.md.
    """
    mla, moe, h = model.mla, model.moe, model.hidden_size
    assert mla is not None
    assert moe is not None
    assert mla.q_lora_rank is not None

    def blocks(rows: int, columns: int) -> int:
        return -(-rows // 128) * -(-columns // 128)

    def mlp(width: int) -> int:
        return 2 * blocks(width, h) + blocks(h, width)

    attention = (
        blocks(mla.q_lora_rank, h)
        + blocks(params.query_columns(model), mla.q_lora_rank)
        + blocks(mla.kv_lora_rank + mla.qk_rope_head_dim, h)
        + blocks(
            model.num_attention_heads * (mla.qk_nope_head_dim + mla.v_head_dim), mla.kv_lora_rank
        )
        + blocks(h, params.value_columns(model))
    )
    experts = moe.num_experts * mlp(moe.moe_intermediate_size)
    experts += mlp(moe.shared_expert_intermediate_size)
    moe_layers = model.num_moe_layers + model.num_nextn_predict_layers
    return (
        (model.num_hidden_layers + model.num_nextn_predict_layers) * attention
        + model.num_dense_layers * mlp(model.intermediate_size)
        + moe_layers * experts
    )


def test_deepseek_v3_file_is_the_model_its_mtp_module_and_the_fp8_scales() -> None:
    """Source: https://huggingface.co/deepseek-ai/DeepSeek-V3, safetensors: 684,531,386,000.

    The file repeats the embedding and the head inside the MTP module, which is two norms, a
    2h x h projection, one layer and a final norm: arXiv:2412.19437, section 2.2.
    """
    model = preset("deepseek-v3")
    repeated = 2 * params.embedding_params(model)
    module = params.layer_params(model.kinds[-1]) + 2 * model.hidden_size**2
    module += 3 * params.norm_params(model)
    total = params.num_parameters(model) + model.num_nextn_predict_layers * module + repeated
    total += 256 * (58 + 1)  # the biases that balance each router, buffers of the class
    assert total == 684_489_845_504
    assert total + fp8_scales(model) == 684_531_386_000


def test_every_preset_has_a_golden_count() -> None:
    assert {row.model for row in SAFETENSORS + COUNTED} == set(preset_names())
