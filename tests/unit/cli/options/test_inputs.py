"""Arguments become specs: models, clusters, layouts, tokens."""

import json
from pathlib import Path

import click
import pytest

from trainplan.cli.files.inputs import load_cluster, load_model
from trainplan.cli.options.parameters import byte_count, carbon_intensity, day_count, token_count
from trainplan.cli.pages.parts.breakdown import LABELS
from trainplan.cli.values.layout_text import parse_layout
from trainplan.cli.words import SHORT_MODULES, recompute_text
from trainplan.costmodel.base.errors import SpecError
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.layout.layout import RECOMPUTE_MODULES, Layout, OffloadSpec
from trainplan.costmodel.presets.presets import preset, preset_config
from trainplan.costmodel.step.results import Terms

CLUSTER = parse_cluster("8x8:h100-sxm")
CONTEXT = click.Context(click.Command("plan"))
OPTION = click.Option(["--tokens"])


def test_a_config_its_folder_and_its_preset_are_one_model(tmp_path: Path):
    folder = tmp_path / "my-llama"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(dict(preset_config("llama3-8b"))))
    model = preset("llama3-8b").model_copy(update={"name": "my-llama"})
    assert load_model(str(folder)) == model
    assert load_model(str(folder / "config.json")) == model
    assert load_model("llama3-8b") == preset("llama3-8b")


def test_our_yaml_takes_the_fields_of_a_model(tmp_path: Path):
    path = tmp_path / "mine.yaml"
    fields = preset("deepseek-v3").model_dump(mode="json", exclude={"name"})
    path.write_text(json.dumps(fields))  # JSON is YAML
    assert load_model(str(path)) == preset("deepseek-v3").model_copy(update={"name": "mine"})


def test_a_file_with_a_byte_order_mark_is_read(tmp_path: Path):
    path = tmp_path / "config.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(dict(preset_config("gpt2"))).encode())
    assert load_model(str(path)).hidden_size == 768


def test_a_cluster_file_and_its_short_form_are_one_cluster(tmp_path: Path):
    path = tmp_path / "cluster.yaml"
    path.write_text(
        "name: 8x8:h100-sxm\ngroups:\n  - {gpu: h100-sxm, num_nodes: 8, gpus_per_node: 8}\n"
    )
    assert load_cluster(str(path)) == load_cluster("8x8:h100-sxm")


def test_every_term_and_module_has_words():
    assert set(LABELS) == set(Terms.__slots__)
    assert set(SHORT_MODULES) == set(RECOMPUTE_MODULES)


@pytest.mark.parametrize("module", RECOMPUTE_MODULES)
def test_recomputed_modules_are_read_as_the_tables_write_them(module):
    layout = Layout(dp=64, recompute="selective", recompute_modules=(module,))
    short = recompute_text(layout)
    for text in (f"recompute={short}", f"recompute_modules={short}", f"recompute={module}"):
        assert parse_layout(text, CLUSTER) == layout
    for wrong in (f"recompute={module}+full", f"recompute_num_layers={module}"):
        with pytest.raises(SpecError, match="recompute"):
            parse_layout(wrong, CLUSTER)


@pytest.mark.parametrize(
    ("text", "layout"),
    [
        ("tp=8,pp=4", Layout(tp=8, pp=4, dp=2)),
        ("tp=8,pp=4,vpp=2", Layout(tp=8, pp=4, vpp=2, dp=2, schedule="interleaved")),
        ("mbs=2,zero=3", Layout(dp=64, micro_batch_size=2, zero_stage=3)),
        ("tp = 2 , sp = true", Layout(tp=2, dp=32, sequence_parallel=True)),
        (
            "recompute=full",
            Layout(dp=64, recompute="full", recompute_method="uniform", recompute_num_layers=1),
        ),
        (
            "recompute=selective",
            Layout(dp=64, recompute="selective", recompute_modules=("core_attn",)),
        ),
        (
            "recompute_modules=core_attn+mlp",
            Layout(dp=64, recompute="selective", recompute_modules=("core_attn", "mlp")),
        ),
        ("offload=0.5", Layout(dp=64, offload=OffloadSpec(optimizer=0.5))),
    ],
)
def test_what_a_layout_leaves_out_follows_from_the_rest(text: str, layout: Layout):
    assert parse_layout(text, CLUSTER) == layout


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("15T", 15 * 10**12), ("1e12", 10**12), ("1.5B", 1_500_000_000), ("1_000", 1000), ("7", 7)],
)
def test_tokens_are_read_exactly(text: str, tokens: int):
    assert token_count(CONTEXT, OPTION, text) == tokens


@pytest.mark.parametrize(
    ("text", "days"), [("2w", 14.0), ("36h", 1.5), ("30d", 30.0), ("0.5w", 3.5), ("1.5d", 1.5)]
)
def test_durations_are_read_in_days(text, days):
    assert day_count(CONTEXT, OPTION, text) == pytest.approx(days)


@pytest.mark.parametrize("text", ["2", "0d", "3m", "-1d", "w"])
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(click.BadParameter, match="write 30d, 36h or 2w"):
        day_count(CONTEXT, OPTION, text)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (None, 0),
        ("30GiB", 30 * 2**30),
        ("30 GB", 30 * 10**9),
        ("500MiB", 500 * 2**20),
        ("1.5GB", 1_500_000_000),
        ("0GiB", 0),
    ],
)
def test_sizes_of_memory_name_their_unit(text, size):
    assert byte_count(CONTEXT, OPTION, text) == size


@pytest.mark.parametrize("text", ["30", "-1GiB", "30 gigs", "30Gb", "1e9GB", "99999999GiB", ""])
def test_no_size_of_memory_is_guessed(text):
    with pytest.raises(click.BadParameter, match="write 30GiB, 30GB or 500MiB"):
        byte_count(CONTEXT, OPTION, text)


@pytest.mark.parametrize(
    ("text", "value"), [(None, None), ("0.4", 0.4), ("0", 0.0), ("10", 10.0), ("world", "world")]
)
def test_carbon_dioxide_of_a_kwh_is_a_number_of_kg_or_the_mean_of_the_world(text, value):
    assert carbon_intensity(CONTEXT, OPTION, text) == value


@pytest.mark.parametrize("text", ["", "-1", "445", "0.4 kg", "nan", "World", "0x1"])
def test_no_carbon_dioxide_of_a_kwh_is_guessed(text):
    with pytest.raises(click.BadParameter, match="write a number such as"):
        carbon_intensity(CONTEXT, OPTION, text)
