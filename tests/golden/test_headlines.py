"""docs/headlines.md: results that publications are known for, and whether the model reaches them.

Tolerances and published numbers stand beside the code of each figure, docs/generator/headlines_*,
and in headline_commands.toml; `make accuracy` writes the page. A figure that misses its tolerance
fails here unless it says why and is off by the error of headline_misses.toml.
"""

import importlib
from pathlib import Path

import pytest

from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, TrainingSpec
from trainplan.costmodel.model.flops import model_flop_per_step
from trainplan.costmodel.presets.presets import preset

ROOT = Path(__file__).parents[2]
A100_FLOP_PER_SECOND = 312e12


@pytest.fixture(scope="module", name="modules")
def _modules():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "docs" / "generator"))
        names = ("accuracy", "headlines", "headlines_dense", "headlines_figure", "headlines_moe")
        yield {name: importlib.import_module(name) for name in names}


@pytest.fixture(scope="module", name="found")
def _found(modules):
    headlines = modules["headlines"].headlines(modules["accuracy"].read_data())
    return {one.key: one for one in headlines}


KEYS = [
    "sc21",
    "selective",
    "moe",
    "exchanges",
    "megascale",
    "torchtitan",
    "zero-bubble",
    "zero-plus-plus",
    "sharding",
    "islands",
]
COMMANDS = ["offload", "states", "length", "others", "goodput"]


@pytest.mark.parametrize("key", [*KEYS, *COMMANDS])
def test_every_figure_is_reached_or_missed_by_the_error_on_file(modules, found, key):
    assert list(modules["headlines"].complaints([found[key]])) == []


def test_the_page_is_current(modules, found):
    stated = modules["headlines"].PAGE.read_text("utf-8")
    accuracy = modules["accuracy"]
    written = accuracy.PHRASE.search(accuracy.README.read_text("utf-8"))[2]
    now = modules["headlines"].page(found.values(), written)
    assert accuracy.agree(stated, now), "run `make accuracy`"


def test_every_headline_is_tested(found):
    assert set(found) == {*KEYS, *COMMANDS}


def test_a_trillion_parameters_step_in_the_published_time(found):
    (step,) = (one for one in found["sc21"].figures if one.what == "1T on 3072 GPUs")
    assert step.predicted == pytest.approx(102.6, rel=0.10)


def test_interleaving_is_worth_less_the_more_micro_batches_there_are(modules):
    gains = [modules["headlines_dense"].interleaving_gain(batch) for batch in (12, 24, 36, 60)]
    assert gains == sorted(gains, reverse=True)
    assert gains[-1] > 0


def test_the_printed_mfu_of_selective_recomputation_follows_from_the_printed_step(modules):
    """72 B s L h^2 (1 + s / 6h + v / 12hL), the count of arXiv:2205.05198, section 5."""
    dense = modules["headlines_dense"]
    for gpt in (*dense.GPTS, dense.REPLICATED):
        layers, hidden = gpt.shape["num_layers"], gpt.shape["hidden_size"]
        terms = 1 + 2048 / (6 * hidden) + 51200 / (12 * hidden * layers)
        flop = 72 * gpt.batch * 2048 * layers * hidden**2 * terms
        mfu = flop / gpt.selective_s / gpt.num_gpus / A100_FLOP_PER_SECOND
        assert 100 * mfu == pytest.approx(gpt.mfu_percent, abs=0.5), gpt.name


def test_deepseek_v3_costs_its_gpu_hours(modules):
    """Source: arXiv:2412.19437, table 1: 180K GPU hours a trillion tokens, 2664K for 14.8T."""
    per_second = modules["headlines_moe"].TOKENS_PER_S_PER_GPU
    assert per_second == pytest.approx(1543, abs=0.5)
    assert 14.8e12 / per_second / 3600 == pytest.approx(2_664_000)


def test_deepseek_v3_with_few_layers_beside_its_head_is_faster_than_any_even_split(modules):
    moe = modules["headlines_moe"]
    assert moe.deepseek().step_time_s < moe.deepseek_found()[1].step_time_s


@pytest.mark.parametrize(("step_s", "mfu"), [(6.34, 0.552), (8.57, 0.552 / 1.34)])
def test_the_printed_mfu_of_megascale_follows_from_the_printed_step(step_s, mfu):
    job = Job(
        model=preset("gpt3-175b"),
        training=TrainingSpec(seq_length=2048, global_batch_size=6144),
        cluster=parse_cluster("1536x8:a100-sxm-80gb"),
    )
    counted = model_flop_per_step(job) / step_s / 12288 / A100_FLOP_PER_SECOND
    assert counted == pytest.approx(mfu, rel=0.02)


def test_tokens_per_second_are_batch_times_sequence_over_the_step(modules):
    figure = modules["headlines_figure"]
    runs = figure.Runs(modules["accuracy"].read_data())
    run = runs["sc21-t1-145b"]
    (estimate,) = figure.estimates([run])
    tokens = run.training.global_batch_size * run.training.seq_length
    all_gpus = estimate.tokens_per_s_per_gpu * run.cluster.num_gpus
    assert all_gpus == pytest.approx(tokens / estimate.step_time_s)


@pytest.mark.parametrize(
    ("test", "published", "predicted", "reached"),
    [
        ("near", 100, 109, True),
        ("near", 100, 111, False),
        ("sign", 2.2, 0.1, True),
        ("sign", 2.2, 0.0, False),
        ("sign", -2.2, -9.0, True),
        ("at most", 5, 5, True),
        ("at most", 5, float("inf"), False),
        ("at least", 10, 9.9, False),
    ],
)
def test_a_figure_is_reached_when_it_is_near_of_one_sign_or_within_the_limit(
    modules, test, published, predicted, reached
):
    figure = modules["headlines_figure"].Figure("", published, predicted, 0.10, test=test)
    assert figure.reached == reached


@pytest.mark.parametrize(
    ("predicted", "held", "why", "complains"),
    [
        (105, None, "", False),
        (105, -0.05, "", True),
        (120, None, "", True),
        (120, None, "why", True),
        (120, 0.21, "why", False),
        (120, 0.25, "why", True),
        (80, 0.2, "why", True),
        (float("inf"), float("inf"), "why", False),
        (120, float("inf"), "why", True),
    ],
)
def test_a_missed_figure_is_held_to_its_error(modules, predicted, held, why, complains):
    figure = modules["headlines_figure"].Figure("", 100, predicted, 0.1, why=why, held_error=held)
    assert (figure.complaint() is not None) == complains


@pytest.mark.parametrize(("published", "reached"), [(0.9, False), (1.0, True), (1.3, False)])
def test_a_range_is_reached_when_the_figure_lies_in_it(modules, published, reached):
    figure = modules["headlines_figure"].Figure("", published, 1.0, test="range", highest=1.2)
    assert figure.reached == reached
