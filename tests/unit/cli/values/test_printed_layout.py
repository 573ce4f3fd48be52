"""What pages print of a layout is taken by `--layout`."""

import json

import pytest

from tests.e2e.command import SMALLER, plan, refused
from trainplan.cli.values.layout_text import parse_choices, parse_layout
from trainplan.cli.words import layout_line
from trainplan.costmodel.base.errors import PlanError, SpecError
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.layout.layout import Layout, OffloadSpec
from trainplan.costmodel.presets.presets import preset

CLUSTER = parse_cluster("2x8:h100-sxm")
FULL = {"recompute": "full", "recompute_method": "block", "recompute_num_layers": 3}
PLAIN = Layout(tp=2, pp=2, dp=4, micro_batch_size=2, sequence_parallel=True)
HEAD = " #  tp  pp  vpp  cp  dp  mbs  zero  offload  recompute       step  slower     MFU   GiB\n"
ROW = " 7   1   1    1   2   8    1     1    3.4 %  full block/3  6.78 s   2.2 %  50.3 %  75.7  ~"
OF_ROW = Layout(cp=2, dp=8, offload=OffloadSpec(optimizer=0.034), **FULL)


@pytest.mark.parametrize(
    ("text", "layout"),
    [
        ("tp 2 · pp 2 · vpp 1 · cp 1 · dp 4 · mbs 2 · SP · ZeRO-1 · recompute none", PLAIN),
        ("tp 2 | pp 2 | vpp 1 | cp 1 | dp 4 | mbs 2 | SP | ZeRO-1 | recompute none", PLAIN),
        ("tp 2 pp 2 vpp 1 cp 1 dp 4 mbs 2 SP ZeRO-1 recompute none <- knee", PLAIN),
        ("asked: tp 2 · pp 2 · mbs 2 · SP · recompute none", PLAIN),
        ("given: tp 2 · pp 2 · mbs 2 · SP · recompute none", PLAIN),
        ("tp 2 · pp 2 · mbs 2 · SP\n6.64 s a step (80 %: 5.99 to 7.35 s) · MFU 51.4 %", PLAIN),
        ("recompute full block/3", Layout(dp=16, **FULL)),
        ("full block/3", Layout(dp=16, **FULL)),
        ("tp=2,recompute=full block/3", Layout(tp=2, dp=8, **FULL)),
        ("tp=2,offload 25 %", Layout(tp=2, dp=8, offload=OffloadSpec(optimizer=0.25))),
        ("offload=25 %", Layout(dp=16, offload=OffloadSpec(optimizer=0.25))),
        ("ZeRO-2 over 4 of 16", Layout(dp=16, dp_replicate=4, zero_stage=2)),
        (ROW, OF_ROW),
        (HEAD + ROW, OF_ROW),
    ],
)  # fmt: skip
def test_what_was_printed_is_read(text, layout):
    assert parse_layout(text, CLUSTER) == layout


def test_a_row_with_columns_that_its_head_alone_names_is_read_with_its_head():
    head = " #  tp  pp  vpp  cp  dp  mbs  sp   zero  rep  off GPU      recompute   step  slower"
    row = " 2   2   1    1   1   8    1  no      1    2  qkv+weights  attn+mlp  7.01 s   5.6 %"
    layout = Layout(
        tp=2,
        dp=8,
        dp_replicate=2,
        offload=OffloadSpec(parameters="cpu"),
        offload_modules=("qkv_linear",),
        recompute="selective",
        recompute_modules=("core_attn", "mlp"),
    )
    assert parse_layout(f"{head}\n{row}", CLUSTER) == layout
    with pytest.raises(SpecError, match="paste its head too"):
        parse_layout(row, CLUSTER)


def test_a_row_says_that_its_stages_are_taken_as_even(capsys):
    row = ROW.replace("1   1    1   2   8", "1   2    1   1   8")
    assert parse_layout(row, CLUSTER).stages is None
    assert "stages" in capsys.readouterr().err
    parse_layout(ROW, CLUSTER)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("text", "stated"),
    [
        ("", "FIELD=VALUE"),
        ("tp", "@plan.json:3"),
        ("tp 2 · nonsense", "nonsense"),
        ("tp 2 · tp 4", "tp is given twice"),
        ("stages=uneven", "--fix stages=uneven"),
        ("1 2 3", "paste its head too"),
        ("# tp pp\n1 x 2", "no row of a table with the columns # tp pp"),
        ("@nowhere.json:2", "no such file"),
    ],
)
def test_what_is_no_layout_is_refused_with_the_ways_to_write_one(text, stated):
    with pytest.raises(PlanError, match=stated):
        parse_layout(text, CLUSTER)


def test_a_layout_of_a_plan_s_table_is_named_by_its_row(tmp_path):
    path = tmp_path / "plan.json"
    assert plan("search", *SMALLER, "--top", "3", "--slack", "0", "--output", path).code == 0
    document = json.loads(path.read_text())
    for number, one in enumerate(document["candidates"], 1):
        found = parse_layout(f"@{path}:{number}", CLUSTER)
        degrees = ("tp", "pp", "vpp", "cp", "dp", "micro_batch_size", "recompute")
        assert [getattr(found, name) for name in degrees] == [one["layout"][n] for n in degrees]
    assert parse_layout(f"@{path}", CLUSTER) == parse_layout(f"@{path}:1", CLUSTER)
    headline = plan("search", *SMALLER, "--top", "1", "--slack", "0").out.splitlines()[0]
    assert parse_layout(headline, CLUSTER) == parse_layout(f"@{path}", CLUSTER)
    with pytest.raises(SpecError, match="no candidate 9: the plan lists 1, 2, 3"):
        parse_layout(f"@{path}:9", CLUSTER)
    wanted = plan("why-not", path, "--layout", f"@{path}:2")
    assert wanted.code == 0
    assert "number 2 of the plan's table" in wanted.out or "It loses" in wanted.out


def test_to_fix_uneven_stages_is_to_exclude_even_ones():
    held, excluded = parse_choices(["stages=uneven", "tp=2"], [])
    assert ([c.text for c in held], [c.text for c in excluded]) == (["tp=2"], ["stages=even"])
    held, excluded = parse_choices([], ["stages=uneven"])
    assert ([c.text for c in held], excluded) == (["stages=even"], ())


def test_a_share_of_the_optimizer_is_printed_with_all_its_digits():
    layout = Layout(dp=16, offload=OffloadSpec(optimizer=0.12345, checkpoints=1 / 3))
    line = layout_line(layout, preset("llama3-8b"))
    assert "offload 12.345 % of optimizer" in line
    assert parse_layout(line, CLUSTER) == layout


def test_a_long_text_is_not_repeated_whole():
    with pytest.raises(SpecError) as refused:
        parse_layout("x" * 5000, CLUSTER)
    assert len(str(refused.value)) < 300


def test_a_layout_in_several_words_is_refused_with_how_it_is_written():
    refused(plan("why-not", "plan.json", "tp=8", "pp=4"), "one word, such as tp=8,pp=4")
