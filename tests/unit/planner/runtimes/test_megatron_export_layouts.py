"""A layout becomes the arguments of Megatron-LM that mean the same."""

import re

import pytest

from tests.megatron_jobs import DENSE, MIXTRAL, export, flags, values
from trainplan.costmodel.base.errors import SpecError, UnsupportedError
from trainplan.costmodel.layout.layout import OffloadSpec
from trainplan.costmodel.runtimes.megatron.stage_text import pipeline_layout_string


def _expand(text: str) -> str:
    """The runtime's grammar: groups first, then single letters."""
    text = re.sub(r"\(([^)]+)\)\*(\d+)", lambda m: m[1] * int(m[2]), text)
    return re.sub(r"(.)\*(\d+)", lambda m: m[1] * int(m[2]), text)


def test_expert_degrees_are_always_said_for_experts():
    config = export(MIXTRAL, tp=4, sequence_parallel=True, ep=4)
    assert values(config, "--expert-model-parallel-size") == ("4",)
    assert values(config, "--expert-tensor-parallel-size") == ("1",)
    assert values(config, "--moe-layer-freq") == ("([1]*32)",)
    assert values(config, "--moe-token-dispatcher-type") == ("alltoall",)


def test_expert_degrees_of_a_dense_model_are_refused():
    with pytest.raises(UnsupportedError, match="cut experts"):
        export(ep=2)


def test_an_even_pipeline_needs_no_layout_text():
    config = export(tp=1, pp=4, vpp=2, schedule="interleaved")
    assert values(config, "--num-virtual-stages-per-pipeline-rank") == ("2",)
    assert "--pipeline-model-parallel-layout" not in flags(config)


def test_an_uneven_pipeline_is_spelled_out():
    model = DENSE.model_copy(update={"num_hidden_layers": 30})
    config = export(model, pp=4)
    assert values(config, "--pipeline-model-parallel-layout") == ("Et*7|(t*8|)*2t*7L",)
    assert "--num-virtual-stages-per-pipeline-rank" not in flags(config)


@pytest.mark.parametrize(
    ("layers", "mtp", "text"),
    [
        ((4,), 0, "Et*4L"),
        ((4,), 1, "Et*4mL"),
        ((1, 1), 0, "Et|tL"),
        ((2, 3, 3, 2), 0, "Et*2|(t*3|)*2t*2L"),
        ((2, 3, 2, 2), 2, "Et*2|t*3|t*2|t*2m*2L"),
        ((1, 1, 1, 0), 1, "Et|(t|)*2mL"),
    ],
)
def test_the_pipeline_text_is_short_and_complete(layers, mtp, text):
    assert pipeline_layout_string(layers, mtp) == text
    stages = _expand(text).split("|")
    assert [stage.count("t") for stage in stages] == list(layers)
    assert stages[0][0] == "E"
    assert stages[-1].endswith("m" * mtp + "L")


def test_the_schedule_must_be_the_one_the_runtime_picks():
    with pytest.raises(UnsupportedError, match="runs 1f1b"):
        export(pp=2, schedule="interleaved")
    with pytest.raises(UnsupportedError, match="runs interleaved"):
        export(pp=2, vpp=2)
    with pytest.raises(UnsupportedError, match="set vpp to 1"):
        export(vpp=2, schedule="interleaved")
    with pytest.raises(UnsupportedError, match="'zb-1p' has no option"):
        export(pp=2, schedule="zb-1p")


@pytest.mark.parametrize(
    ("stage", "present", "absent"),
    [
        (0, {"--overlap-grad-reduce"}, {"--use-distributed-optimizer", "--overlap-param-gather"}),
        (1, {"--use-distributed-optimizer", "--overlap-param-gather"}, {"--use-megatron-fsdp"}),
        (2, {"--use-megatron-fsdp"}, set()),
        (3, {"--use-megatron-fsdp", "--init-model-with-meta-device"}, set()),
    ],
)
def test_the_zero_stage_picks_the_sharding(stage, present, absent):
    written = flags(export(zero_stage=stage))
    assert written >= present
    assert not written & absent


@pytest.mark.parametrize(
    ("layout", "alongside"),
    [({"pp": 2}, False), ({"pp": 2, "vpp": 2, "schedule": "interleaved"}, True), ({}, True)],
)
def test_weights_are_gathered_beside_passes_where_ranks_do_not_wait_in_turn(layout, alongside):
    written = flags(export(zero_stage=1, **layout))
    assert ("--overlap-param-gather" in written) == alongside
    assert "--overlap-grad-reduce" in written


def test_fsdp_names_its_strategy_checkpoint_format_and_queues():
    config = export(zero_stage=3, tp=2, sequence_parallel=True, dp_replicate=2)
    assert values(config, "--data-parallel-sharding-strategy") == ("optim_grads_params",)
    assert values(config, "--ckpt-format") == ("fsdp_dtensor",)
    assert values(config, "--num-distributed-optimizer-instances") == ("2",)
    [queues] = [e for e in config.environment if e.name == "CUDA_DEVICE_MAX_CONNECTIONS"]
    assert queues.value != "1"


def test_fsdp_with_a_pipeline_is_refused():
    with pytest.raises(UnsupportedError, match="without a pipeline"):
        export(zero_stage=2, pp=2)


@pytest.mark.parametrize("cut", [{"tp": 2}, {"cp": 2}])
def test_one_hardware_queue_where_the_runtime_asks_for_it(cut):
    queues = {e.name: e.value for e in export(**cut).environment}
    assert queues["CUDA_DEVICE_MAX_CONNECTIONS"] == "1"
    assert "CUDA_DEVICE_MAX_CONNECTIONS" not in {e.name for e in export().environment}


def test_offloaded_optimizer_state_needs_the_distributed_optimizer():
    config = export(offload=OffloadSpec(optimizer=0.5))
    assert values(config, "--optimizer-offload-fraction") == ("0.5",)
    assert "--use-precision-aware-optimizer" in flags(config)
    with pytest.raises(UnsupportedError, match="zero_stage = 1"):
        export(zero_stage=0, offload=OffloadSpec(optimizer=0.5))


def test_offloaded_activations_are_written_with_what_the_plan_counts_on():
    config = export(offload_modules=("core_attn", "attn_proj"))
    assert "--fine-grained-activation-offloading" in flags(config)
    assert values(config, "--offload-modules") == ("core_attn", "attn_proj")
    assert values(config, "--fine-grained-offloading-max-inflight-offloads") == ("1",)
    assert {e.name: e.value for e in config.environment}["NVTE_CPU_OFFLOAD_V1"] == "1"
    assert not [flag for flag in flags(export()) if "offload" in flag]


def test_recomputation_is_written_as_chosen():
    assert "--recompute-granularity" not in flags(export())
    some = export(recompute="selective", recompute_modules=("core_attn", "mlp"))
    assert values(some, "--recompute-modules") == ("core_attn", "mlp")
    full = export(recompute="full", recompute_method="block", recompute_num_layers=3)
    assert values(full, "--recompute-granularity") == ("full",)
    assert values(full, "--recompute-num-layers") == ("3",)


def test_a_layout_for_another_number_of_gpus_is_refused():
    with pytest.raises(SpecError, match=r"= 4 GPUs"):
        export(dp=4)
