"""Keys and values that a model repeats for every query head: what a layer of torchtitan keeps."""

from dataclasses import replace

import pytest

from tests.oracles.kernels import flash_attention
from tests.oracles.live_bytes import saved_bytes
from tests.oracles.shapes import SMALL, Case, changed
from tests.oracles.test_selected import handed_bytes, layer_of
from trainplan.costmodel.blocks.rows import row_blocks
from trainplan.costmodel.candidates.context import Candidates
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, TrainingSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.runtimes.registry import traits_of

torch = pytest.importorskip("torch", reason="the oracles need torch: run `make oracles`")
from torch._subclasses import FakeTensorMode  # noqa: E402

pytestmark = pytest.mark.oracle
SHAPES = {
    "four to one": Case(SMALL, 2, 512),
    "two to one": Case(changed(SMALL, num_key_value_heads=4), 3, 256),
    "equal heads": Case(changed(SMALL, num_key_value_heads=8), 2, 512),
}


def repeating(query, key, value):
    """Attention as in torchtitan `models/llama/model.py`: heads of keys and values repeated."""
    batch, groups, tokens, width = key.shape
    times = query.shape[1] // groups

    def repeated(x):
        if times == 1:
            return x
        rows = x.transpose(1, 2).unsqueeze(3).expand(batch, tokens, groups, times, width)
        return rows.reshape(batch, tokens, groups * times, width).transpose(1, 2)

    return flash_attention(query, repeated(key), repeated(value))


def written_bytes(case, *, repeats=True):
    training = TrainingSpec(seq_length=case.seq_length, global_batch_size=8)
    cluster = parse_cluster("1x1:h100-sxm")
    job = Job(model=case.model, training=training, cluster=cluster, runtime="torchtitan")
    layout = Layout(zero_stage=0, micro_batch_size=case.micro_batch_size)
    machine, traits = machine_of(cluster, training.precision), traits_of(job)
    if not repeats:
        traits = replace(traits, footprint=replace(traits.footprint, repeats_key_values=False))
    return (
        row_blocks(Candidates(job, machine, traits, LayoutTable.of([layout])))
        .layers[0]
        .saved_bytes[0]
    )


def eager_bytes(case, core):
    with FakeTensorMode():
        layer, x, table = layer_of(case)
        owned = [*layer.parameters(), table]
        return saved_bytes(lambda: layer(x, table, core=core), owned)


def copied_bytes(case):
    """What the heads that are copies of another take, keys and values."""
    model, tokens = case.model, case.micro_batch_size * case.seq_length
    copies = model.num_attention_heads - model.num_key_value_heads
    return 2 * 2 * tokens * copies * model.head_dim


@pytest.mark.parametrize("case", SHAPES.values(), ids=SHAPES)
def test_the_formula_keeps_every_repeated_head(case):
    assert written_bytes(case) - written_bytes(case, repeats=False) == copied_bytes(case)


@pytest.mark.parametrize("case", SHAPES.values(), ids=SHAPES)
def test_single_operations_keep_every_repeated_head(case):
    more = eager_bytes(case, repeating) - eager_bytes(case, flash_attention)
    assert more == copied_bytes(case)


@pytest.mark.parametrize("case", SHAPES.values(), ids=SHAPES)
def test_a_compiler_keeps_every_repeated_head_too(case):
    """The backward pass of attention reads them from memory, so they are not made again."""

    def handed(core):
        return handed_bytes(lambda layer, x, table: layer(x, table, core=core), case)

    assert handed(repeating) - handed(flash_attention) == copied_bytes(case)
