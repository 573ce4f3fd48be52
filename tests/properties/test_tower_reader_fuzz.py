"""Whatever a file with a tower says, the answer is a model or an error with a sentence."""

import copy
import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tests.grids import examples
from tests.properties.test_config_reader_fuzz import VALUES, expect_sane, read

TOWERS = json.loads((Path(__file__).parents[1] / "golden" / "towers.json").read_text())
CONFIGS = {name: one["config"] for name, one in TOWERS.items()}
SECTIONS = ("vision_config", "audio_config", "text_config")


@examples(120, by_night=300)
@given(st.data())
def test_a_published_file_with_fields_deleted_or_replaced_gives_a_model_or_a_plan_error(data):
    config = copy.deepcopy(CONFIGS[data.draw(st.sampled_from(sorted(CONFIGS)))])
    for _ in range(data.draw(st.integers(1, 3))):
        inner = [config, *(config[name] for name in SECTIONS if isinstance(config.get(name), dict))]
        section = data.draw(st.sampled_from(inner))
        if not section:
            continue
        field = data.draw(st.sampled_from(sorted(section)))
        if data.draw(st.booleans()):
            del section[field]
        else:
            section[field] = data.draw(VALUES)
    expect_sane(read(config))
