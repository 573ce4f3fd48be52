"""Profiles out of files of other tools, those of the plug-in in examples too."""

import json
import random
import re
from pathlib import Path

import pytest
from trainplan_importers.aceso import GptSize, gpt

from tests.plugged import importers
from trainplan.costmodel.base.errors import CatalogError, PlanError, SpecError
from trainplan.costmodel.profiles.profile import Profile
from trainplan.profiler.importers import IMPORTERS, ImportRequest, import_profile

ROOT = Path(__file__).parents[4]
REPLAY = ROOT / "tests" / "replay"
PROFILES = ROOT / "examples" / "accuracy" / "profiles"
MODEL = gpt("OPT-350M", GptSize(24, 1024, 16), 2048)
REQUEST = ImportRequest("gh200-96gb", MODEL, 2048, "tf32")
MIB = 2**20


def replay(*names):
    return {name.split("/")[-1]: (REPLAY / name).read_text() for name in names}


def folder(name):
    return {path.name: path.read_text() for path in (REPLAY / name).iterdir()}


SAILOR = replay("sailor_profile.json", "network_coeffs_gh200.json")
SIMUMAX = replay("simumax_b200.json")
ACESO = folder("aceso_a10g")
METIS = {
    "DeviceType.A100_tp2_bs4.json": json.dumps(
        {
            "model": {"model_name": "synthetic", "num_layers": 5},
            "execution_time": {"layer_compute_total_ms": [1.5, 10.0, 12.0, 11.0, 0.4]},
        }
    )
}
GALVATRON = {
    "computation_profiling_bf16_synthetic_all.json": json.dumps(
        {
            "layernum[2]_bsz8_seq2048": 90.0,
            "layertype_0_bsz8_seq2048": 4.0,
            "layertype_other_bsz8_seq2048": 3.0,
        }
    ),
    "allreduce_bandwidth_2nodes_8gpus_per_node.json": json.dumps(
        {"allreduce_size_8_consec_1": 150.0, "allreduce_size_4_consec_0": 16.0}
    ),
    "p2p_bandwidth_2nodes_8gpus_per_node.json": json.dumps({"pp_size_2": 8.0, "pp_size_4": 9.0}),
    "sp_time_1nodes_8gpus_per_node.json": json.dumps(
        {"allreduce_size_8_64MB_time": 0.65, "all2all_size_4_1MB_time": 0.05}
    ),
    "overlap_coefficient.json": json.dumps({"overlap_coe": 1.125}),
}
NCCL_HEAD = """\
# nccl-tests version 2.17.6 nccl-headers=22809 nccl-library=22809
# Collective test starting: {}_perf
# nThread 1 nGpus 1 minBytes 8 maxBytes 8388608 step: 2(factor) warmup iters: 1 iters: 20
#
# Using devices
#  Rank  0 Group  0 Pid 100 on     node-a device  0 [0000:0f:00] NVIDIA H100 80GB HBM3
#  Rank  1 Group  1 Pid 101 on     node-a device  1 [0000:2d:00] NVIDIA H100 80GB HBM3
#  Rank  2 Group  0 Pid 102 on     node-b device  0 [0000:0f:00] NVIDIA H100 80GB HBM3
#  Rank  3 Group  1 Pid 103 on     node-b device  1 [0000:2d:00] NVIDIA H100 80GB HBM3
#
#                                                              out-of-place                in-place
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)
"""
NCCL_ROWS = """\
           0             0     float    none      -1     4.10    0.00    0.00       0     4.00
     1048576        262144     float    none      -1    50.25   20.87   10.43       0    50.11
     8388608       2097152     float    none      -1    2.5e2   33.55   16.78     N/A    250.1
# Out of bounds values : 0 OK
"""
NCCL = {"run.txt": "".join(NCCL_HEAD.format(n) + NCCL_ROWS for n in ("all_gather", "sendrecv"))}
NCCL_JSON = {
    "version": 3,
    "args": ["./build/reduce_scatter_perf_mpi", "-g", "4"],
    "config": {
        "nthreads": 1,
        "ngpus": 4,
        "devices": [{"rank": 0, "group": 0, "hostname": f"n{i}"} for i in range(2)],
    },
    "results": [
        {"size": 0, "out_of_place": {"time": 0.0}},
        {"size": 4096, "out_of_place": {"time": 12.5}},
        {
            "size": 8192,
            "out_of_place": {"time": 40.0},
            "out_of_place_per_iter": {"skipped_iterations": 1, "times_us": [90, 10, 20, 30]},
        },
    ],
}
GOOD = {
    "aceso": (ACESO, ImportRequest("a10g")),
    "galvatron": (GALVATRON, REQUEST),
    "metis": (METIS, REQUEST),
    "nccl-tests": (NCCL, REQUEST),
    "sailor": (SAILOR, REQUEST),
    "simumax": (SIMUMAX, ImportRequest("b200")),
}


@pytest.fixture(autouse=True)
def _installed():
    with importers():
        yield


def of_kind(profile, kind):
    return [point for point in profile.points if point.kind == kind]


@pytest.mark.parametrize("name", GOOD)
def test_every_format_gives_a_profile_that_says_where_it_is_from(name):
    texts, wanted = GOOD[name]
    profile = import_profile(name, texts, wanted)
    assert profile.points
    assert profile.gpu == wanted.gpu
    assert profile.origins[0].source.lower().startswith(name)
    assert Profile.model_validate_json(profile.model_dump_json()) == profile


@pytest.mark.parametrize("name", GOOD)
def test_the_source_given_is_kept(name):
    texts, wanted = GOOD[name]
    named = ImportRequest(
        wanted.gpu, wanted.model, wanted.seq_length, wanted.precision, source="mine (MIT)"
    )
    assert import_profile(name, texts, named).origins[0].source == "mine (MIT)"


@pytest.mark.parametrize(
    ("file", "name", "texts", "wanted"),
    [
        ("simumax-b200.json", "simumax", SIMUMAX, ImportRequest("b200")),
        ("sailor-gh200.json", "sailor", SAILOR, REQUEST),
        ("mist-a10g.json", "aceso", ACESO, ImportRequest("a10g")),
    ],
)
def test_excerpts_import_as_in_the_published_profiles(file, name, texts, wanted):
    document = json.loads((PROFILES / file).read_text())
    assert document.pop("schema") == Profile.SCHEMA
    published = Profile.model_validate(document)
    excerpt = import_profile(name, texts, wanted)
    assert set(excerpt.points) <= set(published.points)
    assert (excerpt.gpu, excerpt.gpus_per_node) == (published.gpu, published.gpus_per_node)


@pytest.mark.parametrize("path", sorted(PROFILES.glob("*.json")), ids=lambda path: path.stem)
def test_published_profiles_name_repository_commit_and_licence(path):
    document = json.loads(path.read_text())
    assert document.pop("schema") == Profile.SCHEMA
    (origin,) = Profile.model_validate(document).origins
    assert origin.source.endswith(("(Apache-2.0)", "(MIT)"))
    assert "@" in origin.source


def test_simumax_products_count_two_operations_for_each_number():
    first = of_kind(import_profile("simumax", SIMUMAX, ImportRequest("b200")), "gemm")[0]
    assert (first.m, first.n, first.k, first.weight_gradient) == (4096, 10240, 8192, False)
    seconds = 2 * 4096 * 10240 * 8192 / (2250e12 * 0.6451614102335537)
    assert first.time.seconds == pytest.approx(seconds)
    assert first.time.flags == ("stated",)


def test_simumax_weight_gradients_reduce_over_tokens():
    points = of_kind(import_profile("simumax", SIMUMAX, ImportRequest("b200")), "gemm")
    single = next(p for p in points if p.weight_gradient and p.groups == 1)
    assert (single.m, single.n, single.k) == (8192, 10240, 4096)
    grouped = [(p.m, p.n, p.k, p.weight_gradient) for p in points if p.groups == 160][:3]
    assert grouped == [
        (154, 3072, 5120, False),
        (154, 5120, 3072, False),
        (5120, 3072, 154, True),
    ]


def test_simumax_attention_counts_the_whole_square():
    first = of_kind(import_profile("simumax", SIMUMAX, ImportRequest("b200")), "attention")[0]
    square = 4096**2 * 64 * 256
    assert first.forward.seconds == pytest.approx(2 * square / (0.8715233665672911 * 2250e12))
    assert first.backward.seconds == pytest.approx(5 * square / (0.7294011330486614 * 2250e12))


def test_simumax_lines_use_gibibytes_and_leave_out_what_was_not_measured():
    profile = import_profile("simumax", SIMUMAX, ImportRequest("b200"))
    points = {(p.operation, p.ranks, p.num_bytes): p for p in of_kind(profile, "collective")}
    traffic = 2 * 7 / 8 * 2**30 / (900 * 2**30 * 0.7424)
    latency = (5.5183 * 7 * 2 + 22.2316) * 1e-6
    seconds = points["all_reduce", 8, 2**30].time.seconds
    assert seconds == pytest.approx(traffic + latency)
    assert {operation for operation, _, _ in points} == {
        "all_reduce",
        "all_gather",
        "reduce_scatter",
        "alltoall",
    }
    assert "default" not in {stream.name for stream in of_kind(profile, "stream")}


def test_aceso_layers_are_sums_of_operations_with_collectives_inside():
    profile = import_profile("aceso", ACESO, ImportRequest("a10g"))
    layers = {layer.tp: layer for layer in of_kind(profile, "layer")}
    rows = [line.split(",") for line in ACESO["gpt_6_7B_mbs2_tp2_algo0.csv"].splitlines()]
    enc = [row for row in rows if row[0].startswith("enc-")]
    assert len(enc) == 13
    assert layers[2].forward.seconds == pytest.approx(sum(float(row[1]) for row in enc) * 1e-6)
    assert layers[2].saved_bytes == pytest.approx(sum(float(row[6]) for row in enc) * MIB)
    assert (layers[1].collectives_inside, layers[2].collectives_inside) == (False, True)
    assert (layers[1].model.name, layers[1].seq_length) == ("GPT-6.7B", 2048)
    assert layers[1].precision == "fp16"
    assert [end.vocab_size for end in profile.points if end.kind == "head"] == [51200]
    ran = {
        (p.runtime, p.kernels) for p in profile.points if p.kind in ("layer", "embedding", "head")
    }
    assert ran == {("megatron-lm", "fused")}


def test_aceso_gathers_are_sized_by_their_result():
    texts = {
        "prim_gpt_all_gather_8gpus.csv": "data_size(MB),time(ms)\n1,4.55\n2,1000000000.000\n",
        "prim_gpt_reduce_scatter_8gpus.csv": "data_size(MB),time(ms)\n1,0.551\n",
        "p2p_inter_node.csv": "1,2\n1.25,1.25\n1.25,1.35\n",
    }
    profile = import_profile("aceso", texts, ImportRequest("a10g"))
    gather, scatter, one, two = profile.points
    assert (gather.operation, gather.ranks, gather.num_bytes) == ("all_gather", 8, 8 * MIB)
    assert gather.time.seconds == pytest.approx(4.55e-3)
    assert scatter.num_bytes == MIB
    assert (one.per_node, one.stride, one.num_bytes) == (1, 8, MIB)
    assert two.time.seconds == pytest.approx(2 * MIB / 1.3e9)


def test_an_aceso_file_that_ran_out_of_memory_is_a_failure_not_a_time():
    name = "gpt_6_7B_mbs2_tp2_algo0.csv"
    texts = ACESO | {name: ACESO[name].replace("849.903", "10000000.000")}
    profile = import_profile("aceso", texts, ImportRequest("a10g"))
    assert [failure.item for failure in profile.failures] == [name]
    assert [layer.tp for layer in of_kind(profile, "layer")] == [1]


def test_aceso_tensor_sizes_must_fit_the_model():
    with pytest.raises(SpecError, match="correct --model or --seq-length"):
        import_profile("aceso", ACESO, ImportRequest("a10g", MODEL))
    with pytest.raises(SpecError, match="correct --model or --seq-length"):
        import_profile("aceso", ACESO, ImportRequest("a10g", seq_length=4096))


def test_sailor_layers_are_seconds_and_hold_their_collectives():
    layers = of_kind(import_profile("sailor", SAILOR, REQUEST), "layer")
    one = next(layer for layer in layers if layer.tp == 1)
    assert (one.micro_batch_size, one.forward.seconds, one.backward.seconds) == (
        8,
        0.007607,
        0.021314,
    )
    assert [layer.collectives_inside for layer in layers] == [layer.tp > 1 for layer in layers]
    assert one.runtime == "megatron-deepspeed"


def test_sailor_bandwidths_are_sums_over_pairs_and_parabolas_in_megabytes():
    points = of_kind(import_profile("sailor", SAILOR, REQUEST), "collective")
    assert {point.operation for point in points} == {"p2p"}
    of = {(p.per_node, p.stride, p.num_bytes): p.time.seconds for p in points}
    x = 6.067786  # log2(2^26 / 10^6)
    rate = (-0.52312685 * x * x + 14.22563803 * x + 44.10217959) * 1e9
    assert of[2, 1, 2**26] == pytest.approx(2**26 / rate, rel=1e-4)
    assert of[2, 2, 2**30] == pytest.approx(2 * 2**30 / 250558342885.70334)
    assert of[1, 4, 2**28] == pytest.approx(4 * 2**28 / 92551901043.9898)


def test_sailor_layers_of_another_model_are_refused():
    model = gpt("GPT-Neo-2.7B", GptSize(32, 2560, 32), 2048)
    with pytest.raises(SpecError, match=r"26 entries, but GPT-Neo-2.7B has 32 layers"):
        import_profile("sailor", SAILOR, ImportRequest("gh200-96gb", model, 2048, "tf32"))


def test_sailor_models_are_picked_by_name():
    profile = json.loads(SAILOR["sailor_profile.json"])
    texts = {"profiles_tmp.json": json.dumps({"OPT-350": {"GH-96": profile}, "OPT-30": {}})}
    assert len(import_profile("sailor", texts, REQUEST).points) == 2
    with pytest.raises(SpecError, match="nothing of l4: give one of GH-96"):
        import_profile("sailor", texts, ImportRequest("l4", MODEL, 2048, "tf32"))


def test_metis_takes_the_median_layer_between_the_ends():
    (layer,) = import_profile("metis", METIS, REQUEST).points
    assert layer.both.seconds == pytest.approx(11e-3)
    assert (layer.tp, layer.micro_batch_size, layer.collectives_inside) == (2, 4, True)
    assert layer.forward is None


def test_galvatron_times_are_of_one_sample_and_bandwidths_of_the_bus():
    profile = import_profile("galvatron", GALVATRON, REQUEST)
    (layer,) = of_kind(profile, "layer")
    assert layer.forward.seconds == pytest.approx(8 * 4e-3)
    assert (layer.micro_batch_size, layer.precision, layer.backward) == (8, "bf16", None)
    points = {
        (p.operation, p.ranks, p.per_node, p.stride, p.num_bytes): p.time.seconds
        for p in of_kind(profile, "collective")
    }
    assert points == {
        ("all_reduce", 8, 8, 1, 32 * MIB): pytest.approx(32 * 1.75 / 150.0 * 1e-3),
        ("all_reduce", 4, 2, 4, 32 * MIB): pytest.approx(32 * 1.5 / 16.0 * 1e-3),
        ("p2p", 2, 1, 8, 32 * MIB): pytest.approx(32 / 8.0 * 1e-3),
        ("all_reduce", 8, 8, 1, 64 * MIB): pytest.approx(0.65e-3),
        ("alltoall", 4, 4, 1, MIB): pytest.approx(0.05e-3),
    }
    (overlap,) = of_kind(profile, "overlap")
    assert (overlap.ranks, overlap.num_bytes, overlap.compute_slowdown) == (16, 64 * MIB, 1.125)


def test_nccl_tests_groups_come_from_the_ranks():
    profile = import_profile("nccl-tests", NCCL, REQUEST)
    assert (profile.num_nodes, profile.gpus_per_node) == (2, 2)
    gather, larger, message, _ = profile.points
    assert (gather.operation, gather.ranks, gather.per_node, gather.stride) == (
        "all_gather",
        2,
        1,
        2,
    )
    assert (gather.num_bytes, gather.time.seconds) == (MIB, pytest.approx(50.25e-6))
    assert larger.time.seconds == pytest.approx(250e-6)
    assert (message.operation, message.ranks) == ("p2p", 2)


def test_older_nccl_tests_are_named_by_their_file():
    old = (
        "# Using devices\n"
        "#   Rank  0 Pid  7 on  host-a device  0 [0x0f] Tesla V100\n"
        "#   Rank  1 Pid  7 on  host-a device  1 [0x10] Tesla V100\n"
        "     8192     2048     float     sum    30.00    0.27    0.27  0e+00    29.0\n"
    ).replace("sum ", "sum -1 ")
    for file in ("out/all_reduce_perf.log", "all_reduce.txt", "all_reduce_8.txt"):
        (point,) = import_profile("nccl-tests", {file: old}, REQUEST).points
        assert (point.operation, point.per_node, point.num_bytes) == ("all_reduce", 2, 8192)
    with pytest.raises(SpecError, match=r"all_reduce_perf\.txt"):
        import_profile("nccl-tests", {"log.txt": old}, REQUEST)
    with pytest.raises(SpecError, match="broadcast is not used in training"):
        import_profile("nccl-tests", {"broadcast_perf.txt": old}, REQUEST)


WRONG_ROWS = """\
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
        8192          2048     float     sum      -1    30.00    0.27    0.27       0    29.00    0.27    0.27       0
       16384          4096     float     sum      -1    31.00    0.27    0.27      12    29.00    0.27    0.27       0
       32768          8192     float     sum      -1    32.00    0.27    0.27     N/A    29.00    0.27    0.27   1e+06
       65536         16384     float     sum      -1    33.00    0.27    0.27       0    29.00    0.27    0.27     N/A
"""  # noqa: E501


def test_rows_of_nccl_tests_with_wrong_results_are_failures_of_either_way():
    head = NCCL_HEAD.format("all_reduce")
    profile = import_profile("nccl-tests", {"run.txt": head + WRONG_ROWS}, REQUEST)
    assert [point.num_bytes for point in profile.points] == [8192, 65536]
    first, second = profile.failures
    assert (first.item, second.item) == ("run.txt", "run.txt")
    assert first.detail.startswith("all_reduce of 16384 bytes: 12 results were wrong (#wrong)")
    assert second.detail.startswith("all_reduce of 32768 bytes: 1e+06 results were wrong")
    kept = [line for line in WRONG_ROWS.splitlines(keepends=True) if "8192 " not in line[:20]]
    with pytest.raises(SpecError, match=r"run.txt: all_reduce of 16384 bytes: .* no other row"):
        import_profile("nccl-tests", {"run.txt": head + "".join(kept[:2])}, REQUEST)


def test_wrong_results_are_counted_among_iterations_too():
    columns = "size count type redop root time algbw busbw #wrong i_min i_max i_p99 i_cv%"
    row = "8192 2048 float sum -1 30.00 0.27 0.27 {} 29.0 31.0 31.0 2.0"
    head = NCCL_HEAD.format("all_reduce") + f"# {columns} {columns[26:]}\n"
    for first, second, wrong in ((0, 0, 0), (0, 3, 3), (2, 0, 2)):
        text = f"{head}{row.format(first)} {row.format(second)[26:]}\n8 2 float sum -1 9.0 0 0 0\n"
        profile = import_profile("nccl-tests", {"run.txt": text}, REQUEST)
        written = [failure.detail.split(": ")[1][:1] for failure in profile.failures]
        assert written == ([str(wrong)] if wrong else [])


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("all_reduce", "size count type redop time algbw busbw error"),
        ("all_gather", "size count type time algbw busbw error"),
    ],
)
def test_nccl_tests_before_2_13_name_fewer_columns_and_print_a_difference(name, row):
    values = {"size": 8192, "count": 2048, "type": "float", "redop": "sum", "time": "30.00"}
    line = " ".join(str(values.get(column, "1e-06")) for column in row.split())
    text = f"{NCCL_HEAD.format(name)}# {row}\n{line}\n"
    (point,) = import_profile("nccl-tests", {"run.txt": text}, REQUEST).points
    assert (point.num_bytes, point.time.seconds) == (8192, pytest.approx(30e-6))


def test_the_same_run_of_nccl_tests_given_seven_times_counts_once():
    (name, text), once = *NCCL.items(), import_profile("nccl-tests", NCCL, REQUEST).points
    texts = {f"{number}-{name}": text * (1 + number) for number in range(4)}
    assert import_profile("nccl-tests", texts, REQUEST).points == once
    other = {"second.txt": text.replace("50.25", "60.25")}
    assert len(import_profile("nccl-tests", {**NCCL, **other}, REQUEST).points) == len(once) + 2


@pytest.mark.parametrize("way", ["out_of_place", "in_place"])
def test_rows_of_nccl_tests_json_with_wrong_results_are_failures(way):
    rows = [
        {"size": 4096, "out_of_place": {"time": 1.5, "nwrong": None}, "in_place": {"nwrong": 0.0}},
        {"size": 8192, "out_of_place": {"time": 2.5}, "in_place": {"time": 2.5}},
    ]
    rows[1][way]["nwrong"] = 7.0
    profile = import_profile(
        "nccl-tests", {"a.json": json.dumps(NCCL_JSON | {"results": rows})}, REQUEST
    )
    assert [point.num_bytes for point in profile.points] == [4096]
    (failure,) = profile.failures
    assert failure.detail.startswith("reduce_scatter of 8192 bytes: 7 results were wrong")


def test_nccl_tests_json_keeps_repeats_where_it_has_them():
    profile = import_profile("nccl-tests", {"a.json": json.dumps(NCCL_JSON)}, REQUEST)
    mean, median = profile.points
    assert (mean.operation, mean.ranks, mean.per_node) == ("reduce_scatter", 8, 4)
    assert (mean.time.seconds, mean.time.flags) == (pytest.approx(12.5e-6), ("stated",))
    assert (median.time.seconds, median.time.repeats) == (pytest.approx(20e-6), 3)
    assert median.time.spread_fraction == pytest.approx(1.4826 / 2)
    assert median.time.flags == ()


@pytest.mark.parametrize(
    ("name", "texts", "option"),
    [
        ("metis", METIS, "--model"),
        ("sailor", SAILOR, "--model"),
        ("galvatron", GALVATRON, "--model"),
        ("aceso", {"bert_mbs2_tp1_algo0.csv": ACESO["gpt_6_7B_mbs2_tp1_algo0.csv"]}, "--model"),
    ],
)
def test_a_missing_option_is_named(name, texts, option):
    with pytest.raises(SpecError, match=f"give {option}"):
        import_profile(name, texts, ImportRequest("a10g" if name == "aceso" else "gh200-96gb"))


def test_missing_lengths_formats_and_machines_are_named():
    with pytest.raises(SpecError, match="give --seq-length"):
        import_profile("metis", METIS, ImportRequest("a10g", MODEL))
    with pytest.raises(SpecError, match="give --precision"):
        import_profile("metis", METIS, ImportRequest("a10g", MODEL, 2048))
    alone = {"overlap_coefficient.json": GALVATRON["overlap_coefficient.json"]}
    with pytest.raises(SpecError, match="give --gpus-per-node"):
        import_profile("galvatron", alone, REQUEST)


def test_the_formats_of_other_planners_are_those_of_the_plug_in():
    assert set(IMPORTERS) == set(GOOD)
    assert set(IMPORTERS.plugged()) == set(GOOD) - {"nccl-tests"}


def test_an_unknown_format_and_no_file_are_refused():
    with pytest.raises(CatalogError, match="'nccl-tests'"):
        import_profile("nccl-test", NCCL, REQUEST)
    with pytest.raises(SpecError, match="no file to import"):
        import_profile("metis", {}, REQUEST)


@pytest.mark.parametrize("name", sorted(set(GOOD) - {"nccl-tests", "simumax"}))
def test_a_file_with_another_name_is_refused(name):
    with pytest.raises(SpecError, match=r"notes\.json: not a name .* writes"):
        import_profile(name, {"notes.json": "{}"}, REQUEST)


@pytest.mark.parametrize(
    ("value", "what"),
    [
        ("NaN", "field 'layer_compute_total_ms': NaN is not a number JSON allows"),
        ("Infinity", "field 'layer_compute_total_ms': Infinity is not a number JSON allows"),
        ("1e999", "1e999 is too large"),
        *(
            (one, "execution_time.layer_compute_total_ms")
            for one in ["-1", "0", '"x"', "true", "null", "[]"]
        ),
    ],
)
def test_times_that_are_none_are_refused_with_file_and_key(value, what):
    (name,) = METIS
    with pytest.raises(SpecError, match=rf"tp2_bs4\.json.*{re.escape(what)}"):
        import_profile("metis", {name: METIS[name].replace("12.0", value)}, REQUEST)


@pytest.mark.parametrize("name", GOOD)
def test_damaged_files_never_end_in_a_traceback(name):
    texts, wanted = GOOD[name]
    chance = random.Random(7)
    pieces = ['"', "{", "[", "0", "-1", "nan", ",", "\n", "9" * 400, "x", "\u0663", ""]
    for _ in range(150):
        file = chance.choice(sorted(texts))
        text = texts[file]
        start = chance.randrange(len(text))
        end = start + chance.choice([0, 1, 5, 40, len(text)])
        damaged = text[:start] + chance.choice(pieces) + text[end:]
        try:
            import_profile(name, texts | {file: damaged}, wanted)
        except PlanError as error:
            assert str(error)
