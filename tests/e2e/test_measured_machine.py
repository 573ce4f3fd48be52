"""Measure this machine, then ask what training steps it has not seen cost, and run them.

A test of function on a machine that others may use too: the errors are printed (`pytest -s`), and
only far misses fail. Everything runs on one thread: two that wait for each other on cores that
others use are twenty times slower, one is two or three times slower.
"""

import json
import os
import statistics
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.command import plan
from tests.grids import number
from trainplan.cli.files import measuring
from trainplan.costmodel.architecture.model import ModelSpec
from trainplan.profiler.bench.optimizer import running

torch = pytest.importorskip("torch", reason="measuring needs torch: run `make oracles`")
from tests.oracles.decoder import Decoder  # noqa: E402
from tests.oracles.live_bytes import saved_bytes  # noqa: E402

pytestmark = pytest.mark.oracle
HERE = Path(__file__).parent
ROOT = HERE.parents[1]
REPEATS = number(3, by_night=5)
MEASURED = ("memory", "layer", "gemm", "attention", "embedding", "head", "optimizer", "stream")
"""What a step of one process consists of."""
FAR = 10.0
"""A shared machine is several times slower at times; what is further off is a fault."""


def small(name, **fields):
    sizes = {
        "num_hidden_layers": 2,
        "hidden_size": 384,
        "intermediate_size": 1024,
        "num_attention_heads": 6,
        "num_key_value_heads": 6,
        "head_dim": 64,
        "vocab_size": 8192,
        "max_position_embeddings": 1024,
        "norm": "layernorm",
    }
    return ModelSpec(name=name, **{**sizes, **fields})


GATED = (small("gated", num_key_value_heads=2), 2, 256)
PLAIN = (
    small(
        "plain",
        hidden_size=768,
        intermediate_size=3072,
        num_attention_heads=12,
        num_key_value_heads=12,
        gated_mlp=False,
        activation="gelu",
    ),
    1,
    256,
)


@pytest.fixture(autouse=True)
def one_thread():
    """Steps of the test run as the profile did."""
    with running(1):
        yield


@pytest.fixture(scope="module")
def profile(tmp_path_factory):
    """A quick profile of one process of one thread, in the items and sizes of `plan profile`."""
    path = tmp_path_factory.mktemp("machine") / "profile.json"
    folders = [str(ROOT / ".editable"), str(HERE), os.environ.get("PYTHONPATH", "")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, folders)))
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setattr(measuring, "run", partial(measuring.run, module="profiler_sooner"))
        outcome = plan(
            *("profile", "--quick", "--nproc-per-node", "1", "--output", path),
            *("--runtime", "torch-eager"),
            *(word for item in MEASURED for word in ("--only", item)),
        )
    assert outcome.code == 0, outcome.err
    return path


def core(query, key, value):
    grouped = query.shape[1] != key.shape[1]
    attention = torch.nn.functional.scaled_dot_product_attention
    return attention(query, key, value, is_causal=True, enable_gqa=grouped)


def decoder_of(model):
    torch.manual_seed(0)
    decoder = Decoder(model)
    for layer in decoder.layers:
        layer.core = core
    return decoder


def step_seconds(model, micro_batch_size, seq_length):
    decoder = decoder_of(model)
    optimizer = torch.optim.AdamW(decoder.parameters(), fused=True)
    ids = torch.randint(0, model.vocab_size, (micro_batch_size, seq_length))
    table = decoder.table(seq_length)

    def step():
        start = time.perf_counter()
        decoder(ids, ids, table).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        return time.perf_counter() - start

    step()
    return statistics.median(step() for _ in range(REPEATS))


def layer_bytes(model, micro_batch_size, seq_length):
    """What one layer keeps for its backward pass, its input with it."""
    decoder = decoder_of(model)
    layer, table = decoder.layers[0], decoder.table(seq_length)
    x = torch.randn(micro_batch_size, seq_length, model.hidden_size, requires_grad=True)
    return saved_bytes(partial(layer, x, table), [*layer.parameters(), table])


def estimated(profile, folder, model, micro_batch_size, seq_length):
    path = folder / f"{model.name}.yaml"
    path.write_text(json.dumps(model.model_dump(mode="json", exclude_none=True)))
    outcome = plan(
        *("estimate", "--model", path, "--cluster", profile, "--runtime", "torch-eager"),
        *("--precision", "fp32", "--global-batch-size", micro_batch_size),
        *("--seq-length", seq_length, "--json"),
        *("--layout", f"tp=1,zero_stage=0,micro_batch_size={micro_batch_size}"),
    )
    assert outcome.code == 0, outcome.err
    return outcome.json["estimate"]


@pytest.mark.parametrize("case", [GATED, PLAIN], ids=lambda case: case[0].name)
def test_a_step_of_an_unseen_model_takes_about_as_long_as_estimated(profile, tmp_path, case):
    written = estimated(profile, tmp_path, *case)["step_time_s"]
    took = step_seconds(*case)
    sys.stdout.write(
        f"\n{case[0].name}: estimated {written:.3f} s, took {took:.3f} s, {written / took - 1:+.0%}"
        + "\n"
    )
    assert took / FAR < written < took * FAR


@pytest.mark.parametrize("case", [GATED, PLAIN], ids=lambda case: case[0].name)
def test_an_unseen_model_keeps_the_bytes_that_are_estimated(profile, tmp_path, case):
    (rank,) = estimated(profile, tmp_path, *case)["memory"]["pipeline_ranks"]
    kept = case[0].num_hidden_layers * layer_bytes(*case)
    sys.stdout.write(
        f"\n{case[0].name}: estimated {rank['activations_bytes']:,.0f} bytes, kept {kept:,}" + "\n"
    )
    assert rank["activations_bytes"] == pytest.approx(kept, rel=0.05)
