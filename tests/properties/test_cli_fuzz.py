"""Whatever is typed, the command answers or refuses in one line; it is never our bug."""

from pathlib import Path

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.e2e.command import TINY, plan
from tests.grids import number

NUMBERS = st.one_of(
    st.integers(-2, 70).map(str),
    st.sampled_from(["0.5", "nan", "inf", "1e3", "15T", "", "x", "1_0", "٣", "9" * 30, "0x8"]),
    st.builds(lambda zeros, digits: "0" * zeros + "9" * digits, *[st.integers(0, 5000)] * 2),
)
LAYOUT_FIELDS = st.sampled_from(
    [
        *("tp", "pp", "vpp", "cp", "dp", "ep", "etp", "dp_replicate", "zero_stage", "mbs"),
        *("sequence_parallel", "schedule", "recompute", "recompute_modules", "recompute_method"),
        *("recompute_num_layers", "offload", "nonsense"),
    ]
)
TEXT = st.characters(codec="utf-8", exclude_characters="\0")
"""Of a word that a system passes to a command."""
VALUES = st.one_of(
    st.sampled_from(["1", "2", "4", "8"]),
    st.sampled_from(["full", "selective", "none", "block", "uniform", "interleaved", "true"]),
    st.sampled_from(["core_attn", "core_attn+mlp", "moe", "+", "0.5"]),
    NUMBERS,
    st.text(TEXT, max_size=5),
)
PAIRS = st.tuples(LAYOUT_FIELDS, VALUES).map("=".join)
DEGREES = st.sampled_from(["1", "2", "4"])
SENSIBLE = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(("tp", "pp", "cp", "ep", "etp", "mbs", "dp_replicate", "vpp"), DEGREES),
        "zero_stage": st.sampled_from(["0", "1", "2", "3"]),
        "sp": st.sampled_from(["true", "false"]),
        "recompute": st.sampled_from(["none", "selective", "full"]),
        "offload": st.sampled_from(["0", "0.25", "1"]),
    },
)
LAYOUTS = st.one_of(
    SENSIBLE.map(lambda fields: ",".join(map("=".join, fields.items()))),
    st.lists(PAIRS, max_size=6).map(",".join),
    st.text(TEXT, max_size=20),
)
CHOICES = st.one_of(
    SENSIBLE.filter(bool).map(lambda fields: "=".join(next(iter(fields.items())))), PAIRS
)
JOBS = st.fixed_dictionaries(
    {
        "--model": st.sampled_from(["gpt2", "llama3-8b", "qwen3-30b-a3b", "deepseek-v2"]),
        "--cluster": st.one_of(
            st.sampled_from(["1x4:h100-sxm+1x4:a100-sxm-80gb", "2x4:l4", "1x6:mi300x", "3x1:b200"]),
            st.integers(1, 40).map("{}x8:h100-sxm".format),
        ),
        "--global-batch-size": st.sampled_from(["1", "7", "64", "120", "4096"]),
        "--seq-length": st.sampled_from(["1", "1000", "4096", "131072"]),
        "--layout": LAYOUTS,
    },
    optional={
        "--precision": st.sampled_from(["bf16", "fp16", "fp8", "mxfp8", "nvfp4"]),
        "--tokens": st.sampled_from(["1", "15T", "1e12"]),
        "--memory-margin": st.floats(0, 0.99).map(str),
    },
)
"""Jobs without a slip in them."""
SLIPS = st.one_of(
    st.tuples(st.just("--model"), st.sampled_from(["mamba", ".", "/", "gpt-2"]) | st.text(TEXT)),
    st.tuples(st.just("--cluster"), st.sampled_from(["8x8", "1x6:v100", "."]) | st.text(TEXT)),
    st.tuples(
        st.sampled_from(["--global-batch-size", "--seq-length", "--tokens", "--memory-margin"]),
        NUMBERS,
    ),
    st.tuples(st.sampled_from(["--precision", "--runtime", "--runtime-version"]), st.text(TEXT)),
)
WORDS = st.one_of(
    st.sampled_from(["search", "estimate", "export", "catalog", "gpus", "models", "clusters"]),
    st.sampled_from(["schedule", "simulate", "--kind", "all", "1f1b", "--pp", "--from-csv"]),
    st.sampled_from(["doctor", "completion", "bash", "--help", "--json", "--version", "--", "-x"]),
    st.sampled_from(["--template", "--schema", "gpt2", "h100-sxm", "--model", "--output-dir"]),
    st.text(TEXT, max_size=10),
)
REMARKS = ("cluster ", "model ", "--nic: ", "--price: ")
"""How lines begin that say what a short name was taken for."""
PARTS = st.sampled_from(
    [
        *("8", "64", "x", "2x8", ":", "@", "+", " ", "h100", "h100-sxm", "gb200", "gb200-nvl72"),
        *("p5.48xlarge", "ND_H100_v5", "dgx-h100", "v100", "0", "99999999999", "X", "-", "_"),
    ]
)
"""Of clusters as they may be typed."""
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def some(by_day: int, by_night: int) -> settings:
    """So many examples, and as long as they take."""
    return settings(PATIENT, max_examples=number(by_day, by_night))


def answers_or_refuses(*arguments: str) -> None:
    outcome = plan(*arguments)
    assert outcome.code in (0, 2), outcome
    assert "Traceback" not in outcome.err
    if "completion" not in arguments:  # a script of click's
        assert all(len(line) <= 100 for line in outcome.out.splitlines())
    if outcome.code == 2 and not outcome.out and not outcome.err.startswith("Usage: "):  # a group
        *written, refusal = outcome.err.splitlines()
        assert refusal.startswith("plan: error: "), outcome.err
        assert all(line.startswith(REMARKS) for line in written), outcome.err


@some(20, by_night=100)
@given(st.lists(WORDS, max_size=5))
def test_any_words_are_answered_or_refused(words: list[str]):
    answers_or_refuses(*words)


def typed(job: dict[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in job.items()]


@some(30, by_night=150)
@given(JOBS)
def test_any_job_and_layout_are_priced_or_refused(job: dict[str, str]):
    answers_or_refuses("estimate", *typed(job))


@some(20, by_night=100)
@given(JOBS, SLIPS)
def test_any_slip_is_priced_or_refused(job: dict[str, str], slip: tuple[str, str]):
    answers_or_refuses("estimate", *typed({**job, "--layout": "tp=1", slip[0]: slip[1]}))


@some(4, by_night=15)
@given(JOBS)
def test_any_job_is_searched_or_refused(job: dict[str, str]):
    del job["--layout"]
    answers_or_refuses("search", *typed(job), "--time-limit=0.2")


@some(60, by_night=1000)
@given(st.lists(PARTS, max_size=6).map("".join))
def test_any_text_of_a_cluster_is_priced_or_refused(text: str):
    job = ("--model", "Qwen/Qwen3-8B", "--cluster", text, *TINY[4:])
    answers_or_refuses("estimate", *job, "--layout", "tp=1")


MONEY = st.sampled_from(["2", ".", "5", "$", "EUR", " ", "-", "€", "/h", "e9", "nan", "٣"])
SPEEDS = st.sampled_from(["4", "00", "x", "Gb/s", "GB/s", "/node", "/gpu", " ", ".", "0", "-", "٣"])


@some(40, by_night=1000)
@given(st.lists(MONEY, max_size=4).map("".join), st.lists(SPEEDS, max_size=5).map("".join))
def test_any_price_and_network_are_read_or_refused(price: str, nic: str):
    answers_or_refuses("estimate", *TINY, "--layout", "tp=1", f"--price={price}")
    answers_or_refuses("estimate", *TINY, "--layout", "tp=1", f"--nic={nic}")


@some(30, by_night=150)
@given(LAYOUTS)
def test_any_layout_of_a_good_job_is_priced_or_refused(layout: str):
    answers_or_refuses("estimate", *TINY, f"--layout={layout}")


@some(4, by_night=15)
@given(st.lists(CHOICES, max_size=2), st.lists(CHOICES, max_size=2), st.integers(1, 12))
def test_any_choices_are_searched_or_refused(fix: list[str], exclude: list[str], top: int):
    options = [*(f"--fix={text}" for text in fix), *(f"--exclude={text}" for text in exclude)]
    answers_or_refuses("search", *TINY, f"--top={top}", "--time-limit=0.2", *options)


@some(20, by_night=100)
@given(st.binary(max_size=200), st.sampled_from(["config.json", "model.yaml"]))
def test_any_bytes_as_a_model_are_refused(tmp_path_factory, content: bytes, name: str):
    path: Path = tmp_path_factory.getbasetemp() / name
    path.write_bytes(content)
    answers_or_refuses("search", "--model", str(path), *TINY[2:])


YAML = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-1, 9), st.floats(), st.text(max_size=4)),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["groups", "gpu", "num_nodes", "gpus_per_node", "nic", "fabric"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


YAML_WORDS = st.one_of(
    st.sampled_from(
        ["? ", ": ", "- ", "[", "]", "{", "}", ", ", "\n", "\n  ", '""', "'", "&a ", "*a"]
    ),
    st.sampled_from(["!!int ", "!!bool ", "!!float ", "!!timestamp ", "!!set ", "!!binary ", "! "]),
    st.sampled_from(["!!omap ", "!!pairs ", "!!map ", "!!null ", "!x ", "<<", "=", "2001-99-99"]),
    st.sampled_from(["groups", "name", "x", "0x_", "._", "1:0.5", "1" + ":0" * 400 + ".5", "~"]),
)


@some(60, by_night=300)
@given(st.lists(YAML_WORDS, max_size=8).map("".join))
def test_any_yaml_text_as_a_cluster_is_refused_or_read(tmp_path_factory, text: str):
    path: Path = tmp_path_factory.getbasetemp() / "cluster.yaml"
    path.write_text(text)
    job = ("--model", "gpt2", "--cluster", str(path), *TINY[4:], "--layout", "tp=1")
    answers_or_refuses("estimate", *job)


@some(20, by_night=100)
@given(YAML)
def test_any_yaml_as_a_cluster_is_refused_or_read(tmp_path_factory, value: object):
    path: Path = tmp_path_factory.getbasetemp() / "cluster.yaml"
    path.write_text(yaml.safe_dump(value))
    job = ("--model", "gpt2", "--cluster", str(path), *TINY[4:], "--layout", "tp=1")
    answers_or_refuses("estimate", *job)
