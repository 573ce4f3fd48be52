"""Every architecture that Megatron-Bridge builds by itself is exported, or refused by name."""

import ast
from dataclasses import replace
from functools import cache

import pytest

from tests.runtimes.plans import BRIDGED, NO_PLAN, bridge_configs
from tests.unit.planner.runtimes.test_exports_come_back import read
from trainplan.costmodel.architecture.trained import Trained
from trainplan.costmodel.base.errors import PlanError, UnsupportedError
from trainplan.costmodel.families import model_from_config
from trainplan.costmodel.families.bridges import bridge_of, bridges
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, RuntimeOptions, TrainingSpec
from trainplan.costmodel.layout.layout import Layout, stage_specs
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.presets.presets import preset
from trainplan.costmodel.runtimes.registry import RUNTIMES
from trainplan.planner.launch.config import assigned
from trainplan.planner.questions.estimation import estimate
from trainplan.planner.runtimes import EXPORTERS
from trainplan.planner.runtimes.able import check_able
from trainplan.planner.runtimes.compare import missing_flags, recorded_flags

RUNTIME = "megatron-bridge"
SP = {"sequence_parallel": True}
WITHOUT_PLAN = {
    "DeciLMForCausalLM": "block_configs",
    "FalconH1ForCausalLM": "its bridge of FalconH1ForCausalLM runs both without Transformer Engine",
    "KimiK3ForConditionalGeneration": "situ",
    "Qwen3ASRForConditionalGeneration": "model_type",
}
"""What of each is named."""


def job_of(model, seq=4096):
    return Job(
        model=model,
        training=TrainingSpec(seq_length=seq, global_batch_size=64),
        cluster=parse_cluster("2x8:h100-sxm"),
        runtime=RUNTIME,
    )


def keys(config):
    return dict(config.settings)


@cache
def spec(name):
    return model_from_config(bridge_configs()[name], name)


def exported(name, **layout):
    layout = {"tp": 2, "dp": 8, **SP} | layout
    return EXPORTERS[RUNTIME](job_of(spec(name)), Layout(**layout))


def test_the_list_is_that_of_the_release():
    assert len(bridges()) == 60
    assert {one.architecture for one in bridges()} == bridge_configs().keys()
    assert len(BRIDGED) == 55


def test_what_is_not_planned_is_refused_by_name():
    assert {*WITHOUT_PLAN, "Qwen3_5ForTokenClassification"} == NO_PLAN
    for name, word in WITHOUT_PLAN.items():
        with pytest.raises(PlanError, match=word):
            exported(name)


def test_no_plan_is_of_a_head_that_classifies_tokens():
    (classifier,) = (one for one in bridges() if not one.model_types)
    assert classifier.architecture == "Qwen3_5ForTokenClassification"


@pytest.mark.parametrize("plan", BRIDGED, ids=lambda plan: plan.name)
def test_an_architecture_is_exported_and_comes_back(plan):
    job = plan.job(RUNTIME)
    config = EXPORTERS[RUNTIME](job, plan.layout)
    assert missing_flags(config, recorded_flags(RUNTIME)) == ()
    recipe, planned = config.files
    assert ast.parse(recipe.text)
    assert f"AutoBridge of {bridge_of(job.model).architecture}" in recipe.text
    assert planned.name == "planned_model.json"
    assert not {"model.num_layers", "model.hidden_size"} & keys(config).keys()
    found = read(config, "torchrun", job.cluster)
    assert found.layout == plan.layout
    assert found.job.model == job.model
    assert found.job.training.seq_length == job.training.seq_length
    assert found.job.options == job.options
    assert not [one for one in found.problems if one.verdict in ("illegal", "ignored")]
    again = estimate(found.job, found.layout).step_time_s
    assert again == estimate(job, plan.layout).step_time_s


def test_a_model_of_no_bridge_is_spelled_out_or_refused():
    vanilla = EXPORTERS[RUNTIME](job_of(preset("gpt3-6.7b"), seq=2048), Layout(tp=2, dp=8, **SP))
    assert [file.name for file in vanilla.files] == ["bridge_recipe.py"]
    assert keys(vanilla)["model.num_layers"] == "32"
    with pytest.raises(UnsupportedError, match=r"nor has it a bridge of model_type 'olmo2'.*can:"):
        check_able(job_of(preset("olmo2-7b")))


def test_layers_of_a_pattern_need_a_bridge():
    with pytest.raises(UnsupportedError, match=r"Mamba layers, .*, nor has it a bridge of"):
        check_able(job_of(preset("nemotron-3-nano-30b-a3b").model_copy(update={"model_type": "x"})))


def test_a_pattern_with_experts_is_written_with_one_graph_of_the_step():
    job = job_of(preset("nemotron-3-nano-30b-a3b"))
    graph = {"cuda_graph": "full_iteration", "moe_dispatcher": "hybridep"}
    job = job.model_copy(update={"options": job.options.model_copy(update=graph)})
    stated = keys(EXPORTERS[RUNTIME](job, Layout(tp=2, dp=8, ep=8, **SP)))
    assert stated["model.cuda_graph_impl"] == "full_iteration"
    assert stated["model.hybrid_layer_pattern"].count("E") == 23


def test_shared_experts_overlap_the_exchange_where_that_was_planned():
    for shares, written in ((None, "false"), (True, "true")):
        job = job_of(preset("deepseek-v3"))
        options = job.options.model_copy(update={"overlap_shared_experts": shares})
        job = job.model_copy(update={"options": options})
        layout = Layout(tp=2, dp=8, ep=8, **SP)
        config = EXPORTERS[RUNTIME](job, layout)
        stated = [v for k, v in config.settings if k == "model.moe_shared_expert_overlap"]
        assert stated == [written]


def test_layers_of_a_pattern_are_cut_where_stages_end():
    config = exported("NemotronHForCausalLM", pp=4, dp=2, stages=stage_specs((7, 9, 9, 7)))
    pattern = keys(config)["model.hybrid_layer_pattern"].strip('"')
    assert [len(stage) for stage in pattern.split("|")] == [7, 9, 9, 7]
    found = read(config, "torchrun", parse_cluster("2x8:h100-sxm"))
    assert [stage.layers for stage in found.layout.stages] == [7, 9, 9, 7]


@pytest.mark.parametrize(
    ("name", "layout", "broken"),
    [
        ("NemotronHForCausalLM", {"pp": 2, "vpp": 2}, "bridge_without_virtual_stages"),
        ("Gemma3ForConditionalGeneration", {"cp": 2}, "bridge_without_context"),
        ("MiMoV2FlashForCausalLM", {"cp": 2}, "bridge_without_context"),
        ("Gemma4ForCausalLM", {"pp": 2}, "bridge_without_pipeline"),
        ("LlamaForCausalLM", {"pp": 2, "vpp": 2, "cp": 2}, None),
    ],
)
def test_degrees_that_a_bridge_has_not_are_rules(name, layout, broken):
    job, table = job_of(spec(name)), LayoutTable.of([Layout(**layout, schedule="interleaved")])
    rules = [one for one in RUNTIMES[RUNTIME].rules if one.name.startswith("bridge_without")]
    assert len(rules) == 3
    assert [one.name for one in rules if one.broken(job, table)[0]] == ([broken] if broken else [])


def test_a_tower_has_its_data_its_step_and_what_is_frozen():
    model = spec("Qwen3VLForConditionalGeneration")
    frozen = model.model_copy(update={"tower": model.tower.model_copy(update={"frozen": "all"})})
    config = EXPORTERS[RUNTIME](job_of(frozen), Layout(tp=2, dp=8, **SP))
    assert keys(config)["model.freeze_vision_model"] == "true"
    assert keys(config)["model.freeze_vision_projection"] == "true"
    assert "dataset.split" not in keys(config)
    recipe = config.files[0].text
    assert "from megatron.bridge.models.qwen_vl.qwen3_vl_step import forward_step" in recipe
    assert "recipe.dataset = DirectHFSFTDatasetConfig(" in recipe


def test_the_decoder_of_a_model_is_trained_alone_where_it_was_planned_alone():
    config = exported("Exaone4_5_ForConditionalGeneration")
    assert "decoder is not hf" in config.files[0].text
    assert any("without its vision tower, as planned" in note for note in config.notes)
    whole = exported("Ernie4_5_VLMoeForConditionalGeneration")
    assert any("which the plan does not price" in note for note in whole.notes)


def test_code_of_a_repository_is_named_before_it_runs():
    config = exported("MiMoForCausalLM")
    assert "trust_remote_code=True" in config.files[0].text
    assert any("code of its own" in note for note in config.notes)
    assert "trust_remote_code" not in exported("LlamaForCausalLM").files[0].text


def test_adapters_of_a_built_model_come_back():
    trained = Trained(method="lora", rank=16, modules=("q", "k", "v"))
    model = spec("Qwen3ForCausalLM").model_copy(update={"trained": trained})
    config = EXPORTERS[RUNTIME](job_of(model), Layout(tp=2, dp=8, **SP))
    assert config.read_back
    assert "PRETRAINED_CHECKPOINT" in {one.name for one in config.required_environment}
    found = read(config, "torchrun", parse_cluster("2x8:h100-sxm"))
    assert found.job.model == model


def test_the_source_of_the_configuration_is_a_required_variable():
    first, *_ = EXPORTERS[RUNTIME](job_of(preset("llama3-8b")), Layout(dp=16)).required_environment
    assert first.name == "HF_MODEL"
    assert "meta-llama/Meta-Llama-3-8B" in first.sentence
    unnamed, *_ = exported("LlamaForCausalLM").required_environment
    assert "such as" not in unnamed.sentence


def test_another_shape_in_keys_is_not_the_plan():
    job, layout = job_of(spec("LlamaForCausalLM")), Layout(tp=2, dp=8, **SP)
    config = EXPORTERS[RUNTIME](job, layout)
    more = (*config.arguments, assigned("model", "model.num_layers", "16"))
    found = read(replace(config, arguments=more), "torchrun", job.cluster)
    assert found.job.model.num_hidden_layers == 16


@pytest.mark.parametrize("overlaps", [None, True])
def test_shared_experts_overlap_as_planned_whatever_the_bridge_does(overlaps):
    """Its own default is to overlap them."""
    name, layout = "DeepseekV2ForCausalLM", Layout(dp=16, ep=8, zero_stage=1)
    options = RuntimeOptions(overlap_shared_experts=overlaps)
    job = job_of(spec(name)).model_copy(update={"options": options})
    config = EXPORTERS[RUNTIME](job, layout)
    names = [key for key, _ in config.settings]
    assert names.count("model.moe_shared_expert_overlap") == 1
    assert keys(config)["model.moe_shared_expert_overlap"] == ("true" if overlaps else "false")
    found = read(config, "torchrun", job.cluster)
    assert found.job.options.overlap_shared_experts is overlaps
    assert estimate(found.job, layout) == estimate(job, layout)
