"""Bytes of 4-bit weights and parameters of adapters: the libraries' own tensors."""

import pytest

from trainplan.costmodel.architecture.model import ModelSpec
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, TrainingSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.memory.trained import held_params
from trainplan.costmodel.model.adapters import nf4_bytes, quantised_bytes

torch = pytest.importorskip("torch", reason="the oracles need torch: run `make oracles`")
pytestmark = pytest.mark.oracle
SHAPES = [(512, 512), (1408, 512), (64, 33), (8192, 22016)]
MODEL = ModelSpec(
    name="small",
    num_hidden_layers=3,
    hidden_size=512,
    intermediate_size=1408,
    num_attention_heads=8,
    num_key_value_heads=2,
    head_dim=64,
    vocab_size=4096,
    max_position_embeddings=4096,
)
NAMES = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "o_proj"}
NAMES |= {"gate": "gate_proj", "up": "up_proj", "down": "down_proj"}


def bytes_of(tensor):
    return tensor.numel() * tensor.element_size()


def packed_bytes(weight):
    """All tensors of a weight that bitsandbytes quantised twice."""
    functional = pytest.importorskip("bitsandbytes").functional
    packed, state = functional.quantize_4bit(weight, quant_type="nf4", compress_statistics=True)
    tensors = (packed, state.absmax, state.code, state.offset)
    return sum(map(bytes_of, (*tensors, state.state2.absmax, state.state2.code)))


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"{shape[0]}x{shape[1]}")
def test_a_matrix_in_4_bits_has_the_bytes_of_bitsandbytes(shape):
    found = packed_bytes(torch.zeros(shape, dtype=torch.bfloat16))
    assert nf4_bytes(shape[0] * shape[1]) == found


def llama():
    """The model in transformers, on no device."""
    transformers = pytest.importorskip("transformers")
    names = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    names = (*names, "num_key_value_heads", "head_dim", "vocab_size")
    config = transformers.LlamaConfig(**{name: getattr(MODEL, name) for name in names})
    return transformers.LlamaForCausalLM(config).to(torch.bfloat16)


def test_all_matrices_of_a_layer_have_the_bytes_of_bitsandbytes():
    pytest.importorskip("bitsandbytes")
    layer = llama().model.layers[0]
    linear = [one for one in layer.modules() if isinstance(one, torch.nn.Linear)]
    assert quantised_bytes(MODEL) == sum(packed_bytes(one.weight.detach()) for one in linear)


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("modules", [("all",), ("q", "v"), ("attention",), ("mlp",), ("o", "down")])
def test_adapters_have_the_parameters_of_peft(modules):
    peft = pytest.importorskip("peft")
    groups = {"all": tuple(NAMES), "attention": tuple("qkvo"), "mlp": ("gate", "up", "down")}
    chosen = [NAMES[one] for name in modules for one in groups.get(name, (name,))]
    found = peft.get_peft_model(llama(), peft.LoraConfig(r=8, target_modules=chosen))
    trainable = sum(one.numel() for one in found.parameters() if one.requires_grad)
    trained = {"method": "lora", "rank": 8, "modules": modules}
    job = Job(
        model=ModelSpec.model_validate(MODEL.model_dump() | {"trained": trained}),
        training=TrainingSpec(seq_length=128, global_batch_size=1),
        cluster=parse_cluster("1x1:h100-sxm"),
        runtime="accelerate",
    )
    held = held_params(job, LayoutTable.of([Layout(zero_stage=0)]))
    assert 3 * held.trained.layers[0][0] == trainable
    assert held.layers[0][0] - held.trained.layers[0][0] == sum(
        one.numel() for one in llama().model.layers[0].parameters()
    )
