"""What `--option` sets of Megatron-LM: which layouts it leaves, and which arguments it becomes."""

import json

import pytest

from tests.megatron_jobs import flags, values
from trainplan.costmodel.base.errors import SpecError, UnsupportedError
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import RuntimeOptions
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.planner.documents.chosen import chosen_from_json
from trainplan.planner.documents.document import plan_json
from trainplan.planner.questions import check
from trainplan.planner.questions.best_plan import SearchOptions, search
from trainplan.planner.runtimes import EXPORTERS
from trainplan.planner.space import parse_choice
from trainplan.planner.space.choices import broken_rules


@pytest.fixture
def wanted(make_job):
    """A job of a dense model, or of one with experts, that sets some options."""

    def job(model="llama3-8b", precision="bf16", **options):
        made = make_job(model, "1x8:h100-sxm", 64, 4096, precision=precision)
        return made.model_copy(update={"options": RuntimeOptions(**options)})

    return job


def exported(job, **layout):
    used = layout.get("tp", 1) * layout.get("pp", 1) * layout.get("cp", 1)
    return EXPORTERS["megatron-lm"](job, Layout(**{"dp": 8 // used} | layout))


HALF = {"recompute": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
MOE = {"recompute": "selective", "recompute_modules": ("moe",)}
CORE = {"recompute": "selective", "recompute_modules": ("core_attn",)}
MLP = {"recompute": "selective", "recompute_modules": ("mlp",)}


@pytest.mark.parametrize(
    ("options", "breaks", "keeps", "name"),
    [
        ({"cuda_graph": "partial"}, HALF, CORE, "graphs_recompute_modules_only"),
        ({"cuda_graph": "partial"}, HALF, MOE, "graphs_recompute_modules_only"),
        (
            {"cuda_graph": "partial", "dropout": True},
            CORE,
            MLP,
            "graphs_recompute_without_masks",
        ),
        (
            {"cuda_graph": "full_iteration", "dropout": True},
            MLP,
            HALF,
            "graph_of_step_recomputes_without_masks",
        ),
        ({"overlap_moe_a2a": True}, {"ep": 1}, {"ep": 8}, "exchange_beside_compute"),
        (
            {"overlap_moe_a2a": True},
            {"ep": 4, "pp": 2, "dp": 4},
            {"ep": 4, "pp": 2, "dp": 4, "vpp": 2, "schedule": "interleaved"},
            "exchange_beside_compute",
        ),
        (
            {"overlap_moe_a2a": True, "cuda_graph": "partial"},
            {"ep": 8, "zero_stage": 2},
            {"ep": 8, "zero_stage": 1},
            "exchange_beside_compute_in_fsdp",
        ),
        ({"moe_dispatcher": "deepep"}, {}, {"ep": 2}, "deepep_needs_ranks"),
        (
            {"moment_dtype": "bf16"},
            {"offload": {"optimizer": 0.5}},
            {},
            "offloaded_moments_are_whole",
        ),
        ({"overlap_moe_a2a": True}, {"ep": 8} | MOE, {"ep": 8} | CORE, "exchange_beside_compute"),
        ({"offload_activation_layers": 2}, {"pp": 2, "dp": 4}, {}, "layers_on_the_host"),
        ({"offload_activation_layers": 2}, CORE, {}, "layers_on_the_host"),
        ({"moment_dtype": "bf16"}, {"zero_stage": 0}, {"zero_stage": 1}, "moments_need_sharding"),
        (
            {"overlap_tp_comm": True},
            {"tp": 2, "dp": 4},
            {"tp": 2, "dp": 4, "sequence_parallel": True},
            "tp_overlap_needs_sequence_parallel",
        ),
        (
            {"overlap_grad_reduce": False},
            {"zero_stage": 1},
            {"zero_stage": 0},
            "gathers_overlap_with_reductions",
        ),
        (
            {"overlap_grad_reduce": False},
            {"zero_stage": 1},
            {"zero_stage": 1, "pp": 2, "dp": 4},
            "gathers_overlap_with_reductions",
        ),
        (
            {"overlap_grad_reduce": False, "overlap_param_gather": True},
            {"zero_stage": 1, "pp": 2, "dp": 4},
            {"zero_stage": 0, "pp": 2, "dp": 4},
            "gathers_overlap_with_reductions",
        ),
        (
            {"overlap_grad_reduce": False, "overlap_param_gather": False},
            {"zero_stage": 2},
            {"zero_stage": 1},
            "fsdp_overlaps_always",
        ),
        (
            {"cuda_graph": "partial", "moe_dispatcher": "deepep"},
            {"ep": 8, "recompute": "selective", "recompute_modules": ("layernorm",)},
            {"ep": 8} | CORE,
            "graphed_routers_keep_their_norm",
        ),
    ],
)
def test_an_option_leaves_only_layouts_that_the_runtime_runs_with_it(
    wanted, options, breaks, keeps, name
):
    job = wanted("mixtral-8x7b", **options)

    def broken(layout):
        table = LayoutTable.of([Layout(**{"dp": 8} | layout)])
        return {rule.name for rule in broken_rules(job, table)[0]}

    assert name in broken(breaks)
    assert name not in broken(keeps)
    plain = job.model_copy(update={"options": RuntimeOptions()})
    table = LayoutTable.of([Layout(**{"dp": 8} | breaks)])
    assert name not in {rule.name for rule in broken_rules(plain, table)[0]}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"attention": "unfused"}, {"--attention-backend": ("unfused",)}),
        ({"dropout": True}, {"--hidden-dropout": ("0.1",), "--attention-dropout": ("0.1",)}),
        (
            {"cross_entropy": "jit"},
            {"--cross-entropy-loss-fusion": (), "--cross-entropy-fusion-impl": ("native",)},
        ),
        (
            {"cuda_graph": "full_iteration"},
            {
                "--cuda-graph-impl": ("full_iteration",),
                "--no-check-for-nan-in-loss-and-grad": (),
            },
        ),
        (
            {"cuda_graph": "partial"},
            {"--cuda-graph-impl": ("transformer_engine",), "--cuda-graph-modules": ("attn",)},
        ),
        ({"gradient_dtype": "bf16"}, {"--grad-reduce-in-bf16": ()}),
        (
            {"moment_dtype": "bf16"},
            {
                "--use-precision-aware-optimizer": (),
                "--exp-avg-dtype": ("bf16",),
                "--exp-avg-sq-dtype": ("bf16",),
            },
        ),
        ({"offload_activation_layers": 3}, {"--cpu-offloading-num-layers": ("3",)}),
    ],
)
def test_an_option_becomes_the_arguments_that_mean_it(wanted, options, expected):
    config = exported(wanted(**options))
    assert {flag: values(config, flag) for flag in expected} == expected
    new = {flag for flag in expected if not flag.endswith("-dropout")}
    assert not new & flags(exported(wanted()))


def test_overlap_follows_its_options(wanted):
    both = {"--overlap-grad-reduce", "--overlap-param-gather"}
    assert both <= flags(exported(wanted()))
    off = wanted(overlap_grad_reduce=False, overlap_param_gather=False)
    assert not both & flags(exported(off))
    assert both & flags(exported(wanted(overlap_param_gather=False))) == {"--overlap-grad-reduce"}
    in_turn = exported(wanted(overlap_param_gather=True), pp=2)
    assert both <= flags(in_turn)
    assert both & flags(exported(wanted(), pp=2)) == {"--overlap-grad-reduce"}
    alongside = wanted(overlap_tp_comm=True)
    assert "--tp-comm-overlap" in flags(exported(alongside, tp=2, sequence_parallel=True))
    assert "--tp-comm-overlap" not in flags(exported(alongside))


@pytest.mark.parametrize("dispatcher", ["deepep", "hybridep"])
def test_a_dispatcher_is_a_backend_of_the_flexible_one(wanted, dispatcher):
    config = exported(wanted("mixtral-8x7b", moe_dispatcher=dispatcher), ep=8)
    assert values(config, "--moe-token-dispatcher-type") == ("flex",)
    assert values(config, "--moe-flex-dispatcher-backend") == (dispatcher,)
    plain = exported(wanted("mixtral-8x7b"), ep=8)
    assert values(plain, "--moe-token-dispatcher-type") == ("alltoall",)


def test_a_gather_of_tokens_is_a_dispatcher_of_its_own(wanted):
    gathered = exported(wanted("mixtral-8x7b", moe_dispatcher="allgather"), ep=2)
    assert values(gathered, "--moe-token-dispatcher-type") == ("allgather",)
    assert "--moe-flex-dispatcher-backend" not in flags(gathered)


def test_tokens_in_8_bits_go_by_nccl_and_into_fused_products(wanted):
    there, back = "--moe-dispatch-fwd-dtype", "--moe-combine-bwd-dtype"
    job = wanted("mixtral-8x7b", moe_dispatcher="ncclep", moe_dispatch_dtype="mxfp8")
    narrow = job.model_copy(
        update={
            "training": job.training.model_copy(update={"precision": "mxfp8"}),
            "cluster": parse_cluster("1x8:b200"),
        }
    )
    config = exported(narrow, ep=8)
    assert values(config, "--moe-flex-dispatcher-backend") == ("ncclep",)
    assert values(config, there) == values(config, back) == ("mxfp8",)
    assert "--use-transformer-engine-op-fuser" in flags(config)
    assert not {there, back} & flags(exported(wanted("mixtral-8x7b"), ep=8))


def test_graphs_and_exchanges_bring_their_variables(wanted):
    def variables(job, **layout):
        return {one.name: one.value for one in exported(job, **layout).environment}

    graphed = wanted("mixtral-8x7b", cuda_graph="partial")
    modules = ("attn", "moe_router", "moe_preprocess")
    assert values(exported(graphed, ep=8), "--cuda-graph-modules") == modules
    deepep = wanted("mixtral-8x7b", cuda_graph="partial", moe_dispatcher="deepep")
    assert values(exported(deepep, ep=8), "--cuda-graph-modules") == modules[:2]
    assert variables(graphed, ep=8)["NCCL_GRAPH_REGISTER"] == "0"
    alongside = wanted("mixtral-8x7b", overlap_moe_a2a=True)
    assert "--overlap-moe-expert-parallel-comm" in flags(exported(alongside, ep=8))
    assert variables(alongside, ep=8)["CUDA_DEVICE_MAX_CONNECTIONS"] == "32"
    assert "NCCL_GRAPH_REGISTER" not in variables(alongside, ep=8)


@pytest.mark.parametrize(
    ("job", "says"),
    [
        ({"cross_entropy": "fused"}, "choose jit or unfused"),
        ({"compile": False}, "leave the option out"),
        ({"model": "mixtral-8x7b", "cuda_graph": "full_iteration"}, "choose partial"),
        ({"precision": "fp16", "gradient_dtype": "bf16"}, "with fp16"),
        ({"model": "deepseek-v3", "overlap_tp_comm": True}, "latent attention"),
    ],
)
def test_a_setting_without_an_option_is_refused(wanted, job, says):
    with pytest.raises(UnsupportedError, match=says):
        exported(wanted(**job))


def test_a_plan_remembers_what_was_set(wanted):
    job = wanted(cuda_graph="full_iteration", moment_dtype="bf16")
    plan = search(job, SearchOptions(fix=(parse_choice("pp=1", excluded=False),)))
    text = json.dumps(plan_json(plan))
    stated = {"cuda_graph": "full_iteration", "moment_dtype": "bf16"}
    assert json.loads(text)["options"] == {**stated, "overlap_tp_comm": True}  # and what is faster
    read, layout = chosen_from_json(text)
    assert read.options == plan.job.options
    assert layout == plan.best.layout
    older = {key: value for key, value in json.loads(text).items() if key != "options"}
    assert chosen_from_json(json.dumps(older))[0].options == RuntimeOptions()


def test_experts_are_exchanged_beside_compute_with_one_module_of_multi_token_prediction(wanted):
    job = wanted("deepseek-v3", overlap_moe_a2a=True)
    check(job, Layout(dp=8, ep=8))
    model = job.model.model_copy(update={"num_nextn_predict_layers": 2})
    with pytest.raises(SpecError, match="exchange_beside_compute"):
        check(job.model_copy(update={"model": model}), Layout(dp=8, ep=8))


@pytest.mark.parametrize(
    ("stated", "expected"), [(None, "fp32"), ("fp32", "fp32"), ("bf16", "bf16")]
)
def test_gradients_of_fsdp_have_the_bytes_that_were_priced(wanted, stated, expected):
    job = wanted(gradient_dtype=stated)
    for stage in (2, 3):
        config = exported(job, zero_stage=stage)
        assert values(config, "--megatron-fsdp-main-grads-dtype") == (expected,)
    assert "--megatron-fsdp-main-grads-dtype" not in flags(exported(job, zero_stage=1))


def test_offload_by_layer_stands_alone(wanted):
    layout = Layout(dp=8, offload_modules=("core_attn", "attn_proj"))
    check(wanted(), layout)
    with pytest.raises(SpecError, match="layers_on_the_host"):
        check(wanted(offload_activation_layers=2), layout)
