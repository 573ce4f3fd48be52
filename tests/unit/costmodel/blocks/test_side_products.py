"""Products beside the halves of a layer take time and keep their outputs."""

import pytest

from trainplan.costmodel.architecture.model import ModelSpec
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, TrainingSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.presets.presets import preset
from trainplan.planner.questions.estimation import estimate

LLAMA = preset("llama3-8b")
WIDTH = 1024
SIDES = ((4096, WIDTH), (WIDTH, 4096))


def estimated(model: ModelSpec, **axes: int):
    training = TrainingSpec(global_batch_size=8, seq_length=4096)
    cluster = parse_cluster("1x8:h100-sxm")
    job = Job(model=model, training=training, cluster=cluster, runtime="torchtitan")
    layout = Layout.model_validate({"dp": 8, "micro_batch_size": 1, "zero_stage": 3, **axes})
    return estimate(job, layout)


def with_sides(**more: object) -> ModelSpec:
    return ModelSpec.model_validate(LLAMA.model_dump() | {"side_products": SIDES} | more)


def test_they_take_the_share_of_the_products_that_their_weights_are() -> None:
    plain, more = estimated(LLAMA), estimated(with_sides())
    weights = 32 * 2 * 4096 * WIDTH
    share = weights / (8.03e9 - 128256 * 4096)
    gained = more.terms.gemm / plain.terms.gemm - 1
    assert gained == pytest.approx(share, rel=0.2)


def test_their_outputs_are_kept() -> None:
    plain, more = estimated(LLAMA), estimated(with_sides())
    ranks = zip(plain.memory.pipeline_ranks, more.memory.pipeline_ranks, strict=True)
    outputs = 32 * 2 * 4096 * (WIDTH + 4096)
    for before, after in ranks:
        assert after.activations_bytes - before.activations_bytes == pytest.approx(outputs)


def test_weights_in_no_product_take_memory_and_no_time_of_products() -> None:
    plain, more = estimated(LLAMA), estimated(with_sides(side_products=(), layer_weights=10**6))
    assert more.terms.gemm == plain.terms.gemm
    states = [one.memory.pipeline_ranks[0].optimizer_bytes for one in (plain, more)]
    assert states[1] - states[0] == pytest.approx(32 * 10**6 * 12 / 8)


@pytest.mark.parametrize(
    ("fields", "weights"),
    [
        ({"low_rank": {"query_rank": 1024}}, 1024 * (4096 + 4096) - 4096**2),
        (
            {"low_rank": {"query_rank": 1024, "output_rank": 4096, "output_groups": 4}},
            1024 * (4096 + 4096) - 4096**2 + 4096 * (1024 + 4096) - 4096**2,
        ),
        ({"key_value_projections": "none"}, -2 * 1024 * 4096),
        ({"value_head_dim": 64}, -(512 * 4096 + 2048 * 4096)),
    ],
)
def test_other_projections_take_the_time_of_their_weights(
    fields: dict[str, object], weights: int
) -> None:
    plain = estimated(LLAMA)
    other = estimated(ModelSpec.model_validate(LLAMA.model_dump() | fields))
    share = 32 * weights / (8.03e9 - 128256 * 4096)
    assert other.terms.gemm / plain.terms.gemm - 1 == pytest.approx(share, rel=0.45, abs=0.004)
