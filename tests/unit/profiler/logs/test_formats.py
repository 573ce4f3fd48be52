"""Logs of DeepSpeed, NeMo, Megatron-Bridge and the program exported for FSDP2."""

import pytest

from trainplan.costmodel.base.errors import SpecError
from trainplan.profiler.logs.formats import FORMATS
from trainplan.profiler.logs.observations import StatedRun, observe
from trainplan.profiler.logs.reading import GrowingFile, LogReading

REQUEST = StatedRun(global_batch_size=128, seq_length=8192, num_gpus=8)

# built from the format of deepspeed/utils/timer.py, ThroughputTimer.stop
ENGINE = (
    "[2026-01-01 10:00:00,000] [INFO] [timer.py:264:stop] epoch=0/micro_step={0}/global_step={0}, "
    "RunningAvgSamplesPerSec=98.123, CurrSamplesPerSec={1}, MemAllocated=9.31GB, "
    "MaxMemAllocated=40.5GB"
)
# deepspeed/runtime/engine.py, _report_progress
RATES = (
    "[2026-01-01 10:00:00,000] [INFO] [logging.py:107:log_dist] [Rank 0] step={0}, skipped=0, "
    "lr=[0.0003], mom=[[0.9, 0.95]]"
)
# deepspeed/runtime/config.py, DeepSpeedConfig.print
COUNTED = (
    "[2026-01-01 10:00:00,000] [INFO] [config.py:1013:print]   train_batch_size ............. {}"
)
# deepspeed/runtime/pipe/engine.py, train_batch
PIPELINE = "steps: {} loss: 10.1234 iter time (s): {:0.3f} samples/sec: 64.000"
# nemo/lightning/pytorch/callbacks/progress_printer.py, format_string
NEMO = (
    "Training epoch 0, iteration {}/99 | lr: 1.499e-05 | global_batch_size: {} | global_step: 3 | "
    "reduced_train_loss: 11.03 | train_step_timing in s: {:.4} | consumed_samples: 1536"
)
# megatron/bridge/training/utils/train_utils.py, training_log
BRIDGE = (
    "Step Time : {1:.2f}s GPU utilization: 410.2MODEL_TFLOP/s/GPU\n"
    " [2026-01-01 10:00:00] iteration {0:8d}/      20 | consumed samples:          128 | elapsed "
    "time per iteration (ms): {2:.1f} | learning rate: 3.000000E-04 | global batch size:   128 | "
    "lm loss: 1.203456E+01 | loss scale: 1.0 | grad norm: 3.210 | number of skipped iterations:   "
    "0 | number of nan iterations:   0 |"
)
# planner/runtimes/fsdp2/train_fsdp2.txt, train
OURS = "step {}: loss 10.123456, gradient norm 1.500000, {:.3f} s, peak 5000000000 bytes"
# arctic_training/metrics.py, print_summary
ARCTIC = (
    "Train iter: {:>2}/12  25% | loss: {} | iter time: {} | iter tflops: 310.2 | lr: 3.000E-04 | "
    "seqlen: 4.1K | step time: 0.900s | step tflops: 330.1 | epoch: 0 | MA 9.31 GB | Max_MA 40.50 "
    "GB | NV 45.10 GB | CPU mem: proc 2.00 GB / node 50.00 GB (5.0%)"
)


def seen(*lines, wanted=REQUEST):
    return observe("\n".join(lines), wanted)


def test_the_engine_of_deepspeed_gives_the_time_of_its_samples():
    lines = [
        RATES.format(n) + "\n" + ENGINE.format(n, rate) for n, rate in enumerate((64, 128, 256))
    ]
    found = seen(*lines)
    assert (found.format, found.step_time_s, found.num_warm_up) == ("deepspeed", 0.75, 1)
    assert found.peak_allocated_bytes == 40.5 * 2**30
    assert found.peak_reserved_bytes is None
    assert found.only_runtime is None


def test_ranks_of_autotp_count_as_samples_of_deepspeed_and_not_of_the_job():
    lines = (COUNTED.format(512), ENGINE.format(3, 64), ENGINE.format(4, 256))
    assert seen(*lines).step_time_s == 2.0


def test_another_batch_of_deepspeed_is_another_job():
    with pytest.raises(SpecError, match="global batch size 96, requested is 128"):
        seen(COUNTED.format(96), ENGINE.format(3, 64), ENGINE.format(4, 256))


def test_a_pipeline_of_deepspeed_says_the_time_itself():
    found = seen(*(PIPELINE.format(n, t) for n, t in ((1, 9.0), (2, 2.0), (3, 2.2), (4, 2.1))))
    assert (found.step_time_s, found.num_lines) == (2.1, 3)


def test_nemo_says_the_time_and_the_batch():
    found = seen(*(NEMO.format(n, 128, t) for n, t in ((1, 20.0), (2, 1.25), (3, 1.5))))
    assert (found.format, found.step_time_s) == ("nemo-2", 1.375)
    with pytest.raises(SpecError, match="global batch size 64"):
        seen(NEMO.format(1, 64, 1.0))


def test_bridge_is_read_once_a_step_from_the_finer_of_its_lines():
    found = seen(
        *(BRIDGE.format(n, ms / 1000, ms) for n, ms in ((1, 9e3), (2, 1234.5), (3, 1236.5)))
    )
    assert (found.step_time_s, found.num_lines) == (pytest.approx(1.2355), 2)


def test_the_program_exported_for_fsdp2_says_its_steps():
    found = seen(*(OURS.format(n, t) for n, t in ((1, 3.0), (2, 0.5), (3, 0.75))))
    assert (found.step_time_s, found.only_runtime) == (0.625, "fsdp2")
    assert found.peak_allocated_bytes == 5e9


def test_a_step_of_arctic_training_is_all_of_its_micro_batches():
    times = ((0, 3.0), (1, 2.0), (1, 0.5), (2, 0.25), (2, 0.5), (3, 0.75))
    found = seen(*(ARCTIC.format(n, 10.1, f"{t:.3f}s") for n, t in times))
    assert (found.format, found.lowest_s, found.highest_s) == ("arctic-training", 0.75, 1.25)
    assert found.only_runtime == "arctic-training"
    assert found.peak_allocated_bytes == 40.5 * 2**30
    found = seen(*(ARCTIC.format(n, 10.1, "1:02:03") for n in (1, 2)))
    assert found.step_time_s == 3723.0


def test_a_log_of_none_names_all_that_are_known():
    with pytest.raises(SpecError) as refused:
        seen("hello")
    assert all(one.looks_like in str(refused.value) for one in FORMATS)


@pytest.mark.parametrize(
    "line",
    [
        "step:  7  loss:      nan  grad_norm:     nan  memory: 45.21GiB(57.1%)  tps: 5,762",
        "{'loss': nan, 'grad_norm': 1.0, 'epoch': 0.1}",
        OURS.format(3, 0.5).replace("10.123456", "inf"),
        PIPELINE.format(3, 1.0).replace("10.1234", "nan"),
        NEMO.format(1, 128, 1.0).replace("11.03", "nan"),
        ARCTIC.format(1, "nan", "1.000s"),
        BRIDGE.format(3, 1, 1000).replace("nan iterations:   0", "nan iterations:   1"),
        "RuntimeError: Rank 0, node n1, device 0, iteration 2: Unexpected result nan "
        "(message='found NaN in local forward loss calculation')",
    ],
)
def test_a_loss_that_is_no_number_is_seen(line):
    reading = LogReading(REQUEST)
    reading.feed(["step:  6  loss:  8.1  memory: 45.21GiB(57.1%)  tps: 5,762", *line.splitlines()])
    assert reading.no_number in line
    assert reading.no_number


@pytest.mark.parametrize(
    "line",
    [
        "loss information is printed by rank 0",
        "[deepspeed] OVERFLOW! Skipping step. Attempted loss scale: 65536, reducing to 32768",
        BRIDGE.format(3, 1, 1000),
        "grad norm: inf",
    ],
)
def test_what_is_no_loss_or_a_number_is_none(line):
    reading = LogReading(REQUEST)
    reading.feed(line.splitlines())
    assert reading.no_number == ""


def test_a_growing_file_gives_each_line_once_and_whole(tmp_path):
    path = tmp_path / "log.txt"
    file = GrowingFile(path)
    assert file.more() == []
    path.write_bytes(b"one\ntwo \xc3")
    assert file.more() == ["one"]
    with path.open("ab") as more:
        more.write(b"\xa9\nthree")
    assert file.more() == ["two é"]
    with path.open("ab") as more:
        more.write(b"\n 10%|#  |\r 20%")
    assert file.more() == ["three", " 10%|#  |"]
    assert file.rest() == [" 20%"]
    assert file.rest() == []


def test_reading_in_pieces_is_reading_whole():
    lines = [ENGINE.format(n, 64 * n) for n in range(1, 9)]
    whole, pieces = LogReading(REQUEST), LogReading(REQUEST)
    whole.feed(lines)
    for line in lines:
        pieces.feed([line])
    assert whole.found and pieces.found
    assert pieces.found.steps() == whole.found.steps()
