"""Tensor parallelism: divides heads, MLP width and vocabulary inside a layer."""

import numpy as np

from trainplan.costmodel.axes.axis import Axis, Memory, Tried
from trainplan.costmodel.axes.values import degrees
from trainplan.costmodel.columns import BoolColumn
from trainplan.costmodel.job import Job
from trainplan.costmodel.layouts import LayoutTable, rule

MEGATRON = "Shoeybi et al., arXiv:1909.08053, section 3"
SEQUENCE = "Korthikanti et al., arXiv:2205.05198, section 4.2.2"


@rule("tp", "tp must divide num_attention_heads: lower tp", MEGATRON)
def tp_divides_heads(job: Job, table: LayoutTable) -> BoolColumn:
    """Whole heads on every rank."""
    return np.asarray(job.model.num_attention_heads % table.tp != 0)


@rule(
    "tp",
    "num_key_value_heads must be a multiple or a divisor of tp",
    "Ainslie et al., GQA, arXiv:2305.13245, section 2.2; Megatron-LM transformer_config.py",
)
def tp_fits_key_value_heads(job: Job, table: LayoutTable) -> BoolColumn:
    """Key-value heads are cut or duplicated evenly; MLA has none to cut."""
    heads = job.model.num_key_value_heads
    fits = (heads % table.tp == 0) | (table.tp % heads == 0)
    return np.asarray(~fits & (job.model.mla is None))


@rule("tp", "tp must divide intermediate_size: lower tp", MEGATRON)
def tp_divides_mlp(job: Job, table: LayoutTable) -> BoolColumn:
    """Equal columns of every dense or shared MLP."""
    model = job.model
    width = model.intermediate_size if model.num_dense_layers else 0
    shared = model.moe.shared_expert_intermediate_size if model.moe else 0
    return np.asarray((width % table.tp != 0) | (shared % table.tp != 0))


@rule(
    "tp",
    "tp must divide the heads and the widths of the tower: lower tp, or tensor_parallel: false",
    "NVIDIA-NeMo/Megatron-Bridge @067f987d modelling_qwen3_vl/transformer_config.py",
)
def tp_divides_tower(job: Job, table: LayoutTable) -> BoolColumn:
    """Whole heads and equal columns of an encoder that is cut over the decoder's tensor ranks."""
    tower = job.model.tower
    if tower is None or not tower.tensor_parallel:
        return np.zeros(len(table), dtype=bool)
    widths = [one.out_features for projector in tower.projectors for one in projector.linears]
    sizes = (tower.num_attention_heads, tower.intermediate_size, *widths)
    return np.asarray(np.any([size % table.tp != 0 for size in sizes], axis=0))


@rule("tp sequence_parallel", "sequence_parallel does nothing at tp=1: leave it out", SEQUENCE)
def sequence_parallel_needs_tp(job: Job, table: LayoutTable) -> BoolColumn:
    """The sequence is cut over the tensor ranks."""
    return np.asarray((table.sequence_parallel == 1) & (table.tp == 1))


@rule(
    "tp cp sequence_parallel",
    "seq_length / cp must be a multiple of tp under sequence_parallel",
    SEQUENCE,
)
def sequence_parallel_divides_sequence(job: Job, table: LayoutTable) -> BoolColumn:
    """Equal pieces of the sequence."""
    uneven = job.training.seq_length % (table.cp * table.tp) != 0
    return np.asarray((table.sequence_parallel == 1) & uneven)


TP = Axis(
    name="tp",
    off=1,
    search=Tried(degrees),
    memory=Memory("falls", ("used",), "weights, their states and half of a layer's activations"),
    rules=(
        tp_divides_heads,
        tp_fits_key_value_heads,
        tp_divides_mlp,
        tp_divides_tower,
        sequence_parallel_needs_tp,
        sequence_parallel_divides_sequence,
    ),
)
SEQUENCE_PARALLEL = Axis(
    name="sequence_parallel",
    short="sp",
    off=False,
    search=Tried(lambda job, traits: (False, True)),
    memory=Memory("falls", ("activations",), "norms and the residual stream are cut as well"),
)
