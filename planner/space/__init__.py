"""The grid of candidates: what is legal, what the user fixed, and in which order choices are made.

`grid` grows nodes, skeletons and layouts out of the axes; a `Choice` is one `--fix` or `--exclude`;
rules are applied as soon as their columns are known and count what they refuse.

allowed: a job whose search tries what some choice needs.
broken_rules: for each row, the rules it breaks.
Choice: a field of the layout held to one value (`--fix`) or kept from it (`--exclude`).
DRIVE_SPACE: name under which rows are counted that fit on the GPUs and not on the drives of a
    node.
FIRST_KNOWN: columns that no level adds.
HOST_MEMORY: as DRIVE_SPACE, of the memory of the host.
legality_rules: what mathematics and the runtime forbid.
MEMORY: name under which rows that do not fit are counted as refused.
memory_policies: every policy of every skeleton without optimizer offload, and each row's
    skeleton.
no_even_stages: refuses all layouts across node groups.
NODE_COLUMNS: columns of a node of the tree, degrees first.
nodes: legal nodes of the whole grid.
parse_choice: read `tp=8`, `recompute=full`, `sequence_parallel=true`, `offload=0.5`, ..
ranks_straddle: leaves layouts of whole pipeline ranks in node groups to a search of their own.
Rows: rows of one level of the tree, with the number of layouts below each.
RuleFilter: applies rules and counts the layouts each refused.
rules_of_grid: rules of layouts whose layers are not split yet.
rules_of_job: `legality_rules` for who has the job alone.
SKELETON_COLUMNS: those, and the columns of a skeleton.
skeletons: legal skeletons of some nodes.
Space: all layouts of a job, legal or not.
stagings_of: a number for each skeleton, equal for those that differ in what is moved alone.
values_outside_grid: a sentence for every `--fix` whose value no layout of the grid has, with
    those it tries.
VARIANT_DEGREES: layouts equal in these are variants of one answer.
"""

from trainplan.planner.space.choices import (
    DRIVE_SPACE,
    HOST_MEMORY,
    MEMORY,
    Choice,
    allowed,
    broken_rules,
    legality_rules,
    no_even_stages,
    parse_choice,
    ranks_straddle,
    rules_of_grid,
    rules_of_job,
)
from trainplan.planner.space.grid import (
    FIRST_KNOWN,
    NODE_COLUMNS,
    SKELETON_COLUMNS,
    VARIANT_DEGREES,
    Rows,
    RuleFilter,
    Space,
    memory_policies,
    nodes,
    skeletons,
    stagings_of,
    values_outside_grid,
)
