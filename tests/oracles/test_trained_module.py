"""The module that `plan export` writes of what is trained, run on a small Llama of transformers."""

import copy
import types

import pytest

from trainplan.costmodel.architecture.model import ModelSpec
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, TrainingSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.planner.runtimes import EXPORTERS

torch = pytest.importorskip("torch", reason="the oracles need torch: run `make oracles`")
transformers = pytest.importorskip("transformers")
pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore::FutureWarning")]
SIZES = {
    "num_hidden_layers": 3,
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 128,
    "max_position_embeddings": 64,
}
LORA = {"method": "lora", "rank": 4, "modules": ("q", "v", "down")}
FROZEN = {"method": "frozen", "layers": (0, 1)}


def exported(trained, stage, loss_tokens=1.0):
    """The module of that name, as a plan has it."""
    job = Job(
        model=ModelSpec(name="small", model_type="llama", trained=trained, **SIZES),
        training=TrainingSpec(seq_length=32, global_batch_size=2, loss_tokens=loss_tokens),
        cluster=parse_cluster("1x2:h100-sxm"),
        runtime="accelerate",
    )
    files = EXPORTERS["accelerate"](job, Layout(dp=2, zero_stage=stage)).files
    (text,) = (file.text for file in files if file.name == "trained.py")
    module = types.ModuleType("trained")
    exec(compile(text, "trained.py", "exec"), module.__dict__)
    return module


def llama():
    torch.manual_seed(1)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES))


def batch(share):
    """Tokens, and labels of so many of them; what is left is not counted."""
    ids = torch.randint(0, 128, (2, 32), generator=torch.Generator().manual_seed(2))
    labels = ids.clone()
    labels[:, : int(32 * (1 - share))] = -100
    return {"input_ids": ids, "labels": labels}


def with_gradients(model):
    return {name for name, one in model.named_parameters() if one.grad is not None}


def test_adapters_alone_get_gradients():
    pytest.importorskip("peft")
    pytest.importorskip("bitsandbytes")
    module = exported(LORA, 0)
    model = module.trained(llama())
    model(**batch(1)).loss.backward()
    assert len(with_gradients(model)) == 3 * 3 * 2
    assert all("lora_" in name for name in with_gradients(model))
    assert {one.dtype for one in model.parameters()} == {torch.float32}
    module.optimizer(model, 1e-3)


def test_frozen_layers_and_the_embedding_get_none():
    model = exported(FROZEN, 2).trained(llama())
    model(**batch(1)).loss.backward()
    parts = {".".join(name.split(".")[:3]) for name in with_gradients(model)}
    assert parts == {"model.layers.2", "model.norm.weight", "lm_head.weight"}


@pytest.mark.parametrize("trained", [None, LORA, FROZEN], ids=["all", "lora", "frozen"])
def test_the_loss_of_counted_tokens_is_that_of_transformers(trained):
    """And no other token reaches the output projection."""
    if trained is LORA:
        pytest.importorskip("peft")
    usual, seen = llama(), []
    model = exported(trained, 3, loss_tokens=0.25).trained(copy.deepcopy(usual))
    model.get_output_embeddings().register_forward_hook(lambda _, given, __: seen.append(given[0]))
    loss = model(**batch(0.25)).loss
    assert loss.item() == pytest.approx(usual(**batch(0.25)).loss.item(), rel=1e-6)
    assert [len(one) for one in seen] == [2 * 8]
