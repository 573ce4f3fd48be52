"""Rules by name, and the choices a user makes."""

import pytest

from trainplan.costmodel.base.errors import SpecError
from trainplan.costmodel.layout.layout import Layout, OffloadSpec
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.planner.questions import check, estimate
from trainplan.planner.space.choices import broken_rules, parse_choice, rules_of_job


def broken(job, **fields):
    rules = broken_rules(job, LayoutTable.of([Layout(**fields)]))[0]
    return {rule.name for rule in rules}


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"tp": 3}, "tp_divides_heads"),
        ({"tp": 32}, "tp_divides_heads"),
        ({"cp": 3}, "cp_divides_sequence"),
        ({"dp": 7}, "dp_divides_batch"),
        ({"dp": 8, "micro_batch_size": 3}, "micro_batch_divides_batch"),
        ({"pp": 7}, "stages_hold_layers"),
        ({"vpp": 2, "schedule": "interleaved"}, "vpp_needs_pp"),
        ({"pp": 2, "vpp": 2}, "1f1b_vpp"),
        ({"pp": 2, "vpp": 2, "schedule": "zb-1p"}, "zb_1p_vpp"),
        ({"pp": 2, "schedule": "zb-2p"}, "runtime_executes_schedule"),
        (
            {"pp": 4, "dp": 16, "vpp": 2, "schedule": "interleaved"},
            "interleaved_needs_whole_groups",
        ),
        ({"ep": 2, "dp": 2}, "ep_needs_experts"),
        ({"etp": 2, "tp": 2}, "etp_needs_experts"),
        ({"sequence_parallel": True}, "sequence_parallel_needs_tp"),
        ({"zero_stage": 3, "pp": 2}, "fsdp_needs_one_pipeline_rank"),
        (
            {"zero_stage": 0, "offload": OffloadSpec(optimizer=0.5)},
            "offload_needs_distributed_optimizer",
        ),
        ({"zero_stage": 0, "dp": 4, "dp_replicate": 2}, "replicas_need_sharding"),
        (
            {"recompute": "selective", "recompute_modules": ("mla_up_proj",)},
            "recompute_modules_exist",
        ),
        (
            {
                "pp": 2,
                "recompute": "full",
                "recompute_method": "block",
                "recompute_num_layers": 4,
            },
            "recompute_within_stage",
        ),
    ],
)
def test_each_rule_refuses_by_name(make_job, fields, name):
    assert name in broken(make_job("small-dense", "1x8:h100-sxm", 16), **fields)


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"ep": 3, "dp": 3}, "ep_divides_experts"),
        ({"ep": 8, "dp": 4}, "experts_fold_into_ranks"),
        ({"tp": 2, "dp": 4}, "experts_need_sequence_parallel"),
        ({"etp": 3, "tp": 3}, "etp_divides_expert"),
        ({"ep": 4, "dp": 8, "dp_replicate": 4}, "replicas_divide_expert_dp"),
        (
            {"recompute": "full", "recompute_method": "uniform", "recompute_num_layers": 2},
            "mtp_recomputes_single_layers",
        ),
    ],
)
def test_each_rule_on_experts_refuses_by_name(make_job, fields, name):
    assert name in broken(make_job("small-moe", "1x8:h100-sxm", 48), **fields)


def test_fp8_needs_whole_blocks(make_job):
    job = make_job("small-dense", "1x8:h100-sxm", 16, 2056, precision="fp8")
    assert "low_precision_alignment" in broken(job, tp=1)


def test_every_rule_has_a_name_a_fix_and_a_source(make_job):
    rules = rules_of_job(make_job("small-moe", "1x8:h100-sxm"))
    assert len({rule.name for rule in rules}) == len(rules)
    assert all(rule.says and rule.source and rule.columns for rule in rules)
    assert not [rule.name for rule in rules if not rule.broken.__doc__]


def test_a_rule_reads_only_the_columns_it_names(make_job):
    job = make_job("small-moe", "1x8:h100-sxm")
    table = LayoutTable.of([Layout(dp=8)])
    for rule in rules_of_job(job):
        read = _Recorder(table)
        rule.broken(job, read)
        assert read.seen - {"__len__"} <= rule.columns | {"dp_replicate"}, rule.name


class _Recorder:
    """A table that notes which columns are read."""

    def __init__(self, table):
        self._table, self.seen = table, set()

    def __getattr__(self, name):
        self.seen.add(name)
        return getattr(self._table, name)

    def __len__(self):
        return len(self._table)


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("tp=8", "tp", 8),
        ("schedule=interleaved", "schedule", 1),
        ("recompute=full", "recompute", 2),
        ("recompute_method=block", "recompute_method", 2),
        ("sequence_parallel=true", "sequence_parallel", 1),
        ("offload=0.5", "offload_optimizer", 0.5),
        ("recompute_modules=core_attn+mlp", "recompute_modules", 0b1001),
    ],
)
def test_a_choice_is_read(text, field, value):
    choice = parse_choice(text, excluded=False)
    assert (choice.field, choice.value) == (field, value)


@pytest.mark.parametrize(
    "text",
    [
        "tp",
        "tp=",
        "tp=x",
        "tp=nan",
        "tp=2.5",
        "tp=inf",
        "offload=2",
        "colour=red",
        "recompute=some",
        "recompute_modules=a+b",
    ],
)
def test_a_choice_that_means_nothing_is_refused(text):
    with pytest.raises(SpecError, match=text.split("=", maxsplit=1)[0]):
        parse_choice(text, excluded=False)


def test_a_layout_for_another_world_size_is_refused_with_the_right_dp(make_job):
    with pytest.raises(SpecError, match="set dp = 4"):
        check(make_job("small-dense", "1x8:h100-sxm"), Layout(tp=2, dp=8))


def test_an_illegal_layout_is_refused_with_the_rule_and_its_fix(make_job):
    with pytest.raises(SpecError, match=r"fsdp_needs_one_pipeline_rank.*use pp=1"):
        estimate(make_job("small-dense", "1x8:h100-sxm", 16), Layout(pp=2, dp=4, zero_stage=3))


@pytest.mark.parametrize(
    ("runtime", "cluster", "precision", "rule"),
    [
        ("megatron-lm", "2x8:v100-sxm-32gb", "fp16", "cp_needs_fused_attention"),
        ("nemo", "1x8:t4", "fp16", "cp_needs_fused_attention"),
        ("megatron-zero-bubble", "2x8:h100-sxm", "bf16", "cp_needs_transformer_engine"),
    ],
)
def test_unfused_attention_takes_whole_sequences_alone(make_job, runtime, cluster, precision, rule):
    job = make_job("small-dense", cluster, precision=precision)
    job = job.model_copy(update={"runtime": runtime})
    assert rule in broken(job, cp=2)
    assert rule not in broken(job, tp=2)
    fused = job.options.model_copy(update={"attention": "flash"})
    assert rule not in broken(job.model_copy(update={"options": fused}), cp=2)


def test_a_choice_of_two_fields_says_to_repeat_the_option():
    with pytest.raises(SpecError, match="such as tp=8: repeat the option for each"):
        parse_choice("tp=8,pp=2", excluded=False)


def test_deepspeed_cuts_sequences_beside_data_parallel_ranks_alone(make_job):
    job = make_job("small-dense", "1x8:h100-sxm")
    job = job.model_copy(update={"runtime": "megatron-deepspeed"})
    for degrees in ({"tp": 2}, {"pp": 2}):
        assert "sequence_ranks_alone" in broken(job, cp=2, **degrees)
    assert "sequence_ranks_alone" not in broken(job, cp=2, dp=2)


def test_no_shard_groups_are_those_that_zero_and_replicas_say(make_job):
    rows = LayoutTable.of(
        [
            Layout(dp=8, zero_stage=3),
            Layout(dp=8, zero_stage=3, dp_replicate=2),
            Layout(dp=8, shard={"weights": 2, "gradients": 4, "optimizer": 8}),
        ]
    )
    job = make_job("small-dense", "1x8:h100-sxm")
    for excluded, expected in ((False, [False, False, True]), (True, [True, True, False])):
        rule = parse_choice("shard=none", excluded=excluded).rule()
        assert rule.broken(job, rows).tolist() == expected
