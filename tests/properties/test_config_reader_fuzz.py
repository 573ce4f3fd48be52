"""Whatever the file says, the answer is a model or an error with a sentence."""

from hypothesis import given
from hypothesis import strategies as st

from tests.golden.decoder_counts import recorded
from tests.grids import examples
from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.base import PlanError
from trainplan.costmodel.families.generic_config import DEFAULTS
from trainplan.costmodel.families.reading import model_from_config
from trainplan.costmodel.families.registry import READ_BY_NAME
from trainplan.costmodel.model import params
from trainplan.costmodel.presets.presets import preset_config, preset_names

PRESETS = {name: dict(preset_config(name)) for name in preset_names()}
RECORDED = {one.model_type: one.config for one in recorded()}
FILES = [*PRESETS.values(), *RECORDED.values()]
FIELDS = sorted({key for config in FILES for key in config} | set(DEFAULTS))

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=1, max_value=100_000),
    st.sampled_from([0, -1, 10**12, 10**13, 10**400, -(10**400)]),
    st.floats(),
    st.text(max_size=100),
    st.sampled_from(
        [*sorted(READ_BY_NAME), "yarn", "default", "silu", "full_attention", "sliding_attention"]
    ),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)
CHANGES = st.sampled_from(["delete", "negate", "quote", "any"])


def read(config: dict[str, object]) -> ModelSpec | None:
    """The model, or None where the file is refused with a sentence."""
    try:
        return model_from_config(config, "fuzz")
    except PlanError as error:
        assert 10 < len(str(error)) < 1000
        return None


def expect_sane(model: ModelSpec | None) -> None:
    if model is not None:
        assert 0 < params.num_active_parameters(model) <= params.num_parameters(model)


@examples(80, by_night=200)
@given(st.dictionaries(st.text(max_size=20) | st.sampled_from(FIELDS), VALUES, max_size=8))
def test_any_mapping_gives_a_model_or_a_plan_error(config: dict[str, object]) -> None:
    expect_sane(read(config))


@examples(80, by_night=200)
@given(
    st.sampled_from(sorted(READ_BY_NAME)),
    st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=25),
)
def test_any_fields_under_a_known_model_type_give_a_model_or_a_plan_error(
    model_type: str, config: dict[str, object]
) -> None:
    expect_sane(read({**config, "model_type": model_type}))


@examples(120, by_night=300)
@given(st.data())
def test_a_file_with_fields_deleted_or_replaced_gives_a_model_or_a_plan_error(
    data: st.DataObject,
) -> None:
    config = dict(data.draw(st.sampled_from(FILES)))
    for field in data.draw(st.lists(st.sampled_from(sorted(config)), max_size=3, unique=True)):
        value, change = (
            config[field],
            data.draw(st.sampled_from(["delete", "negate", "quote", "any"])),
        )
        if change == "delete":
            del config[field]
        elif change == "negate" and isinstance(value, int | float):
            config[field] = -value
        elif change == "quote":
            config[field] = str(value)
        else:
            config[field] = data.draw(VALUES)
    expect_sane(read(config))


@examples(40, by_night=100)
@given(
    st.sampled_from([name for name in PRESETS if "rope_scaling" in PRESETS[name]]),
    st.sampled_from(["rope_scaling", "rope_parameters", "layer_types", "mlp_only_layers"]),
    VALUES,
)
def test_any_nested_section_gives_a_model_or_a_plan_error(
    name: str, section: str, value: object
) -> None:
    expect_sane(read({**PRESETS[name], section: value}))
