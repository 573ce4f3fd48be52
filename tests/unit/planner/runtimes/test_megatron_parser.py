"""Words after `pretrain_gpt.py` are taken as the runtime's parser takes them."""

import ast
from importlib import resources

import pytest

from tests.launches import word
from trainplan.planner.runtimes.megatron_lm import keys
from trainplan.planner.runtimes.megatron_lm.read.parser import options, parse
from trainplan.planner.runtimes.megatron_lm.read.patterns import pattern


def parsed(text):
    return parse(tuple(map(word, text.split())))


def causes(text):
    return [problem.cause for problem in parsed(text)[1]]


def test_the_last_of_a_repeated_option_wins():
    arguments, problems = parsed("--num-layers 4 --num-layers=8")
    assert arguments.whole("num_layers") == 8
    assert problems == ()


def test_a_default_stands_where_nothing_is_said():
    arguments, _ = parsed("")
    assert arguments.whole("tensor_model_parallel_size") == 1
    assert arguments.text("moe_token_dispatcher_type") == "allgather"
    assert arguments.texts("cp_comm_type") == ("p2p",)
    assert arguments.on("gradient_accumulation_fusion")


def test_a_switch_may_turn_something_off():
    arguments, _ = parsed("--disable-bias-linear --bf16")
    assert not arguments.on("add_bias_linear")
    assert arguments.on("bf16")


def test_lists_end_at_the_next_option():
    arguments, problems = parsed("--recompute-modules core_attn mlp --bf16")
    assert arguments.texts("recompute_modules") == ("core_attn", "mlp")
    assert problems == ()


def test_negative_numbers_are_values():
    arguments, problems = parsed("--moe-expert-capacity-factor -1")
    assert arguments.number("moe_expert_capacity_factor") == -1
    assert problems == ()


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("--num-layers four", "bad_value"),
        ("--num-layers", "missing_value"),
        ("--num-layers --bf16", "missing_value"),
        ("--recompute-granularity partial", "bad_value"),
        ("--bf16=true", "bad_value"),
        ("--bf16 true", "unknown_flag"),
        ("--tensor-model-parallel 2", "unknown_flag"),
        ("--moe-layer-freq __import__('os')", "bad_value"),
        ("--moe-layer-freq ([0]*9999999999+[1]*3)", "bad_value"),
        ("--window-size 128", None),
        ("--enable-gpt-oss", "package_flag"),
        ("$ARGUMENTS", "unread_words"),
    ],
)
def test_what_the_parser_stops_at_has_a_cause(text, cause):
    assert causes(text) == ([cause] if cause else [])


def test_an_option_of_an_older_release_is_named_with_the_new_one():
    [problem] = parsed("--use-custom-fsdp")[1]
    assert problem.verdict == "illegal"
    assert "--use-megatron-fsdp" in problem.says


def test_a_slip_is_named_with_the_nearest_option():
    [problem] = parsed("--sequence_parallel")[1]
    assert "did you mean --sequence-parallel?" in problem.says


def test_words_of_no_option_are_one_problem_that_says_where_they_stand():
    """As an unquoted value with blanks becomes several words."""
    [problem] = parsed("--step-batch-size-schedule 0:16 2.4B:320 4.8B:624")[1]
    assert "'2.4B:320', '4.8B:624' behind '0:16'" in problem.says


def test_a_value_that_only_a_run_tells_is_the_default_and_marked():
    arguments, problems = parsed("--num-layers $LAYERS")
    assert arguments.given["num_layers"].unresolved == ("LAYERS",)
    assert arguments.whole("num_layers") is None
    assert problems == ()


@pytest.mark.parametrize(
    ("text", "value"),
    [("2", 2), ("([0]*1+[1]*2)*2", (0, 1, 1, 0, 1, 1)), ("[1,0]", (1, 0)), ("3*[1]", (1, 1, 1))],
)
def test_lists_of_layers_are_read_without_python(text, value):
    assert pattern(text) == value


def test_every_recorded_option_is_one_that_can_be_parsed():
    """A switch has no values, another option some, and choices are of its type."""
    for option in options().values():
        assert option.action in ("store", "store_true", "store_false", "boolean")
        assert option.type in ("str", "int", "float", "bool", "name", "pattern", "integers")


TABLE = {one.flag: one for one in vars(keys).values() if isinstance(one, keys.Key)}


def test_each_key_is_an_option_of_the_release_by_its_name_there():
    assert {flag: options()[flag].dest for flag in TABLE} == TABLE


def test_what_writes_launches_spells_no_option_of_the_table_again():
    folder = resources.files("trainplan.planner.runtimes.megatron_lm").joinpath("write")
    trees = [ast.parse(file.read_text("utf-8")) for file in folder.iterdir() if file.is_file()]
    texts = {n.value for tree in trees for n in ast.walk(tree) if isinstance(n, ast.Constant)}
    assert trees and not texts & TABLE.keys()
