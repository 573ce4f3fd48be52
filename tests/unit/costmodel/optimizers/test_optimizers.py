"""Optimizers: state and work of one matrix by hand, and what a name may say."""

import numpy as np
import pytest

from trainplan.costmodel.base.errors import PlanError
from trainplan.costmodel.job.job import TrainingSpec
from trainplan.costmodel.job.optimizer import OptimizerSpec
from trainplan.costmodel.optimizers.registry import OPTIMIZERS, Matrix, optimizer_of
from trainplan.costmodel.optimizers.state_precision import FP8_LM, STORED
from trainplan.costmodel.runtimes.registry import RUNTIMES
from trainplan.costmodel.semantics import CHANGES
from trainplan.planner.runtimes import EXPORTERS


def matrix(rows, columns, role="hidden", **cut):
    return Matrix(np.asarray(float(rows)), np.asarray(float(columns)), 1.0, role, **cut)


def state(text, one, width=4):
    wanted = OptimizerSpec.parse(text)
    return float(optimizer_of(wanted).state_bytes(one, wanted, width))


@pytest.mark.parametrize(
    ("text", "bytes_of_matrix"),
    [
        ("adamw", 2 * 4 * 96 * 200),
        ("lion", 4 * 96 * 200),
        ("sgd", 4 * 96 * 200),
        ("adamw8bit", 2 * (19_200 + 4 * 75)),
        ("adafactor", 4 * (96 + 200)),
        ("muon", 4 * 96 * 200),
        ("dist-muon", 4 * 96 * 200),
        ("soap", 4 * (2 * 96 * 200 + 2 * (96**2 + 200**2))),
        ("shampoo", 4 * (96 * 200 + 2 * (96**2 + 200**2))),
        ("galore:rank=32", 4 * (32 * 96 + 2 * 32 * 200)),
        ("galore:rank=500", 4 * (96 * 96 + 2 * 96 * 200)),
        ("galore8bit:rank=32", 4 * 32 * 96 + 2 * (6_400 + 4 * 25)),
        ("apollo:rank=32", 4 * (32 * 96 + 2 * 32 * 200 + 1)),
        ("apollo-mini", 4 * (96 + 2 * 200 + 1)),
    ],
)
def test_the_state_of_a_matrix_of_96_by_200(text, bytes_of_matrix):
    assert state(text, matrix(96, 200)) == bytes_of_matrix
    assert state(text, matrix(200, 96)) == bytes_of_matrix, "the same lying on its side"


@pytest.mark.parametrize("role", ["end", "vector"])
@pytest.mark.parametrize(
    "text", ["muon", "dist-muon", "soap", "shampoo", "galore:rank=8", "apollo:rank=8"]
)
def test_tables_at_the_ends_and_vectors_are_left_to_adam(text, role):
    one = matrix(512, 1 if role == "vector" else 64, role)
    wanted = OptimizerSpec.parse(text)
    assert state(text, one) == 8 * float(one.elements)
    assert not optimizer_of(wanted).products(one, wanted)
    assert optimizer_of(wanted).decomposition_flop(one, wanted) == 0


def test_small_tensors_keep_moments_in_fp32():
    assert state("adamw8bit", matrix(4095, 1, "vector")) == 8 * 4095
    assert state("adamw8bit", matrix(4096, 1, "vector")) == 2 * (4096 + 4 * 16)


def flop(text, one):
    """FLOPs of the products of one step."""
    wanted = OptimizerSpec.parse(text)
    found = optimizer_of(wanted).products(one, wanted)
    return sum(2 * float(p.m) * float(p.n) * float(p.k) * p.times for p in found)


def test_newton_and_schulz_take_five_steps_on_the_shorter_side():
    m, n = 96.0, 200.0
    expected = 5 * (4 * m * m * n + 2 * m**3)
    assert flop("muon", matrix(96, 200)) == flop("muon", matrix(200, 96)) == expected


def test_muon_multiplies_the_matrix_that_tensor_ranks_hold_parts_of():
    assert flop("muon", matrix(24, 200, cut_rows=4.0)) == flop("muon", matrix(96, 200))


def test_galore_projects_and_brings_back_and_apollo_only_projects():
    assert flop("galore:rank=32", matrix(96, 200)) == 4 * 32 * 96 * 200
    assert flop("apollo:rank=32", matrix(96, 200)) == 2 * 32 * 96 * 200


def test_preconditioners_multiply_from_both_sides():
    m, n = 96.0, 200.0
    both = m * m * n + m * n * n
    assert flop("shampoo", matrix(96, 200)) == pytest.approx(4 * both)
    assert flop("soap", matrix(96, 200)) == pytest.approx(6 * both + 0.2 * (m**3 + n**3))


def test_factorizations_are_spread_over_their_period():
    def each(text):
        wanted = OptimizerSpec.parse(text)
        return float(optimizer_of(wanted).decomposition_flop(matrix(96, 200), wanted))

    m, n = 96.0, 200.0
    assert each("galore:rank=8") == pytest.approx((14 * n * m * m + 8 * m**3) / 200)
    assert each("shampoo") == pytest.approx(9 * (m**3 + n**3) / 50)
    assert each("soap") == pytest.approx(8 / 3 * (m**3 + n**3) / 10)
    assert each("muon") == 0


def test_levels_of_fp8_lm_take_6_bytes_and_one_more_for_a_weight_of_its_own():
    assert {level: STORED[level].total_bytes for level in FP8_LM} == {"o1": 11, "o2": 6, "o3": 7}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("adamm", "unknown optimizer 'adamm': did you mean 'adamw'"),
        ("galore", "optimizer galore needs a rank: write galore:rank=256"),
        ("adamw:rank=4", "optimizer adamw has no setting rank: it takes none"),
        ("apollo-mini:rank=4", "optimizer apollo-mini has no setting rank: it takes update"),
        ("galore:rank=0", "optimizer 'galore:rank=0': rank: must be above 0, got '0'"),
        ("galore:rank=x", "rank: must be a whole number, got 'x'"),
        ("galore:rank=4,rank=5", "'rank=5' is none"),
        ("galore:size=4", "'size=4' is none"),
        ("galore:rank=8,update=never", "update: must be one of 'layer' or 'step', got 'never'"),
        ("adamw:", "'' is none"),
    ],
)
def test_a_wrong_optimizer_is_refused_in_one_line(text, says):
    with pytest.raises(PlanError) as refused:
        optimizer_of(OptimizerSpec.parse(text))
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("text", ["adamw", "galore:rank=8", "apollo:rank=8,update=step"])
def test_an_optimizer_is_one_word_in_a_document(text):
    training = TrainingSpec(seq_length=8, global_batch_size=1, optimizer=text)
    assert training.model_dump(mode="json")["optimizer"] == text
    assert TrainingSpec.model_validate_json(training.model_dump_json()) == training


def test_a_document_without_an_optimizer_is_of_adamw():
    training = TrainingSpec(seq_length=8, global_batch_size=1)
    assert training.optimizer == OptimizerSpec.parse("adamw")
    assert training.state_precision == "o0"


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_is_told_whole_in_one_place(name):
    """Its formula, its source, a runtime that has it, its change of the training."""
    one = OPTIMIZERS[name]
    assert one.name == name
    assert one.says
    assert one.source
    assert set(one.needs) <= set(one.takes)
    assert any(name in dict(traits.optimizers) for traits in RUNTIMES.values())
    assert one.changes is None or one.changes in CHANGES
    overridden = type(one).state_bytes is not type(OPTIMIZERS["adamw"]).state_bytes
    assert overridden == (one.moments is None), "state by shape, or so many numbers"


@pytest.mark.parametrize("name", RUNTIMES)
def test_every_runtime_has_adamw_and_no_optimizer_that_is_unknown(name):
    assert "adamw" in dict(RUNTIMES[name].optimizers)
    assert set(dict(RUNTIMES[name].optimizers)) <= set(OPTIMIZERS)


@pytest.mark.parametrize("name", EXPORTERS)
def test_an_exporter_writes_no_optimizer_that_its_runtime_lacks(name):
    assert EXPORTERS[name].optimizers <= set(dict(RUNTIMES[name].optimizers))
