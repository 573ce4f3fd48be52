"""Published figures of offloading that follow from `costmodel.copy_streams` alone."""

from itertools import product

import numpy as np
import pytest

from trainplan.costmodel.base.units import GIB
from trainplan.costmodel.copy_streams.methods import METHODS
from trainplan.costmodel.copy_streams.placement import Place, Placement, Quantities, Speeds
from trainplan.costmodel.copy_streams.transfer_volume import Lane, Order
from trainplan.costmodel.copy_streams.work import Item, Part, Work

NODE_ADAM = 4.5e9
"""Parameters a second; ZeRO-Offload, arXiv:2101.06840, table 4."""


def decoder(layers, hidden, tokens, rate, *, ranks=1, recomputes=True, update=0.1):
    """A dense decoder whose states are divided by `ranks`, one micro batch; rate in FLOP/s."""
    column = lambda value: np.full((1, 1), float(value))  # noqa: E731
    params = 12 * hidden**2
    forward = 2 * params * tokens / rate
    return Quantities(
        micro_batches=np.array([1]),
        layers=column(layers),
        forward=column(forward),
        backward=column((3 if recomputes else 2) * forward),
        weight_bytes=column(2 * params / ranks),
        gradient_bytes=column(2 * params / ranks),
        checkpoint_bytes=column(2 * tokens * hidden),
        updated=np.array([layers * params / ranks]),
        update_seconds=np.array([update]),
    )


def model_flops(job):
    """Of both passes, nothing computed again, in units of the rate that `decoder` was given."""
    return 3 * float((job.layers * job.forward).sum())


def test_a_trillion_parameters_lie_on_the_drives_of_one_dgx_2_and_nowhere_else():
    """ZeRO-Infinity, arXiv:2104.07857: 16 V100 of 32 GB, 1.5 TB, 28 TB of NVMe; 20 B/parameter."""
    states = METHODS["zero-infinity"].bytes_per_parameter(Place.DRIVE) * 1e12
    assert states == 20e12
    assert 1.5e12 < states <= 28e12
    assert 16 * 32 * GIB < 2e12, "the weights in 16 bits alone are more than all GPUs have"
    assert 32 * GIB > 4 * 4 * 25_600**2, "weights and gradients of the largest operator fit"


def test_13_billion_parameters_fit_a_v100_with_their_optimizer_on_the_host():
    """ZeRO-Offload, arXiv:2101.06840: 13B on one V100-32G; 1.4B without."""
    method = METHODS["zero-offload"]
    device, host = (method.bytes_per_parameter(place) for place in (Place.DEVICE, Place.HOST))
    assert 13e9 * device < 32 * GIB < 18e9 * device
    assert 13e9 * host < 1.5e12
    assert 1.4e9 * (device + host) < 32 * GIB < 13e9 * (device + host)


def test_175_billion_parameters_need_drives_beside_one_rtx_4090():
    """Fuyou, arXiv:2403.06504: 24 GB, at most 768 GB of host memory, 12 drives (of 3.84 TB)."""
    states = METHODS["fuyou"].bytes_per_parameter(Place.DRIVE) * 175e9
    assert 24e9 + 768e9 < states <= 12 * 3.84e12
    assert 4 * 4 * 12_288**2 < 24e9, "weights and gradients of the largest operator fit"


def rtx_4090(drive):
    """PCIe 4.0 x16 as measured by most, and drives that together move `drive` bytes a second."""
    return Speeds(h2d=21e9, d2h=21e9, drive_read=drive, drive_write=drive, cpu_params=NODE_ADAM)


@pytest.mark.parametrize("drive", [20e9, 32e9])
def test_fuyou_trains_13b_on_an_rtx_4090_at_156_teraflops(drive):
    """Fuyou, arXiv:2403.06504, within 20 %: 13B, 32 samples of 1024 tokens, nothing recomputed.

    165 TFLOP/s are the card's peak (fp16, sums in fp32; NVIDIA Ada white paper, appendix A).
    """
    job = decoder(40, 5120, 32 * 1024, 165e12, recomputes=False)
    work = METHODS["fuyou"].work(job, rtx_4090(drive), Placement(checkpoints=1.0))
    assert model_flops(job) * 165 / work.makespan[0] == pytest.approx(156, rel=0.2)


def test_zero_infinity_is_much_slower_there():
    """Fuyou, arXiv:2403.06504: 45 against 156 TFLOP/s. The direction alone: see the range."""
    job = decoder(40, 5120, 32 * 1024, 165e12)
    work = METHODS["zero-infinity"].work(job, rtx_4090(20e9), Placement(checkpoints=1.0))
    assert 45 < model_flops(job) * 165 / work.makespan[0] < 156 / 1.5


def test_subgroups_on_the_gpu_make_a_step_faster_by_no_more_than_was_measured():
    """Deep Optimizer States, arXiv:2410.21316: up to 2.5x; 20B on 4 H100, PCIe 4 or 5.

    The update alone is 2.0 to 2.4 times as fast; the passes and gradients' way out are as before.
    """
    faster = []
    for link, rate in product((25e9, 50e9), (NODE_ADAM, 2 * NODE_ADAM)):
        job = decoder(44, 6144, 2048, 400e12, ranks=4, update=5e9 * 28 / 3.35e12)
        speeds = Speeds(h2d=link, d2h=link, cpu_params=rate / 4)
        usual = METHODS["twin-flow"].work(job, speeds, Placement(optimizer=1.0)).makespan
        better = METHODS["deep-optimizer-states"].work(job, speeds, Placement()).makespan
        faster.append(float(usual[0] / better[0]))
    assert min(faster) > 1.0
    assert 1.5 < max(faster) <= 2.5


def test_ssdtrain_halves_the_peak_of_activations_at_no_cost():
    """SSDTrain, arXiv:2408.10013: -47 % within 5 points, overhead at most 1 %; four layers."""
    # drives keep up, so two of the layers are on the GPU when the backward pass begins
    assert abs((1 - 2 / 4) - 0.47) <= 0.05
    job = decoder(4, 8192, 16 * 1024, 150e12, recomputes=False)
    write = float(job.checkpoint_bytes[0, 0] / job.forward[0, 0])
    speeds = Speeds(h2d=25e9, d2h=25e9, drive_read=2 * write, drive_write=write)
    work = METHODS["ssdtrain"].work(job, speeds, Placement())
    assert work.makespan / work.only(Lane.GPU).makespan <= 1.01


def steady_stage(forward, backward, one_way, rounds):
    """A stage in the steady state of a pipeline whose copies share one lane, `rounds` long.

    In each round a forward pass whose activations leave, and the backward pass of an earlier micro
    batch whose activations have come back in the round before.
    """
    items = (
        Item("back", Lane.H2D, one_way, ("backward",)),
        Item("forward", Lane.GPU, forward),
        Item("out", Lane.H2D, one_way, ("forward",)),
        Item("backward", Lane.GPU, backward, ("came back",)),
        Item("came back", Lane.CPU, 0.0, ("back",)),
    )
    return Work((Part(items, Order.OVERLAPPED, rounds),), len(forward))


@pytest.mark.parametrize("one_way", [0.5, 1.0, 1.4, 1.4999, 1.5, 1.6, 2.0, 3.0])
def test_all_activations_of_a_stage_leave_for_free_up_to_a_ratio_of_one(one_way):
    """PipeOffload, arXiv:2503.01328, section 3: k = T_o / (T_F + T_B)."""
    forward, backward = np.array([1.0]), np.array([2.0])
    ratio = 2 * one_way / (1.0 + 2.0)

    def round_seconds(copied):
        long, short = (
            steady_stage(forward, backward, np.array([copied]), rounds).makespan
            for rounds in (1100, 100)
        )
        return (long - short) / 1000

    assert round_seconds(one_way) == pytest.approx(max(3.0, 2 * one_way), rel=1e-9)
    assert (round_seconds(one_way) <= 3.0 + 1e-9) == (ratio <= 1.0)
    free = min(1.0, 1 / ratio)
    assert round_seconds(one_way * free) == pytest.approx(3.0, rel=1e-9)
