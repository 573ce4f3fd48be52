"""One profile out of several."""

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.grids import some_cases
from trainplan.costmodel import catalog
from trainplan.costmodel.base.errors import SpecError
from trainplan.costmodel.profiles.profile import (
    CollectivePoint,
    Host,
    LayerPoint,
    Origin,
    OverlapPoint,
    ProductPoint,
    Profile,
    StreamPoint,
    Timing,
)
from trainplan.profiler.fit.merge import identity, merged, spec_of
from trainplan.profiler.fit.points import fitted

PROFILES = Path(__file__).parents[4] / "examples" / "accuracy" / "profiles"
L4 = catalog.gpu("l4")


def product(seconds, n=1024, **more):
    return ProductPoint(m=1024, n=n, k=1024, time=Timing(seconds=seconds, **more))


def stream(seconds, size=2**20):
    return StreamPoint(name="norm", moved_bytes=size, time=Timing(seconds=seconds))


def profile(*points, source="here", gpu="l4", **more):
    return Profile(
        gpu=gpu, **{"gpus_per_node": 8} | more, origins=(Origin(source=source),), points=points
    )


def published(name):
    document = json.loads((PROFILES / f"{name}.json").read_text())
    assert document.pop("schema") == Profile.SCHEMA
    return Profile.model_validate(document)


def seconds(profile_):
    """Of every point, by what was measured."""
    return {
        identity(p): [v.seconds for _, v in p if isinstance(v, Timing)] for p in profile_.points
    }


def test_one_profile_is_itself():
    one = profile(product(1.0))
    assert merged([one]) is one


def test_points_of_different_things_are_put_together():
    whole = merged([profile(product(1e-3)), profile(stream(1e-5), source="there", num_nodes=2)])
    assert whole.points == (product(1e-3), stream(1e-5))
    assert [origin.source for origin in whole.origins] == ["here", "there"]
    assert whole.num_nodes == 2


def test_agreeing_timings_give_their_mean_by_repeats_in_any_order():
    one, other = profile(product(1.00e-3, repeats=10)), profile(product(1.03e-3, repeats=30))
    ways = [merged([one, other]), merged([other, one])]
    for whole in ways:
        (point,) = whole.points
        assert point.time.seconds == pytest.approx(1.0225e-3)
        assert point.time.repeats == 40
        assert not any("not the same" in note for note in whole.notes)


@pytest.mark.parametrize("turned", [False, True])
def test_of_a_doubtful_timing_and_a_clean_one_the_clean_one_counts(turned):
    given = [profile(product(1.0e-3)), profile(product(1.2e-3, flags=("noisy",)))]
    whole = merged(given[::-1] if turned else given)
    assert whole.points == given[0].points
    assert not any("not the same" in note for note in whole.notes)


@pytest.mark.parametrize("turned", [False, True])
def test_timings_that_disagree_keep_the_slower_one_and_say_so(turned):
    given = [profile(product(1.0e-3)), profile(product(1.2e-3))]
    whole = merged(given[::-1] if turned else given)
    assert whole.points == (product(1.2e-3),)
    (written,) = [note for note in whole.notes if "measured twice" in note]
    assert "the slower one is used" in written
    assert "m=1024 n=1024 k=1024" in written


def test_a_wide_spread_makes_timings_agree():
    pair = [profile(product(t, spread_fraction=0.1)) for t in (1.0e-3, 1.2e-3)]
    assert merged(pair).points[0].time.seconds == pytest.approx(1.1e-3)


def test_the_order_of_three_agreeing_profiles_does_not_matter():
    given = [
        profile(product(t), product(2 * t, n=2048), stream(t / 100))
        for t in (1.00e-3, 1.01e-3, 1.02e-3)
    ]
    ways = [seconds(merged([given[i] for i in order])) for order in ((0, 1, 2), (2, 0, 1))]
    assert ways[0].keys() == ways[1].keys()
    for key, value in ways[0].items():
        assert ways[1][key] == pytest.approx(value)


def test_flags_of_both_are_kept():
    pair = [profile(product(1e-3, flags=(flag,))) for flag in ("noisy", "drift")]
    assert merged(pair).points[0].time.flags == ("noisy", "drift")


def test_layers_are_the_same_whatever_they_took():
    model = published("sailor-gh200").points[0].model
    fields = {"model": model, "runtime": "torch-eager", "micro_batch_size": 1, "seq_length": 1024}
    whole, parts = (
        LayerPoint(**fields, both=Timing(seconds=3.0)),
        LayerPoint(**fields, forward=Timing(seconds=1.0), backward=Timing(seconds=2.0)),
    )
    assert identity(whole) == identity(parts)
    assert identity(whole) != identity(whole.model_copy(update={"tp": 2}))
    overlap = OverlapPoint(
        operation="p2p", ranks=2, num_bytes=8, compute_slowdown=1.1, communication_slowdown=1.2
    )
    assert identity(overlap) == identity(overlap.model_copy(update={"compute_slowdown": 2.0}))


def test_profiles_of_different_gpus_are_refused():
    with pytest.raises(SpecError, match="profiles of h100-sxm and l4 do not merge"):
        merged([profile(), profile(gpu="h100-sxm")])


@pytest.mark.parametrize(
    "name", some_cases(sorted(path.stem for path in PROFILES.glob("*.json")), 2)
)
def test_merging_with_itself_changes_no_second(name):
    one = published(name)
    twice = merged([one, one])
    assert Counter(twice.points) == Counter(one.points)
    assert twice.origins == one.origins
    once = fitted(one, spec_of(one))
    assert twice.fitted.gemm.keys() == once.fitted.gemm.keys()
    for precision, curve in once.fitted.gemm.items():
        assert twice.fitted.gemm[precision].flop_factor == pytest.approx(curve.flop_factor)
    assert twice.fitted.collectives == once.fitted.collectives
    assert twice.constants == once.constants
    assert twice.failures == once.failures


def test_a_shape_measured_twice_in_one_profile_stays_so():
    both = profile(product(1.0e-3), product(1.5e-3))
    assert merged([both, profile(stream(1e-5))]).points == (*both.points, stream(1e-5))
    (pooled,) = merged([both, profile(product(1.2e-3))]).points
    assert pooled.time.seconds >= 1.2e-3


def test_curves_are_those_of_all_points():
    halves = [
        [
            CollectivePoint(
                operation="all_reduce",
                ranks=8,
                per_node=8,
                num_bytes=size,
                time=Timing(seconds=1e-5 + size / 1e10),
            )
            for size in sizes
        ]
        for sizes in ((2**12, 2**28), (2**16, 2**24))
    ]
    assert not fitted(profile(*halves[0]), L4).fitted.collectives
    whole = merged([profile(*half) for half in halves])
    assert whole.fitted.collectives["all_reduce_8"].alpha_us == pytest.approx(10.0, rel=1e-3)


def device(gb_per_s, **peaks):
    """Numbers of a device as they were reached."""

    def number(value):
        return {"value": value, "source": "a test"}

    return L4.model_copy(
        update={
            "memory_gb_per_s": L4.memory_gb_per_s.model_validate(number(gb_per_s)),
            "peak_tflops": {
                name: L4.memory_gb_per_s.model_validate(number(p)) for name, p in peaks.items()
            },
        }
    )


@pytest.mark.parametrize("turned", [False, True])
def test_a_device_the_catalog_lacks_has_the_best_of_what_was_reached(turned):
    pair = [
        profile(gpu="mine", device=device(20.0, fp32=0.2)),
        profile(gpu="mine", device=device(5.0, fp32=0.3, bf16=0.1)),
    ]
    found = merged(pair[::-1] if turned else pair).device
    assert found.memory_gb_per_s.value == 20.0
    assert {name: one.value for name, one in found.peak_tflops.items()} == {
        "fp32": 0.3,
        "bf16": 0.1,
    }


def test_the_larger_node_is_the_node():
    pair = [profile(gpus_per_node=4), profile(gpus_per_node=8)]
    assert merged(pair).gpus_per_node == merged(pair[::-1]).gpus_per_node == 8


def test_hosts_failures_and_notes_are_gathered_once():
    host = Host(name="a", num_gpus=8)
    one = profile(hosts=(host,), notes=("x",))
    whole = merged([one, one, profile(hosts=(host, Host(name="b", num_gpus=8)), notes=("x", "y"))])
    assert [h.name for h in whole.hosts] == ["a", "b"]
    assert [note for note in whole.notes if note in "xy"] == ["x", "y"]
