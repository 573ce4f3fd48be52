"""Which exported files `plan verify` starts, and how their losses are compared."""

import ast

import pytest

from trainplan.costmodel.base.errors import PlanError
from trainplan.costmodel.job.job import RuntimeOptions
from trainplan.costmodel.layout.layout import Layout
from trainplan.planner.launchers.on_cpu import CPU_STARTS
from trainplan.planner.verification.exported import exported_runs, start_exported

SHARDED = Layout(tp=2, dp=4, zero_stage=3, sequence_parallel=True, micro_batch_size=4)
STEPS = [(6.9, 1.7), (6.8, 1.6)]


def runs_of(make_job, runtime, layout, *, model="llama3-8b", lacks=lambda modules: None):
    job = make_job(model, f"1x{layout.world_size}:h100-sxm")
    return exported_runs(job.model_copy(update={"runtime": runtime}), layout, 2, lacks)


def layouts(runs):
    kept = ("tp", "pp", "cp", "ep", "dp", "zero_stage", "sequence_parallel")
    whole = (one.combination.layout.model_dump(exclude_defaults=True) for one in runs.others)
    return [{name: value for name, value in one.items() if name in kept} for one in whole]


def test_each_degree_of_the_plan_is_started_by_itself_on_two_processes(make_job):
    runs = runs_of(make_job, "fsdp2", SHARDED)
    assert layouts(runs) == [
        {"tp": 2, "zero_stage": 0, "sequence_parallel": True},
        {"dp": 2, "zero_stage": 3},
    ]
    assert runs.not_started == ()
    assert all("--nproc_per_node 2" in one.files[one.script] for one in runs.others)
    assert runs.reference
    assert "--nproc_per_node 1" in runs.reference.files["run.sh"]
    assert runs.reference.combination.job.model.num_hidden_layers == 4


def test_what_of_zero_plus_plus_runs_on_no_cpu_is_said(make_job):
    job = make_job("llama3-8b", "1x8:h100-sxm", precision="fp16")
    options = RuntimeOptions(weight_bits=8, gradient_bits=4)
    job = job.model_copy(update={"runtime": "deepspeed", "options": options})
    runs = exported_runs(job, Layout(dp=8, zero_stage=3, hpz=4), 2, lambda modules: None)
    assert [one.partition(":")[0] for one in runs.not_started] == [
        "hpz",
        "weight_bits",
        "gradient_bits",
    ]
    assert runs.others


def test_what_runs_is_what_the_exporter_wrote(make_job):
    (one, *_) = runs_of(make_job, "fsdp2", SHARDED).others
    assert "-m train_fsdp2" in one.files["run.sh"]
    assert "TP = 2\n" in one.files["train_fsdp2.py"]
    assert "--data stand_in:tokens" in one.files["run.sh"]
    assert "--steps 2" in one.files["run.sh"]


@pytest.mark.parametrize("runtime", CPU_STARTS)
def test_modules_in_the_folder_of_a_script_are_python(make_job, runtime):
    stage = 1 if runtime == "deepspeed" else 3
    runs = runs_of(make_job, runtime, Layout(dp=8, zero_stage=stage))
    assert runs.reference, runs.not_started
    for one in (runs.reference, *runs.others):
        for name, text in one.files.items():
            if name.endswith(".py"):
                ast.parse(text, name)


LORA = {"method": "lora", "rank": 16, "modules": ("q", "v")}
KINDS = {
    "dense": "llama3.1-8b",
    "norms of queries": "qwen3-32b",
    "experts": "mixtral-8x7b",
    "hybrid": "nemotron-3-nano-30b-a3b",
    "linear attention": "qwen3-next-80b-a3b",
    "adapters": "llama3.1-8b",
}
SHRUNK = "only models whose layers all attend are shrunk and run"
NO_ADAPTERS = "has no option for --train lora"
WIDE_ADAPTERS = "--train lora is priced for 16 bits or fewer"
NOT_STARTED = {
    "megatron-lm": {"adapters": NO_ADAPTERS},
    "megatron-bridge": {},
    "fsdp2": {
        "norms of queries": "does not build norms of queries",
        "experts": "does not build experts",
        "adapters": NO_ADAPTERS,
    },
    "torchtitan": {"adapters": NO_ADAPTERS},
    "deepspeed": {"adapters": WIDE_ADAPTERS},
    "accelerate": {"adapters": WIDE_ADAPTERS},
    "transformers": {"adapters": WIDE_ADAPTERS},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("runtime", CPU_STARTS)
def test_files_of_every_kind_of_model_start_or_are_refused_by_name(make_job, runtime, kind):
    job = make_job(KINDS[kind], "1x8:h100-sxm")
    trained = {"trained": LORA} if kind == "adapters" else {}
    model = type(job.model).model_validate({**dict(job.model), **trained})
    job = job.model_copy(update={"runtime": runtime, "model": model})
    stage = 1 if runtime in ("megatron-lm", "megatron-bridge", "deepspeed") else 3
    runs = exported_runs(job, Layout(dp=8, zero_stage=stage), 2, lambda needs: None)
    attends = kind not in ("hybrid", "linear attention")
    refused = NOT_STARTED[runtime].get(kind, "") if attends else SHRUNK
    assert bool(runs.others) == (not refused), runs.not_started
    assert refused in "".join(runs.not_started)


def test_a_runtime_that_is_not_installed_is_reported_and_starts_nothing(make_job):
    runs = runs_of(make_job, "deepspeed", Layout(dp=8), lacks=lambda needs: f"{needs[-1]} is gone")
    assert (runs.reference, runs.others) == (None, ())
    assert runs.not_started == ("deepspeed: deepspeed is gone",)
    assert list(start_exported(runs, None)) == []


def test_degrees_that_no_cpu_has_are_reported_with_their_reason(make_job):
    runs = runs_of(make_job, "accelerate", Layout(cp=2, dp=4, zero_stage=3))
    assert layouts(runs) == [{"dp": 2, "zero_stage": 3}]
    assert runs.not_started == ("cp: torch cuts no attention of a CPU over sequences",)


def test_stages_that_no_cpu_has_are_reported_and_run_in_a_plainer_form(make_job):
    runs = runs_of(make_job, "megatron-lm", Layout(dp=8, zero_stage=3))
    assert layouts(runs) == [{"dp": 2}]
    assert [one.combination.layout.zero_stage for one in runs.others] == [1]
    assert runs.not_started[0].startswith("ZeRO-3: Megatron-FSDP shards on GPUs alone")


def test_programs_of_a_checkout_run_inside_their_stand_in(make_job):
    (one,) = runs_of(make_job, "megatron-lm", Layout(dp=8, zero_stage=1)).others
    assert "-m stand_in" in one.files["run.sh"]
    assert "--mock-data" in one.files["run.sh"]
    assert one.environment["PROGRAM"] == "pretrain_gpt.py"


def test_a_runtime_whose_files_need_a_gpu_is_named(make_job):
    layout = Layout(pp=2, tp=2, dp=2)
    runs = runs_of(make_job, "megatron-zero-bubble", layout, model="llama2-7b")
    assert runs.not_started == ("megatron-zero-bubble: its files start on GPUs alone",)


def test_a_plan_of_one_process_starts_nothing(make_job):
    runs = runs_of(make_job, "fsdp2", Layout(), model="llama3.2-1b")
    assert runs.others == ()
    assert list(start_exported(runs, None)) == []


def test_losses_are_compared_step_by_step_with_those_of_one_process(make_job):
    runs = runs_of(make_job, "fsdp2", SHARDED)

    def start(one):
        if one.combination.layout.tp == 2:
            return [(6.9, 1.7), (6.8, 1.6000001)], 3.0
        return [(6.9, 1.7), (6.7 if one.combination.layout.dp > 1 else 6.8, 1.6)], 4.0

    fine, far = start_exported(runs, start)
    assert (fine.equal, fine.seconds) == (True, 3.0)
    assert fine.found
    assert fine.found.grad_norm_difference == pytest.approx(6.25e-8)
    assert not far.equal
    assert far.found
    assert far.found.loss_difference == pytest.approx(0.1 / 6.8)


def test_a_failed_script_is_reported_with_its_error_and_the_next_is_started(make_job):
    runs = runs_of(make_job, "fsdp2", SHARDED)

    def start(one):
        if one.combination.layout.tp == 2:
            raise PlanError("run.sh ended with code 1: ValueError: no")
        return STEPS, 1.0

    failed, fine = start_exported(runs, start)
    assert failed.failure.endswith("ValueError: no")
    assert fine.equal


def test_where_one_process_fails_nothing_else_is_started(make_job):
    def start(one):
        assert one.combination.layout.world_size == 1
        raise PlanError("run.sh did not end in 300 s")

    (failed,) = start_exported(runs_of(make_job, "fsdp2", SHARDED), start)
    assert not failed.equal
    assert failed.combination.layout.world_size == 1
