"""Headlines of how experts exchange tokens: in two steps, by a gather, and with padded rows."""

from __future__ import annotations

from headlines_figure import Figure, Headline, Runs

from trainplan.costmodel.architecture.model import ModelSpec
from trainplan.costmodel.architecture.moe import MoeSpec
from trainplan.costmodel.blocks import blocks
from trainplan.costmodel.calibration import context_for
from trainplan.costmodel.hardware.cluster import ClusterSpec, NicSpec, NodeGroup, parse_cluster
from trainplan.costmodel.job.job import Job, RuntimeOptions, TrainingSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.step import price

NODE = 8
WHY_NOT_FAIRSEQ = """\
Tutel is compared with Fairseq's dispatch, whose dense products of one-hot tensors are no kernel of
the model, and splits the exchange to overlap it with the products."""
WHY_NOT_HETU = """\
Bytes between nodes are as many in two steps as in one, and an exchange of 32 MiB a rank is all
bytes here: two steps win below 1.4 MiB. The publication's one step reaches less of the NIC."""

WHY_NOT_PPMOE = """\
A rank has eight experts of an eighth of the rows instead of one, whose weights are read all the
same, and Megatron's gather sums and casts results of all tokens of the group, in fp32."""


def exchanges(runs: Runs) -> Headline:
    """Tutel, HetuMoE, PPMoE and MegaBlocks, by direction where their jobs are not stated."""
    exchanged, layer = _ppmoe()
    return Headline(
        "exchanges",
        "Exchanges of experts",
        """\
*Tutel*: Hwang et al., [arXiv:2206.03382](https://arxiv.org/abs/2206.03382): one layer of experts on
16 and 2,048 A100, over Fairseq; predicted is the faster of an exchange in one step and in two, over
one step. Assumed are 16,384 tokens a GPU, two experts on each, top 2, 2,048 wide, fp16.

*HetuMoE*: Nie et al., [arXiv:2203.14685](https://arxiv.org/abs/2203.14685): two steps over one on
8 nodes of 8 GPUs with one NIC of 100 Gb/s: V100 over PCIe are taken for the TITAN RTX, batch 8 of
1,024 tokens, 2,048 wide, top 1, 16 bits.

*PPMoE*: Chen et al., [arXiv:2304.11414](https://arxiv.org/abs/2304.11414): experts of one tensor
group over experts across nodes, by direction: a layer of 64 experts, 4,096 wide, top 1, on 64 V100
is assumed, with `tp` 8 and `ep` 8 or `ep` 64, and four sequences of 2,048 tokens for each GPU.

*MegaBlocks*: Gale et al., [arXiv:2211.15841](https://arxiv.org/abs/2211.15841): up to 40 % over
Tutel; dropless rows over rows that are padded to twice the balanced ones, by direction: 24 layers,
1,024 wide, 64 experts, top 1, 8 A100, batch 512 of 1,024 tokens.""",
        (
            Figure("Tutel, 16 A100, layer", 4.96, _tutel(2), 0.25, "times", why=WHY_NOT_FAIRSEQ),
            Figure(
                "Tutel, 2,048 A100, layer", 5.75, _tutel(256), 0.25, "times", why=WHY_NOT_FAIRSEQ
            ),
            Figure("HetuMoE, gain", 15, _hetu(), 0, "%", "at least", WHY_NOT_HETU),
            Figure("PPMoE, gain of the exchange", 75, exchanged, 0, "%", "sign"),
            Figure("PPMoE, gain of the layer", 75, layer, 0, "%", "sign", WHY_NOT_PPMOE),
            Figure("MegaBlocks, gain", 40, _megablocks(), 0, "%", "sign"),
        ),
    )


def _model(hidden: int, layers: int = 1, **moe: int) -> ModelSpec:
    """A model of GPT's shape whose layers, or every second one, are experts."""
    return ModelSpec(
        name="experts",
        num_hidden_layers=layers,
        hidden_size=hidden,
        intermediate_size=4 * hidden,
        num_attention_heads=hidden // 128,
        num_key_value_heads=hidden // 128,
        head_dim=128,
        gated_mlp=False,
        vocab_size=51_200,
        max_position_embeddings=2048,
        moe=MoeSpec.model_validate(moe),
    )


def _layer_seconds(job: Job, layout: Layout) -> float:
    """Of both passes of a layer, less those of its attention."""
    on = context_for(job).with_table(LayoutTable.of([layout]))
    passes = blocks(on).layers[-1]
    moe = next(one for one in passes.modules if one.name == "moe")
    both = passes.forward.total + passes.backward.total
    return float((both * moe.seconds / passes.forward.total)[0])


def _two_steps(job: Job, layout: Layout) -> tuple[float, float]:
    """Seconds of a layer with an exchange in one step and in two."""
    options = (RuntimeOptions(moe_dispatcher=one) for one in ("alltoall", "hierarchical"))
    one, two = (_layer_seconds(job.model_copy(update={"options": x}), layout) for x in options)
    return one, two


def _tutel(nodes: int) -> float:
    ranks = nodes * NODE
    sizes = {"num_experts": 2 * ranks, "num_experts_per_tok": 2, "moe_intermediate_size": 2048}
    training = TrainingSpec(seq_length=16_384, global_batch_size=ranks, precision="fp16")
    cluster, model = parse_cluster(f"{nodes}x8:a100-sxm-80gb"), _model(2048, **sizes)
    job = Job(model=model, training=training, cluster=cluster, runtime="tutel")
    one, two = _two_steps(job, Layout(dp=ranks, ep=ranks))
    return one / min(one, two)


def _hetu() -> float:
    ranks = 8 * NODE
    nic = NicSpec(per_node=1, gb_per_s=12.5)
    nodes = {"num_nodes": 8, "gpus_per_node": NODE, "nvlink_domain": NODE, "nic": nic}
    group = NodeGroup.model_validate({"gpu": "v100-pcie-32gb", **nodes})
    sizes = {"num_experts": ranks, "num_experts_per_tok": 1, "moe_intermediate_size": 2048}
    training = TrainingSpec(seq_length=1024, global_batch_size=8 * ranks, precision="fp16")
    cluster, model = ClusterSpec(name="one NIC", groups=(group,)), _model(2048, **sizes)
    job = Job(model=model, training=training, cluster=cluster, runtime="tutel")
    one, two = _two_steps(job, Layout(dp=ranks, ep=ranks, micro_batch_size=8))
    return 100 * (one / two - 1)


def _step(job: Job, dispatcher: str, layout: Layout) -> float:
    options = job.options.model_copy(update={"moe_dispatcher": dispatcher})
    changed = job.model_copy(update={"options": options})
    found = price(context_for(changed).with_table(LayoutTable.of([layout])))
    return float(found.step_seconds[0])


def _ppmoe() -> tuple[float, float]:
    """Gains of the exchange and of the layer; as many tokens of a node both times."""
    sizes = {"num_experts": 64, "num_experts_per_tok": 1, "moe_intermediate_size": 16_384}
    job = Job(
        model=_model(4096, **sizes),
        training=TrainingSpec(seq_length=2048, global_batch_size=512, precision="fp16"),
        cluster=parse_cluster("8x8:v100-sxm-32gb"),
        runtime="megatron-lm",
        options=RuntimeOptions(moe_dispatcher="allgather"),
    )
    inside = Layout(tp=NODE, sequence_parallel=True, dp=8, ep=NODE, micro_batch_size=4 * NODE)
    plain = job.model_copy(update={"options": RuntimeOptions(moe_dispatcher="alltoall")})
    both = (plain, Layout(dp=64, ep=64, micro_batch_size=4)), (job, inside)
    sent = [
        float(
            blocks(context_for(one).with_table(LayoutTable.of([x]))).layers[-1].forward.ep_comm[0]
        )
        for one, x in both
    ]
    across, gathered = (_layer_seconds(*one) for one in both)
    return 100 * (sent[0] / sent[1] - 1), 100 * (across / gathered - 1)


def _megablocks() -> float:
    sizes = {"num_experts": 64, "num_experts_per_tok": 1, "moe_intermediate_size": 4096}
    job = Job(
        model=_model(1024, 24, **sizes),
        training=TrainingSpec(seq_length=1024, global_batch_size=512, precision="fp16"),
        cluster=parse_cluster("1x8:a100-sxm-80gb"),
        runtime="megatron-lm",
    )
    padded = RuntimeOptions(moe_capacity_factor=2.0, moe_pad_to_capacity=True)
    layout = Layout(dp=8, ep=8, micro_batch_size=8, zero_stage=1)
    twice = _step(job.model_copy(update={"options": padded}), "alltoall", layout)
    return 100 * (twice / _step(job, "alltoall", layout) - 1)
