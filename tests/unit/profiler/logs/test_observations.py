"""Step times and memory out of training logs."""

import json

import pytest

from trainplan.costmodel.base.errors import SpecError
from trainplan.profiler.logs.observations import StatedRun, observe

REQUEST = StatedRun(global_batch_size=128, seq_length=8192, num_gpus=8)
NEW = (
    " [2025-08-01 07:19:37.123456] iteration {:8d}/    5000 | consumed samples:          128 | "
    "elapsed time per iteration (ms): {:.1f} | throughput per GPU (TFLOP/s/GPU): 80.2 | learning "
    "rate: 6.976744E-08 | global batch size: {:5d} | lm loss: 1.043863E+01 | loss scale: 1.0 | "
    "grad norm: 26.203 | number of skipped iterations:   0 | number of nan iterations:   0 |"
)
OLD = (
    " iteration {:8d}/  500000 | consumed samples:  5632 | "
    "elapsed time per iteration (ms): {:.1f} | learning rate: 1.499E-05 | "
    "global batch size: {:5d} | lm loss:  1.376514E+01 |"
)
RANKS = """\
[Rank 2] (after 1 iterations) memory (MB) | allocated: 9334.37 | max allocated: 12680.63 | \
reserved: 13236.0 | max reserved: 13236.0[Rank 6] (after 1 iterations) memory (MB) | \
allocated: 10850.6 | max allocated: 10850.7 | reserved: 11000.0 | max reserved: 16000.0"""
BRIDGE = (
    "[Rank 1] (after 2 iterations) memory (GB) | mem-allocated-gigabytes: 63.66 | "
    "mem-max-allocated-gigabytes: 153.4 | mem-max-reserved-gigabytes: 182.2 | mem-alloc-retires: 0"
)
TITAN = {
    "2026": "[titan] 2026-02-24 19:46:17,508 - root - INFO - step: {:2d}  loss:  7.62585  "
    "grad_norm: 26.6250  memory: 66.91GiB(37.51%)  tps: {:,}  tflops: 314.71  mfu: 13.99%",
    "ranks and colours": "[rank0]:[titan] 2025-06-16 22:30:50,322 - root - INFO - \x1b[31mstep: "
    "{:2d}  \x1b[32mloss:  6.1384  \x1b[38;2;180;60;0mgrad_norm: 1.0  \x1b[36mmemory: 66.91GiB"
    "(52.28%)  \x1b[34mtps: {:,}  \x1b[36mtflops: 339.16  \x1b[35mmfu: 34.29%\x1b[39m",
    "2024": "2024-08-01 10:00:00,000 - root - INFO - step: {:2d}  loss: 10.8  "
    "memory: 66.91GiB(42.00%)  wps: {:,}  mfu: 33.1%",
    "quantized": "[titan] - INFO - step: {:2d}  loss:  7.6  grad_norm:  2.6  "
    "memory: 66.91GiB(37.51%)  tps: {:,}  tflops: 314.71  mfu: N/A",
}


def megatron(times, line=NEW, batch=128):
    return "\n".join(line.format(number, ms, batch) for number, ms in enumerate(times, start=1))


@pytest.mark.parametrize("line", [NEW, OLD], ids=["new", "old"])
def test_a_megatron_log_gives_the_median_of_its_steps(line):
    seen = observe(megatron([19138.8, 12936.1, 12978.1, 13000.0], line), REQUEST)
    assert seen.format == "megatron-lm"
    assert seen.step_time_s == pytest.approx(12.9781)
    assert (seen.num_lines, seen.num_warm_up) == (3, 1)
    assert (seen.lowest_s, seen.highest_s) == pytest.approx((12.9361, 13.0))
    assert seen.peak_allocated_bytes is None
    assert seen.peak_reserved_bytes is None


def test_a_long_warm_up_is_left_out_of_a_long_log():
    seen = observe(megatron([9000.0] * 10 + [1000.0] * 190), REQUEST)
    assert seen.num_warm_up == 10
    assert (seen.lowest_s, seen.highest_s) == (1.0, 1.0)


def test_a_line_every_hundred_iterations_is_enough():
    text = "\n".join((NEW.format(1, 19000, 128), NEW.format(100, 1200, 128)))
    assert observe(text, REQUEST).step_time_s == pytest.approx(1.2)
    seen = observe(NEW.format(100, 1234.5, 128), REQUEST)
    assert (seen.step_time_s, seen.num_warm_up) == (pytest.approx(1.2345), 0)


def test_memory_is_that_of_the_fullest_rank():
    seen = observe(RANKS + "\n" + megatron([2000, 1000]), REQUEST)
    assert seen.peak_allocated_bytes == pytest.approx(12680.63 * 2**20)
    assert seen.peak_reserved_bytes == pytest.approx(16000.0 * 2**20)
    seen = observe(BRIDGE + "\n" + megatron([2000, 1000]), REQUEST)
    assert seen.peak_allocated_bytes == pytest.approx(153.4e9)
    assert seen.peak_reserved_bytes == pytest.approx(182.2e9)


def test_a_running_mean_beside_the_time_is_no_time():
    line = "iteration {:d}/ 50 | elapsed time per iteration (ms): {:.1f}/99999.9 |"
    text = "\n".join(line.format(number, 1500.0) for number in (1, 2, 3))
    assert observe(text, REQUEST).step_time_s == pytest.approx(1.5)


@pytest.mark.parametrize("version", TITAN)
def test_a_torchtitan_log_gives_a_step_time_and_the_reserved_memory(version):
    text = "\n".join(TITAN[version].format(n, t) for n, t in ((1, 500), (10, 5762), (20, 5762)))
    seen = observe(text, REQUEST)
    assert seen.format == "torchtitan"
    assert seen.step_time_s == pytest.approx(128 * 8192 / (5762 * 8))
    assert seen.peak_reserved_bytes == pytest.approx(66.91 * 2**30)
    assert seen.peak_allocated_bytes is None


def test_a_validation_of_torchtitan_is_no_training_step():
    line = TITAN["2026"]
    text = "\n".join(
        f"{line.format(n, 5762)}\n{line.format(n, 20000).replace('step:', 'validate step:')}"
        for n in range(1, 6)
    )
    seen = observe(text, REQUEST)
    assert seen.num_lines == 4
    assert seen.highest_s == pytest.approx(128 * 8192 / (5762 * 8))
    assert seen.lowest_s == seen.highest_s


def test_several_ranks_of_one_step_count_once():
    line = TITAN["2026"]
    text = "\n".join(line.format(n, t) for n in (1, 2, 3) for t in (1000 * n, 1000 * n, 1))
    seen = observe(text, REQUEST)
    assert (seen.num_lines, seen.num_warm_up) == (2, 1)
    assert seen.lowest_s == pytest.approx(128 * 8192 / (3000 * 8))


def test_lines_of_another_batch_size_do_not_count():
    text = megatron([500, 500, 500], batch=64) + "\n" + NEW.format(4, 2000, 128)
    assert observe(text, REQUEST).step_time_s == pytest.approx(2.0)
    with pytest.raises(SpecError, match=r"global batch size 64.*requested is 128"):
        observe(megatron([500, 500], batch=64), REQUEST)


@pytest.mark.parametrize("text", ["", "hello\nworld", "iteration 3/ 10 | lm loss: 3.0"])
def test_a_log_without_steps_is_refused(text):
    with pytest.raises(SpecError, match="no step line found"):
        observe(text, REQUEST)


def test_a_log_of_only_the_first_step_is_refused():
    with pytest.raises(SpecError, match="only the first step"):
        observe(megatron([19138.8]), REQUEST)


def trace(durations, **more):
    steps = [
        {"ph": "X", "name": f"ProfilerStep#{n}", "ts": 1.0, "dur": dur, **more}
        for n, dur in enumerate(durations, start=2)
    ]
    return {"schemaVersion": 1, "traceEvents": [{"ph": "M", "name": "process_name"}, *steps]}


def test_a_trace_of_the_torch_profiler_gives_the_median_of_its_steps():
    document = trace([2_000_000, 1_000_000, 1_100_000.5, 1_200_000])
    seen = observe(json.dumps(document), REQUEST)
    assert (seen.format, seen.num_lines, seen.num_warm_up) == ("torch-profiler", 3, 1)
    assert seen.step_time_s == pytest.approx(1.1000005)
    assert seen.peak_allocated_bytes is None
    assert observe(json.dumps(document["traceEvents"]), REQUEST) == seen


def test_a_trace_with_one_step_is_used():
    assert observe(json.dumps(trace([500_000])), REQUEST).step_time_s == pytest.approx(0.5)


def test_copies_of_a_step_on_the_track_of_the_gpu_do_not_count():
    document = trace([1_000_000, 1_000_000])
    document["traceEvents"] += trace([1, 1], cat="gpu_user_annotation")["traceEvents"]
    assert observe(json.dumps(document), REQUEST).step_time_s == pytest.approx(1.0)


@pytest.mark.parametrize("duration", [0, -5, "x", None, 10**400])
def test_a_step_of_a_trace_without_a_duration_is_refused(duration):
    with pytest.raises(SpecError, match=r"ProfilerStep#2 of the trace has dur"):
        observe(json.dumps(trace([duration])), REQUEST)


def test_a_trace_without_steps_is_refused():
    with pytest.raises(SpecError, match=r"no event 'ProfilerStep#N'.*step\(\)"):
        observe(json.dumps(trace([])), REQUEST)


@pytest.mark.parametrize("text", ["{", "[1, 2]", '{"traceEvents": 3}', "{}", "[" * 100_000])
def test_json_that_is_no_trace_is_a_log_without_steps(text):
    with pytest.raises(SpecError, match="no step line found"):
        observe(text, REQUEST)
