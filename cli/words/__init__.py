"""Numbers and layouts as short text, as answers on the terminal, reports and refusals write them.

Numbers:

seconds: with about four digits; `seconds_like`: with as many as those of a whole.
gib: bytes as GiB, without the unit.
percent: a fraction; `share`: a chosen one, as short as it is; `exact_share`: one to be read back.
parameters, tokens: counts, such as 70.6 B and 15 T; `plural`: a count with its noun.
NEVER: where there is no number.

Layouts:

layout_line: a layout in a line; `last_words`: of its axes that come last there.
zero_text, recompute_text, offloaded_text: its parts in a word.
stages_sentence: what uneven stages mean, in a sentence.
usual_schedule: the schedule of a layout where none is named.
SHORT_MODULES, SHORT_OFFLOADED: modules that are computed again or moved, as tables write them.
no_plan_text: why a search has no plan.
otherwise_text: that a plan was made with other numbers than those of now.
"""

from typing import TYPE_CHECKING

from trainplan.costmodel.base import door

if TYPE_CHECKING:
    from trainplan.cli.words.layouts import (
        SHORT_MODULES,
        SHORT_OFFLOADED,
        last_words,
        layout_line,
        no_plan_text,
        offloaded_text,
        otherwise_text,
        recompute_text,
        stages_sentence,
        usual_schedule,
        zero_text,
    )
    from trainplan.cli.words.numbers import (
        NEVER,
        exact_share,
        gib,
        parameters,
        percent,
        plural,
        seconds,
        seconds_like,
        share,
        tokens,
    )
else:
    __getattr__ = door(
        __name__,
        {
            "layouts": "SHORT_MODULES SHORT_OFFLOADED last_words layout_line no_plan_text "
            "offloaded_text otherwise_text recompute_text stages_sentence usual_schedule zero_text",
            "numbers": "NEVER exact_share gib parameters percent plural seconds seconds_like share "
            "tokens",
        },
    )
