"""What is different on a machine without GPUs: what runs beside what, formats and runtimes."""

from pathlib import Path

import numpy as np
import pytest

from trainplan.cli.files.documents import read_document
from trainplan.cli.files.profiles import profile_of
from trainplan.costmodel.calibration.machine import Measured
from trainplan.costmodel.calibration.on_cpu import precision_note, usual_precision
from trainplan.costmodel.candidates import Candidates
from trainplan.costmodel.job.job import Job, TrainingSpec
from trainplan.costmodel.kernels.memory_bound import streaming_bytes_per_second
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.measured.profile import measured_machine
from trainplan.costmodel.model.params import embedding_params, num_parameters
from trainplan.costmodel.runtimes.registry import runtime_with, traits_of
from trainplan.costmodel.runtimes.torch_eager import BUCKET_BYTES
from trainplan.costmodel.spec.base import Sourced
from trainplan.costmodel.step import explicit, price
from trainplan.costmodel.traffic.copies import copies_of
from trainplan.costmodel.traffic.data_parallel import last_bucket
from trainplan.profiler.fit import cluster_of

RECORDED = Path(__file__).parents[3] / "replay/cpu_two_processes.json"


@pytest.fixture(scope="module")
def profile():
    return profile_of(read_document(RECORDED))


@pytest.fixture
def on_cpu(profile, make_job):
    """(runtime, layout, tokens of a sequence) -> candidates on two processes of a CPU."""

    def candidates(runtime, layout, seq_length=512, model="small-dense"):
        training = TrainingSpec(seq_length=seq_length, global_batch_size=4, precision="fp32")
        job = make_job(model, "1x2:h100-sxm")
        job = Job(model=job.model, training=training, cluster=cluster_of(profile), runtime=runtime)
        machine = measured_machine(job.cluster, "fp32", profile)
        return Candidates(job, machine, traits_of(job), LayoutTable.of([layout]))

    return candidates


def with_rates(profile, **tflops):
    rates = {name: Sourced(value=value, source="here") for name, value in tflops.items()}
    device = profile.device.model_copy(update={"peak_tflops": rates})
    return profile.model_copy(update={"device": device})


@pytest.mark.parametrize("zero_stage", [0, 1, 2, 3])
def test_more_compute_hides_no_traffic_of_fsdp2(on_cpu, zero_stage):
    layout = Layout(dp=2, zero_stage=zero_stage, micro_batch_size=2)
    found = []
    for seq_length in (64, 2048):
        candidates = on_cpu("fsdp2", layout, seq_length)
        (one,) = explicit(price(candidates))
        assert one.lower_bound_s <= one.step_time_s * (1 + 1e-9)
        found.append(one.terms.fsdp_comm + one.terms.dp_comm)
    assert found[0] == pytest.approx(found[1])
    assert found[0] > 0


def test_copies_of_fsdp2_take_the_time_of_a_step(on_cpu):
    """A half written and read, all of it written and read; 8 bytes in, a half divided by two."""
    candidates = on_cpu("fsdp2", Layout(dp=2, zero_stage=3))
    copies = copies_of(candidates, *[np.array([2.0])] * 3)
    speed = streaming_bytes_per_second(candidates.machine)
    assert copies.gather[0] * speed == pytest.approx(4 + 8)
    assert copies.reduce[0] * speed == pytest.approx(8 + 4)
    alone = copies_of(candidates, *[np.array([1.0])] * 3)
    assert (alone.gather[0], alone.reduce[0] * speed) == pytest.approx((0, 8 + 8))


def test_copies_of_shards_have_a_stream_of_a_gpu_and_the_others_none(make_job):
    """Of the all-gather one copy of weights in 16 bits is waited for, of the reduction all."""
    job = make_job("small-dense", "1x2:h100-sxm").model_copy(update={"runtime": "fsdp2"})
    machine = measured_machine(job.cluster, "bf16")
    candidates = Candidates(job, machine, traits_of(job), LayoutTable.of([Layout(dp=2)]))
    assert not traits_of(job).sharding.waits
    copies = copies_of(candidates, *[np.array([2.0])] * 3)
    speed = streaming_bytes_per_second(machine)
    assert copies.gather == pytest.approx(2 * 2 / speed)
    assert copies.reduce == pytest.approx((2 + 4) / speed)


def test_the_last_bucket_has_the_token_table_and_half_a_bucket(on_cpu, make_job):
    layout = Layout(dp=2, micro_batch_size=2)
    candidates = on_cpu("torch-eager", layout, model="llama3-8b")
    model = candidates.job.model
    waiting = embedding_params(model) + BUCKET_BYTES / 8
    assert last_bucket(candidates) == pytest.approx(waiting / num_parameters(model))
    fsdp2 = on_cpu("fsdp2", layout)
    assert last_bucket(fsdp2) == fsdp2.machine.constants.first_bucket


def test_replicas_of_plain_pytorch_pay_for_their_sums(on_cpu):
    one, two = (
        price(on_cpu("torch-eager", Layout(dp=dp, micro_batch_size=2))).dp_comm for dp in (1, 2)
    )
    assert float(np.max(one)) == 0 < float(np.max(two))


@pytest.mark.parametrize(
    ("rates", "chosen"),
    [({"fp32": 0.3}, "fp32"), ({"fp32": 0.3, "bf16": 0.9}, "bf16"),
     ({"fp32": 0.3, "bf16": 0.1}, "fp32"), ({"bf16": 0.1}, "bf16")],
)  # fmt: skip
def test_a_cpu_trains_in_the_format_that_was_faster(profile, rates, chosen):
    measured = with_rates(profile, **rates)
    assert usual_precision(cluster_of(measured)) == chosen
    note = precision_note(cluster_of(measured), Measured(profile=measured))
    assert note.startswith(f"precision {chosen}: ")


def test_a_unit_that_was_not_measured_is_named(profile):
    host = profile.hosts[0].model_copy(update={"bf16_units": ("amx_bf16",)})
    measured = with_rates(profile, fp32=0.3).model_copy(update={"hosts": (host,)})
    note = precision_note(cluster_of(measured), Measured(profile=measured))
    assert "amx_bf16" in note
    assert "`plan profile --precision bf16`" in note


def test_gpus_train_in_bf16(make_job):
    assert usual_precision(make_job("small-dense", "1x8:h100-sxm").cluster) == "bf16"


def test_without_gpus_a_job_has_the_first_runtime_that_builds_its_model(make_job):
    job = make_job("llama3-8b", "1x2:h100-sxm")
    assert runtime_with(job.training) == "megatron-lm"
    assert runtime_with(job.training, job.model) == "fsdp2"
    gpt2 = make_job("gpt2", "1x2:h100-sxm").model
    assert runtime_with(job.training, gpt2) == "torch-eager"


def test_a_model_of_one_bucket_waits_for_no_more_than_all_its_gradients(make_job):
    job = make_job("small-dense", "1x2:h100-sxm").model_copy(update={"runtime": "torch-eager"})
    sizes = {"num_hidden_layers": 1, "intermediate_size": 64, "tie_word_embeddings": True}
    tiny = job.model_copy(update={"model": job.model.model_copy(update=sizes)})
    table = LayoutTable.of([Layout(dp=2, zero_stage=0)])
    machine = measured_machine(tiny.cluster, "bf16")
    assert last_bucket(Candidates(tiny, machine, traits_of(tiny), table)) == 1.0
