"""Options we write are options the runtime knows."""

import textwrap

import pytest

from tests import megatron_jobs as cases
from trainplan.costmodel.layout.layout import OffloadSpec
from trainplan.planner.launch.config import Argument, LaunchConfig
from trainplan.planner.runtimes import EXPORTERS
from trainplan.planner.runtimes.compare import (
    flags_in_sources,
    missing_flags,
    recorded_flags,
    unknown_flags,
)

JOBS = {
    "dense": {"tp": 2, "pp": 2, "sequence_parallel": True},
    "uneven": {"pp": 4, "vpp": 3, "schedule": "interleaved"},
    "context": {"cp": 2, "tp": 2, "sequence_parallel": True},
    "fsdp": {"zero_stage": 3, "dp_replicate": 2},
    "offload": {"offload": OffloadSpec(optimizer=0.5)},
    "activations": {"offload_modules": ("qkv_linear", "core_attn", "attn_proj")},
    "full": {"recompute": "full", "recompute_method": "uniform", "recompute_num_layers": 1},
    "selective": {"recompute": "selective", "recompute_modules": ("core_attn",)},
}


@pytest.mark.parametrize("precision", ["bf16", "fp16", "fp8", "mxfp8", "nvfp4"])
@pytest.mark.parametrize("model", [cases.DENSE, cases.GPT3, cases.MIXTRAL, cases.DEEPSEEK])
@pytest.mark.parametrize("job", JOBS)
def test_every_option_written_is_recorded(job, model, precision):
    config = cases.export(model, training={"precision": precision}, **JOBS[job])
    assert missing_flags(config, recorded_flags(config.runtime)) == ()


@pytest.mark.parametrize("runtime", EXPORTERS)
def test_every_exporter_has_a_recorded_list_and_names_itself(runtime):
    assert recorded_flags(runtime)
    assert EXPORTERS[runtime].runtime == runtime


def test_an_unknown_option_is_reported_once():
    config = cases.export()
    extra = Argument("--no-such-option", (), "model")
    changed = LaunchConfig(
        **{name: getattr(config, name) for name in config.__slots__ if name != "arguments"},
        arguments=(*config.arguments, extra, extra),
    )
    assert missing_flags(changed, recorded_flags(config.runtime)) == ("--no-such-option",)


def test_options_are_found_where_a_parser_adds_them():
    text = textwrap.dedent(
        """
        def add(parser):
            group = parser.add_argument_group(title="--not-this")
            group.add_argument("--first", "-f", "--alias", help="--nor-this")
            group.add_argument("--on", action=argparse.BooleanOptionalAction)
        """
    )
    assert flags_in_sources((text,)) == {"--first", "--alias", "--on", "--no-on"}


def test_options_are_generated_from_the_fields_of_configuration_classes():
    parser = textwrap.dedent(
        """
        def add(parser):
            exclude = ["hidden"]
            ArgumentGroupFactory(Config, exclude=exclude).build_group(parser, "title")
            factory = ArgumentGroupFactory(Other, exclude=["skipped"])
        """
    )
    classes = textwrap.dedent(
        """
        class Base:
            from_base: int = 1
        class Config(Base):
            plain_name: int = 1
            hidden: int = 2
            off_switch: bool = False
            on_switch: bool = True
            derived: int = field(init=False)
            constant: ClassVar[int] = 3
            renamed: str = field(default="", metadata={"argparse_meta": {"arg_names": ["--new"]}})
        class Other:
            skipped: int = 1
            on_field: bool = field(default=True)
        class Unused:
            unused: int = 1
        """
    )
    assert flags_in_sources((parser, classes)) == {
        "--from-base",
        "--plain-name",
        "--off-switch",
        "--no-on-switch",
        "--disable-on-switch",
        "--new",
        "--no-on-field",
        "--disable-on-field",
    }


def test_keys_of_sections_are_options_and_so_are_words_compared_with():
    trainer = textwrap.dedent(
        """
        class Trainer:
            class Config(Base.Config):
                training: TrainingConfig = field(default_factory=TrainingConfig)
                seed: int = 1
        class TrainingConfig:
            steps: int = 10
        """
    )
    manager = textwrap.dedent(
        """
        def load(arg):
            if arg == "--module":
                return "--not-this"
        """
    )
    assert flags_in_sources((trainer, manager)) == {
        "--training",
        "--training.steps",
        "--seed",
        "--module",
    }


def test_keys_that_files_set_are_compared_too():
    config = cases.export()
    keys = (("no.such_key", "1"),)
    changed = LaunchConfig(
        **{name: getattr(config, name) for name in config.__slots__ if name != "keys"}, keys=keys
    )
    assert missing_flags(changed, recorded_flags(config.runtime)) == ("--no.such_key",)


def test_keys_of_a_json_are_words_of_the_sources():
    classes = "class Config:\n    stage: int = 0\n    overlap_comm: bool = True\n"
    constants = 'ZERO = "zero_optimization"\nparser.add_argument("--deepspeed_config")\n'
    emitted = (
        "--deepspeed_config",
        "--gradient_checkpointing",  # of the user's script
        "--zero_optimization.stage",
        "--zero_optimization.stages",
    )
    found = unknown_flags("deepspeed", emitted, (classes, constants))
    assert found == ["--zero_optimization.stages"]


def test_other_options_have_to_be_defined_as_they_are_written():
    text = 'parser.add_argument("--known")\nTEXT = "unknown"\n'
    assert unknown_flags("megatron-lm", ("--known", "--unknown"), (text,)) == ["--unknown"]
