"""The example that judges curves by recorded tables, on made-up ones."""

import sys

import numpy as np
import pytest

from tests import examples
from trainplan.costmodel import catalog
from trainplan.costmodel.base.errors import SpecError
from trainplan.profiler.bench.inputs.shapes import candidates, caps

examples.on_path("profile_fits")

import recorded  # noqa: E402
from score import (  # noqa: E402
    COUNTS,
    Messages,
    Products,
    between,
    in_range,
    noise,
    score,
    spread,
    stated_by,
    stated_in_turn,
)

H100 = catalog.gpu("h100-sxm")
PEAK, BANDWIDTH = H100.peak_tflops["bf16"].value * 1e12, H100.memory_gb_per_s.value * 1e9
COLUMNS = (64, 256, 512, 1024, 1536, 2048, 4096, 6144, 8192, 16384)
SIZES = np.array(
    [(m, n, k) for m in (256, 1024, 2048, 3072, 4096, 8192) for n in COLUMNS for k in COLUMNS]
)


def table(noisy=0.0):
    """A GPU that is the curve itself, but for what disturbs each measurement."""
    m, n, k = SIZES.T.astype(float)
    seconds = 5e-6 + 2.5 * m * n * k / PEAK + 1.2 * (m * k + k * n + m * n) / BANDWIDTH
    disturbed = np.random.default_rng(0).normal(0, noisy, len(seconds))
    return Products(SIZES, seconds * np.exp(disturbed))


def test_products_on_a_curve_are_told_by_few_of_them():
    found = score(table(), H100)
    assert max(*found.inside, *found.beyond) < 1e-3
    assert found.noise < 0.05, "a line between neighbours is not the curve"


def test_what_disturbs_a_table_shows_as_its_noise_and_as_errors():
    even, uneven = score(table(), H100), score(table(noisy=0.1), H100)
    assert uneven.noise > 0.05 > even.noise
    assert min(uneven.inside) > 0.05
    assert noise(table(noisy=0.2)) > uneven.noise


@pytest.mark.parametrize("count", COUNTS)
def test_the_products_kept_are_some_that_the_profiler_measures(count):
    kept = spread(SIZES, count)
    limit = caps("cuda", quick=False)
    wanted = {(s.m, s.n, s.k) for s in candidates("cuda") if s.fits(limit)}
    assert len(set(kept)) == count
    assert {tuple(size) for size in SIZES[kept].tolist()} <= wanted
    backwards = SIZES[::-1]
    assert backwards[spread(backwards, count)].tolist() == SIZES[kept].tolist()


def test_the_range_is_that_of_the_spread_products():
    sizes = np.array([(1024, 256, 4096), (1025, 1537, 7169), (512, 4096, 4096), (1024, 128, 16384)])
    assert in_range(sizes).tolist() == [True, True, False, False]
    assert in_range(np.array([(1024, 256, 256), (32768, 65536, 65536)])).tolist() == [False, False]


def test_a_point_between_its_neighbours_is_judged_in_logarithms():
    assert list(between([(1, 1.0), (4, 16.0), (2, 8.0)])) == pytest.approx([0.5])
    assert list(between([(1, 1.0), (2, 2.0)])) == []


def test_sizes_on_a_curve_are_told_by_the_others():
    line = tuple((2.0**power, 20e-6 + 2.0**power / 100e9) for power in range(13, 30))
    whole, few = Messages("all_reduce", 8, line), Messages("all_reduce", 8, line[:2])
    assert stated_in_turn(whole) < 1e-3
    assert stated_by(whole, (2**13, 2**20, 2**29)) < 1e-3
    assert stated_in_turn(few) == stated_by(few, (2**13,)) == float("inf")


def test_a_jump_between_two_measured_sizes_is_not_told():
    line = tuple((2.0**p, 20e-6 + 2.0**p / 100e9 * (1 + (p > 20))) for p in range(13, 30))
    jump = Messages("all_reduce", 8, line)
    assert stated_by(jump, (2**13, 2**17, 2**29)) > stated_in_turn(jump) > 0


def test_a_table_without_a_reader_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(SpecError, match="pip install pyarrow"):
        recorded.products(tmp_path / "gemm_perf.parquet")


def test_a_written_table_is_read_back(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    file = tmp_path / "gemm_perf.parquet"
    columns = {"gemm_dtype": ["bfloat16", "fp8"], "m": [8, 8], "n": [4, 4], "k": [2, 2]}
    parquet.write_table(pyarrow.table({**columns, "latency": [0.5, 0.1]}), file)
    found = recorded.products(file)
    assert (found.sizes.tolist(), found.seconds.tolist()) == ([[8, 4, 2]], [0.0005])
    messages = tmp_path / "nccl_perf.parquet"
    columns = {"nccl_dtype": ["half"] * 4, "op_name": ["alltoall"] * 4, "num_gpus": [8] * 4}
    sizes = {"message_size": [2048, 4096, 4096, 8192], "latency": [1.0, 2.0, 4.0, 5.0]}
    parquet.write_table(pyarrow.table({**columns, **sizes}), messages)
    (one,) = recorded.collectives(messages)
    assert (one.operation, one.ranks) == ("alltoall", 8)
    assert one.line == ((8192, pytest.approx(0.003)), (16384, pytest.approx(0.005)))


def test_a_pointer_of_git_lfs_in_place_of_a_table_is_named(tmp_path):
    pytest.importorskip("pyarrow")
    file = tmp_path / "gemm_perf.parquet"
    file.write_text("version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(SpecError, match="git lfs pull"):
        recorded.products(file)
