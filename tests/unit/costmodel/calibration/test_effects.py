"""What runs of a machine share."""

import numpy as np
import pytest

from trainplan.costmodel import catalog
from trainplan.costmodel.calibration.effects import effects_of, family_of, machine_spread, shared_by
from trainplan.costmodel.layout.layout import Layout

ONE_NODE = "1x8:h100-sxm"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("llama3-8b", "llama3.1-405b"),
        ("deepseek-v2", "deepseek-v3"),
        ("llama3-8b", "meta-llama/Llama-2-7b-hf"),
    ],
)
def test_sizes_and_releases_of_a_model_are_one_family(make_job, one, other):
    models = [
        make_job("small-dense", ONE_NODE).model.model_copy(update={"name": n}) for n in (one, other)
    ]
    assert family_of(models[0]) == family_of(models[1])


def test_a_mixture_of_experts_and_a_dense_model_of_one_name_are_two_families(make_job):
    mixture, dense = (
        make_job(name, ONE_NODE).model.model_copy(update={"name": "qwen3"})
        for name in ("small-moe", "small-dense")
    )
    assert family_of(mixture) == "mixture-of-experts qwen"
    assert family_of(dense) == "dense qwen"


def test_gpt_oss_is_not_gpt(make_job):
    model = make_job("small-moe", ONE_NODE).model
    names = [model.model_copy(update={"name": name}) for name in ("gpt-oss-20b", "gpt3-6.7b")]
    assert len({family_of(one) for one in names}) == 2


def test_a_run_has_the_effects_of_its_machine_family_and_model(make_job):
    job = make_job("small-dense", ONE_NODE)
    runs = [shared_by(job, Layout(tp=tp)) for tp in (1, 2, 2)]
    effects = effects_of(runs, 0.1)
    assert effects.members.tolist() == [[1.0, 1.0, 1.0]] * 3
    sizes = catalog.spreads().runs
    assert effects.spreads.tolist() == [0.1, sizes.family.value, sizes.model.value]
    assert effects.repeats.tolist() == [1.0, 2.0, 2.0]
    assert effects.share().tolist() == [1.0, 0.0, 0.0]
    assert np.array_equal(effects.take(np.array([True, False, True])).repeats, [1.0, 1.0])


def test_a_fitted_machine_is_closer_to_the_model_than_an_unseen_one():
    assert machine_spread(was_seen=True) < machine_spread(was_seen=False)
