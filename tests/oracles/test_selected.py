"""What a layer keeps under torchtitan's selective recomputation, with and without a compiler."""

import gc
from collections import defaultdict

import pytest

from tests.oracles.live_bytes import LiveBytes
from tests.oracles.shapes import DENSE, SMALL, Case, changed
from tests.oracles.step import bf16_decoder
from trainplan.costmodel.blocks.rows import row_blocks
from trainplan.costmodel.candidates.context import context_of
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, RuntimeOptions, TrainingSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.machine import machine_of

torch = pytest.importorskip("torch", reason="the oracles need torch: run `make oracles`")
from torch._dynamo.backends.common import aot_autograd  # noqa: E402
from torch._functorch.partitioners import min_cut_rematerialization_partition  # noqa: E402
from torch._subclasses import FakeTensorMode  # noqa: E402
from torch.utils.checkpoint import (  # noqa: E402
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

pytestmark = pytest.mark.oracle
YOUNG = 1
"""Generations that `gc` looks at: not the objects of all tests before."""
SEED_BYTES = 24
"""Random state the flash kernel keeps though nothing is dropped."""
SHAPES = {
    "small": DENSE["small"],
    "wide MLP": Case(changed(SMALL, intermediate_size=3072), 1, 1024),
    "more keys": Case(changed(SMALL, num_key_value_heads=4), 3, 256),
    "equal heads": Case(changed(SMALL, num_key_value_heads=8, hidden_size=640), 2, 512),
}


def every_second_product():
    """Keep the attention core and every second product of a layer; repeat the rest."""
    products = defaultdict(int)

    def policy(context, operation, *arguments, **options):
        if operation == torch.ops.aten.mm.default:
            products[context.is_recompute] += 1
            kept = products[context.is_recompute] % 2 == 1
        else:
            kept = operation == torch.ops.aten._scaled_dot_product_flash_attention.default
        return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


def repeated(layer, x, table):
    return checkpoint(
        layer,
        x,
        table,
        use_reentrant=False,
        preserve_rng_state=False,
        context_fn=every_second_product,
    )


def layer_of(case):
    decoder = bf16_decoder(changed(case.model, num_hidden_layers=1), fused=False)
    shape = (case.micro_batch_size, case.seq_length, case.model.hidden_size)
    x = torch.empty(shape, dtype=torch.bfloat16, requires_grad=True)
    return decoder.layers[0], x, decoder.table(case.seq_length)


def eager_bytes(case):
    """Alive when two layers have run, beyond what is alive when one has."""
    gc.disable()  # all that the layers make stays young, and is looked at without the rest
    try:
        with FakeTensorMode(), LiveBytes() as live:
            layer, x, table = layer_of(case)
            once = repeated(layer, x, table)
            gc.collect(YOUNG)
            before = live.now
            twice = repeated(layer, once, table)
            gc.collect(YOUNG)
            assert twice.requires_grad
            return live.now - before
    finally:
        gc.enable()


def handed_bytes(run, case):
    """Handed from the forward to the backward graph of `run`, weights and table left out."""
    layer, x, table = layer_of(case)
    owned = {tuple(one.shape) for one in (*layer.parameters(), table)}
    handed = []

    def forward_only(graph, inputs):
        (results,) = (node.args[0] for node in graph.graph.nodes if node.op == "output")
        values = [node.meta["val"] for node in results]
        handed.extend(value for value in values[1:] if tuple(value.shape) not in owned)
        return lambda *given: [torch.empty(value.shape, dtype=value.dtype) for value in values]

    compiler = aot_autograd(
        fw_compiler=forward_only,
        bw_compiler=lambda graph, inputs: graph,
        partition_fn=min_cut_rematerialization_partition,
    )
    torch._dynamo.reset()
    torch.compile(run, backend=compiler, fullgraph=True)(layer, x, table)
    return sum(value.numel() * value.element_size() for value in handed)


def written_bytes(case, *, compiled):
    job = Job(
        model=case.model,
        training=TrainingSpec(
            seq_length=case.seq_length, global_batch_size=8 * case.micro_batch_size
        ),
        cluster=parse_cluster("1x8:h100-sxm"),
        runtime="torchtitan",
        options=RuntimeOptions(compile=compiled),
    )
    layout = Layout(
        dp=8,
        zero_stage=3,
        micro_batch_size=case.micro_batch_size,
        recompute="selective",
        recompute_modules=("torchtitan_selective_op",),
    )
    machine = machine_of(job.cluster, job.training.precision)
    return (
        row_blocks(context_of(job, machine).with_table(LayoutTable.of([layout])))
        .layers[0]
        .saved_bytes[0]
    )


@pytest.mark.parametrize("case", SHAPES.values(), ids=SHAPES)
def test_single_operations_keep_what_the_policy_names(case):
    assert eager_bytes(case) - SEED_BYTES == written_bytes(case, compiled=False)


@pytest.mark.parametrize("case", SHAPES.values(), ids=SHAPES)
def test_a_compiler_keeps_of_that_what_the_backward_pass_reads(case):
    assert handed_bytes(repeated, case) == pytest.approx(
        written_bytes(case, compiled=True), abs=SEED_BYTES
    )
