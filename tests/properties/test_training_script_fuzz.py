"""Whatever a configuration says, what is read of it is a reading: problems, never a traceback."""

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.grids import examples
from tests.training_scripts import launch, word
from trainplan.costmodel.presets.presets import preset
from trainplan.planner.runtimes import READERS, Request
from trainplan.planner.runtimes.compare import recorded_flags
from trainplan.planner.shell import Launch

MODEL = preset("llama3.2-1b")
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 64),
    st.sampled_from([10**12, 10**400, -(10**30), 0.5, 1e300, "auto", "8", "cpu", "FSDP", "no"]),
    st.text(max_size=8),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2)
    ),
    max_leaves=3,
)


def nested(runtime):
    """Mappings of known keys, some of them with sections, and of keys nobody knows."""
    names = [flag.removeprefix("--") for flag in recorded_flags(runtime)]
    sections = {name.partition(".")[0] for name in names if "." in name}
    inner = {
        section: st.dictionaries(
            st.sampled_from(sorted(n.partition(".")[2] for n in names if n.startswith(section)))
            | st.text(max_size=4),
            VALUES,
            max_size=6,
        )
        for section in sections
    }
    plain = st.dictionaries(st.sampled_from(sorted(names)) | st.text(max_size=4), VALUES)
    stated = st.fixed_dictionaries({}, optional=inner)
    return st.builds(lambda a, b: {**a, **b}, plain, stated)


@pytest.mark.parametrize(
    ("runtime", "name", "write"),
    [("deepspeed", "c.json", json.dumps), ("accelerate", "c.yaml", yaml.safe_dump)],
)
def test_any_configuration_is_read(runtime, name, write):
    reader = next(one for one in READERS if one.runtime == runtime)

    @examples(25, by_night=60)
    @given(nested(runtime), st.sampled_from([None, 8]))
    def holds(config, ranks):
        if runtime == "accelerate":
            config.setdefault("distributed_type", "FSDP")
        wanted = Request(model=MODEL, seq_length=1024, text_of={name: write(config)}.get)
        alone = Launch("file", word(name), is_module=False, arguments=(), environment={})
        options = {"deepspeed": {}, "accelerate": {"starter_arguments": ("--config_file", name)}}
        named = launch("--deepspeed_config", name, starter=runtime, nodes=None, gpus=ranks,
                       **options[runtime])  # fmt: skip
        for one in (alone, named):
            reading = reader.read(one, wanted)
            assert reading.problems or reading.job
            assert all(0 < len(problem.says) < 1000 for problem in reading.problems)

    holds()
