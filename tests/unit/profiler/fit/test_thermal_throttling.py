"""GPUs that are slower together than alone, and where a reader finds it."""

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from trainplan.cli.blocks.screen import drawn
from trainplan.cli.pages.profile import profile_page
from trainplan.cli.pages.report.profile import profile_page as report_page
from trainplan.costmodel.presets.presets import preset
from trainplan.costmodel.profiles.profile import (
    LayerPoint,
    Origin,
    PowerPoint,
    Profile,
    Timing,
)
from trainplan.profiler.fit.merge import merged
from trainplan.profiler.fit.stragglers import throttling_notes


def power(seconds, gpu="n0:0", gpus=1, **more):
    fields = {"state": "product", "watts": 690.0, "sm_mhz": 1700.0, "celsius": 60.0}
    return PowerPoint(**fields | {"seconds_per_call": seconds, "gpu": gpu, "gpus": gpus} | more)


HOT = power(1.72e-3, "n0:1", 2, sm_mhz=1500.0, celsius=84.0, watts=650.4, slowed_by=("hardware",))


def test_the_slowest_gpu_of_a_full_node_is_named_with_what_the_driver_says():
    points = [power(1.6e-3), power(1.61e-3, gpus=2), HOT, PowerPoint(state="idle", watts=90.0)]
    assert list(throttling_notes(points)) == [
        "with all 2 GPUs of a node loaded at once a product takes 1.07 times as long on the "
        "slowest, n0:1, as on one alone: SM clock 1500 MHz, alone 1700, 650 W, 84 C, slowed down "
        "by hardware"
    ]


@pytest.mark.parametrize(("together", "count"), [(1.64e-3, 0), (1.66e-3, 1)])
def test_a_difference_of_three_percent_is_none(together, count):
    assert len(list(throttling_notes([power(1.6e-3), power(together, gpus=8)]))) == count


def test_nothing_is_said_where_one_of_both_is_not_known():
    assert list(throttling_notes([HOT])) == []
    assert list(throttling_notes([power(1.6e-3), power(None, gpus=8)])) == []
    assert list(throttling_notes([power(1.6e-3, state="copy"), HOT])) == []


def test_one_gpu_alone_is_compared_with_and_no_other_of_the_full_node():
    assert list(throttling_notes([power(1.7e-3), power(1.6e-3, gpus=2), HOT])) == []


def profile(*points):
    return Profile(
        gpu="h100-sxm", gpus_per_node=2, origins=(Origin(source="a test"),), points=points
    )


def test_pages_show_power_and_layers_that_wait_for_python():
    layer = LayerPoint(
        model=preset("llama3-8b"),
        runtime="torch-eager",
        tp=8,
        micro_batch_size=1,
        seq_length=4096,
        forward=Timing(seconds=0.8e-3, host_seconds=1.2e-3),
        backward=Timing(seconds=2e-3, host_seconds=1.5e-3),
    )
    measured = profile(power(1.6e-3, joules_per_call=1.104), power(1.6e-3, gpus=2), HOT, layer)
    console = Console(width=120, record=True, file=StringIO())
    console.print(*map(drawn, profile_page(measured, Path("mine.json"))))
    text = console.export_text()
    written = (
        "forward of llama3-8b (torch-eager, dense, tp 8, 4096 tokens): 1.20 ms to queue, 0.80 ms"
    )
    assert written in text
    assert "backward of" not in text
    rows = {" ".join(line.split()) for line in text.splitlines()}
    assert "product 690 1.104 1700 60" in rows
    assert "product, all 2 GPUs at once 670 1600 84" in rows
    (section,) = (one for one in report_page(measured).sections if one.name == "power")
    assert len(section.blocks) == 2


def test_power_of_several_profiles_is_kept_apart_by_gpu_and_load():
    one, other = profile(power(1.6e-3), HOT), profile(power(1.7e-3), power(1.6e-3, "n1:0"))
    assert len(merged([one, other]).points) == 3
