"""Counts of tokens per expert, as people and as Megatron-LM write them."""

import json

import pytest

from trainplan.cli.files import routing
from trainplan.cli.files.disk import FileError
from trainplan.cli.files.routing import load_routing
from trainplan.cli.options.names import RUNTIME_OPTIONS
from trainplan.cli.values.stated import listed, parse_options
from trainplan.costmodel.base.errors import SpecError
from trainplan.costmodel.job.job import RuntimeOptions
from trainplan.costmodel.job.routing import RoutingSpec

LAYERS = ((6.0, 2.0, 1.0, 1.0), (1.0, 1.0, 2.0, 6.0))


@pytest.mark.parametrize(
    "text",
    [
        "6,2,1,1\n1,1,2,6\n",
        "6 2 1 1\n\n1 1 2 6",
        "layer,e0,e1,e2,e3\n0,6,2,1,1\n1,1,1,2,6\n",
        "e0;e1;e2;e3\n6;2;1;1\n1;1;2;6",
        "[[6, 2, 1, 1], [1, 1, 2, 6]]",
        '{"tokens_per_expert": [[6, 2, 1, 1], [1, 1, 2, 6]]}',
    ],
)
def test_plain_counts_are_a_line_for_each_layer(tmp_path, text):
    path = tmp_path / "counts"
    path.write_text(text)
    assert load_routing(path).tokens_per_expert == LAYERS


@pytest.mark.parametrize("text", ["6,2,1,1", "6\n2\n1\n1\n", "tokens\n6\n2\n1\n1", "[6, 2, 1, 1]"])
def test_one_line_or_one_column_is_for_all_layers(tmp_path, text):
    path = tmp_path / "counts.csv"
    path.write_text(text)
    assert load_routing(path).tokens_per_expert == LAYERS[:1]


def record(layer, tpe, block="decoder", iteration=100, **more):
    return json.dumps({"iter": iteration, "block": block, "layer": layer, "tpe": tpe, **more})


def test_a_folder_of_megatron_has_the_experts_of_each_rank(tmp_path):
    """Two ranks of two experts each; micro batches are added up, layers and steps in order."""
    first = [record(3, [[4, 1], [1, 1]]), record(10, [[1, 1]])]
    second = [record(3, [[1, 1]]), record(10, [[1, 5], [1, 1]])]
    module = [record(0, [[2, 2]], block="mtp", mtp_idx=0)]
    folder = megatron(tmp_path, [*first, *module], [*second, *module])
    (folder / "notes.txt").write_text("not a rank")
    expected = ((5, 2, 1, 1), (1, 1, 2, 6), (2, 2, 2, 2))
    assert load_routing(folder).tokens_per_expert == expected
    assert load_routing(tmp_path).tokens_per_expert == expected, "the folder that was named"


def megatron(folder, *ranks):
    """As Megatron-LM writes them: a file for each rank."""
    folder /= "tokens_per_expert"
    folder.mkdir()
    for number, lines in enumerate(ranks):
        (folder / f"rank{number}.jsonl").write_text("\n".join(lines))
    return folder


def test_iterations_of_megatron_are_steps_that_add_up(tmp_path):
    def rank(first, then):
        return [record(3, [first], iteration=200), record(3, [then], iteration=100)]

    folder = megatron(tmp_path, rank([1, 2], [5, 6]), rank([3, 4], [7, 8]))
    read = load_routing(folder)
    assert read.steps == (((5, 6, 7, 8),), ((1, 2, 3, 4),))
    assert read.tokens_per_expert == ((6, 8, 10, 12),)
    written = json.loads(json.dumps(read.model_dump(mode="json")))
    assert written["steps"] == [["5 6 7 8"], ["1 2 3 4"]]
    assert RoutingSpec.model_validate(written) == read


def test_stages_of_a_pipeline_have_their_layers_one_after_the_other(tmp_path):
    """Numbers of layers are those of a stage, in folders of which the first may be stage 0 or 1."""
    module = [record(0, [[2, 2]], block="mtp", mtp_idx=0)]
    for stage, ranks in enumerate(
        (
            ([record(1, [[4, 1]])], [record(1, [[1, 1]])]),
            (
                [record(0, [[7, 8]]), record(1, [[1, 1]])],
                [record(0, [[3, 3]]), record(1, [[9, 1]])],
            ),
            ([record(0, [[5, 6]]), *module], [record(0, [[3, 1]]), *module]),
        )
    ):
        folder = tmp_path / f"stage{stage + 9}"
        folder.mkdir()
        megatron(folder, *ranks)
    assert load_routing(tmp_path).tokens_per_expert == (
        *((4, 1, 1, 1), (7, 8, 3, 3), (1, 1, 9, 1), (5, 6, 3, 1)),
        (2, 2, 2, 2),
    )


def test_ranks_with_other_layers_are_stages_that_need_a_folder_each(tmp_path):
    folder = megatron(tmp_path, [record(3, [[1, 2]])], [record(0, [[1, 2]])])
    with pytest.raises(FileError, match=r"stages of a pipeline.*a folder stage0, stage1") as caught:
        load_routing(folder)
    assert "\n" not in str(caught.value)


def test_ranks_that_hold_parts_of_the_same_experts_count_once(tmp_path, capsys):
    one, other = [record(0, [[4, 1]])], [record(0, [[2, 3]])]
    assert load_routing(megatron(tmp_path, one, one, other, other)).tokens_per_expert == (
        (4, 1, 2, 3),
    )
    assert "every 2 ranks in a row have the same counts" in (says := capsys.readouterr().err)
    assert "2 of 4 are read" in " ".join(says.split())


def test_ranks_that_are_equally_full_all_count(tmp_path):
    one = [record(0, [[2, 2]])]
    assert load_routing(megatron(tmp_path, one, one)).tokens_per_expert == ((2, 2, 2, 2),)


@pytest.mark.parametrize(
    "text",
    [
        "step,layer,e0,e1,e2,e3\n1,3,6,2,1,1\n1,7,1,1,2,6\n2,3,1,1,1,1\n2,7,2,2,2,2",
        "layer iteration a b c d\n7 2 2 2 2 2\n3 2 1 1 1 1\n7 1 1 1 2 6\n3 1 6 2 1 1",
        "[[[6, 2, 1, 1], [1, 1, 2, 6]], [[1, 1, 1, 1], [2, 2, 2, 2]]]",
        "step,layer,expert,tokens\n"
        + "\n".join(
            f"{step},{layer},{expert},{count}"
            for step, layers in enumerate((LAYERS, ((1, 1, 1, 1), (2, 2, 2, 2))))
            for layer, counts in enumerate(layers)
            for expert, count in enumerate(counts)
        ),
    ],
)
def test_steps_of_plain_counts_have_their_number_on_each_line(tmp_path, text):
    path = tmp_path / "counts.csv"
    path.write_text(text)
    read = load_routing(path)
    assert read.steps == (LAYERS, ((1, 1, 1, 1), (2, 2, 2, 2)))
    assert read.tokens_per_expert == ((7, 3, 2, 2), (3, 3, 4, 8))


def test_a_histogram_has_a_line_for_each_expert(tmp_path):
    path = tmp_path / "histogram.csv"
    path.write_text("expert,tokens\n0,6\n1,2\n2,1\n3,1\n")
    assert load_routing(path).tokens_per_expert == LAYERS[:1]


def test_more_steps_than_a_plan_keeps_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(routing, "MOST_COUNTS", 10)
    path = tmp_path / "counts.csv"
    path.write_text("step,a,b\n" + "\n".join(f"{step},1,2" for step in range(8)))
    with pytest.raises(FileError, match=r"16 counts of 8 steps.*give 5 steps"):
        load_routing(path)


def test_a_single_file_of_megatron_has_all_experts_of_one_rank(tmp_path):
    path = tmp_path / "rank0.jsonl"
    path.write_text(record(1, [[3, 1, 1, 0], [3, 1, 0, 1]]))
    assert load_routing(path).tokens_per_expert == ((6, 2, 1, 1),)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "the file is empty: expected counts of tokens per expert"),
        ("a,b,c\nd,e,f", "expected counts"),
        ("1,-2,3", "line 1: counts must be 0 or more"),
        ("1,1\n0,0", "line 2: counts must be 0 or more, and some above 0"),
        ("1,nan", "counts"),
        ("1,1e999", "counts"),
        ("[1, true]", "expected counts"),
        ("[1, [2]]", "expected counts"),
        ("step,a,b\n1,2,3\n1,4,5", "expected counts"),
        ("step,layer,a,b\n1,0,4,5\n1,1,4,5\n2,0,4,5", "step 2 has not the layers"),
        ("expert,tokens\n1,5", "expected counts"),
        ("expert,tokens\n0", "expected counts"),
        ("[[], [1]]", "expected counts"),
        ("[[[[1]]]]", "expected counts"),
        ("[" * 100_000, "not JSON"),
        ('{"tokens": [1]}', "expected counts"),
        ('{"iter": 1, "tpe": [[1]]}', "expected counts"),
        ('{"iter": 1, "block": "decoder", "layer": 1, "tpe": [[1], [1, 2]]}', "expected counts"),
        ('{"iter": 1, "block": "decoder", "layer": 1, "tpe": 3}', "expected counts"),
    ],
)
def test_what_holds_no_counts_is_refused_with_its_path(tmp_path, text, says):
    path = tmp_path / "counts.txt"
    path.write_text(text)
    with pytest.raises(FileError, match=says) as caught:
        load_routing(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_a_folder_without_files_of_ranks_is_refused(tmp_path):
    with pytest.raises(FileError, match=r"no file rankN\.jsonl"):
        load_routing(tmp_path)


def test_a_routing_is_a_name_or_a_file(tmp_path):
    path = tmp_path / "counts.csv"
    path.write_text("6,2,1,1")
    assert parse_options(("routing=random",)).routing == RoutingSpec(kind="random")
    assert parse_options(("routing=zipf:0.5",)).routing == RoutingSpec(kind="zipf", alpha=0.5)
    read = parse_options((f"routing={path}",))
    assert read.routing.tokens_per_expert == LAYERS[:1]
    assert read.arguments() == {"routing": f"routing={path}"}
    assert RuntimeOptions.model_validate(json.loads(json.dumps(read.stated()))) == read
    random = RuntimeOptions(routing=RoutingSpec(kind="random"))
    assert random.stated() == {"routing": "random"}
    assert random.settings() == {}


@pytest.mark.parametrize("one", RUNTIME_OPTIONS)
def test_every_value_that_help_names_is_read(one):
    name, _, values = one.partition("=")
    capacity = () if name == "moe_capacity_factor" else ("moe_capacity_factor=1",)
    for value in () if name == "routing" else values.replace("N", "1").split("|"):
        read = getattr(parse_options((f"{name}={value}", *capacity)), name)
        assert str(read).lower() in (value, f"{value}.0")
    assert listed() == RUNTIME_OPTIONS


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        (("routing=zipf:x",), "must be balanced, random, zipf:ALPHA"),
        (("routing=zipf:99",), "with ALPHA from 0 to 10"),
        (("routing=zipf",), "must be balanced"),
        (("routing=uniform",), "no such file; or write balanced"),
        (("moe_capacity_factor=0",), "above 0"),
        (("moe_pad_to_capacity=true",), "means nothing without moe_capacity_factor"),
        (("moe_token_drop_policy=position",), "means nothing without moe_capacity_factor"),
        (("moe_token_drop_policy=last", "moe_capacity_factor=1"), "one of"),
    ],
)
def test_options_of_experts_that_mean_nothing_are_refused(texts, says):
    with pytest.raises(SpecError, match=says):
        parse_options(texts)


def test_a_stated_load_is_read_and_written_and_means_nothing_with_a_capacity():
    read = parse_options(("routing=load:1.3",))
    assert read.routing == RoutingSpec(kind="load", fullest=1.3)
    assert read.arguments() == {"routing": "routing=load:1.3"}
    assert RuntimeOptions.model_validate(json.loads(json.dumps(read.stated()))) == read
    for text in ("load:0.9", "load:", "load:1e3", "load:20000"):
        with pytest.raises(SpecError, match="load:FACTOR with FACTOR from 1 to 10000"):
            parse_options((f"routing={text}",))
    with pytest.raises(SpecError, match=r"leave out moe_capacity_factor"):
        parse_options(("routing=load:1.3", "moe_capacity_factor=1"))
