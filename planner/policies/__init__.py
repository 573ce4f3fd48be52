"""What layers recompute, and how much of a layout waits off the GPUs: no more than must.

allows_any_split: rows whose layers may be split freely, with bounds for every split.
DRIVES_FULL: instead of a fraction, where the drives of a node have no room.
Fractions: a range of fractions of the optimizer, multiples of a step, or one alone.
fractions_of: all fractions of a runtime, in ranges between which some rule may differ, smallest
    first.
fractions_of_splits: those of layouts whose layers may be split freely.
has_longer_passes: which rows that `takes_longer` than `one` may have other passes, and hide other
    traffic.
HOST_FULL: instead of a fraction, where the host has no room.
in_parts: ranges in shorter ones, whose ends bound what is between more closely.
largest_fraction: largest fraction that rows may offload by some rules.
least_offload: least fraction with which layouts fit that offload nothing here.
legal_offloads: which rows may offload fractions of each range, shape (range, row), and what
    others break.
most_within: the largest fraction of the range of each of some.
names_modules: rows whose selective recomputation names what is recomputed.
NO_ROOM: instead of a fraction, where the GPUs have no room with any.
paths_bound: rows of which a path through their ops bounds every split.
POLICY_COLUMNS: of a table: what is recomputed, and which modules wait on the host.
policy_columns: rows `POLICY_COLUMNS` of every policy, for stages of up to `largest` layers.
range_from: the rest of the range of a fraction.
recompute_allows_any_split: rows whose recomputation the runtime has options for, however their
    layers are split.
takes_longer: rows that recompute and offload at least what `one` does, all else equal.
with_fraction: all rows with a fraction of the optimizer offloaded.
with_least_of: all rows with the least fraction of a range with which each fits, or its largest.
with_least_offload: as `with_most_offload`, with the smallest fractions.
with_most_offload: all rows with the largest fraction of every range, one range after the other.
"""

from trainplan.planner.policies.offload import (
    DRIVES_FULL,
    HOST_FULL,
    NO_ROOM,
    Fractions,
    fractions_of,
    fractions_of_splits,
    in_parts,
    largest_fraction,
    least_offload,
    legal_offloads,
    most_within,
    range_from,
    with_fraction,
    with_least_of,
    with_least_offload,
    with_most_offload,
)
from trainplan.planner.policies.recompute import (
    POLICY_COLUMNS,
    allows_any_split,
    has_longer_passes,
    names_modules,
    paths_bound,
    policy_columns,
    recompute_allows_any_split,
    takes_longer,
)
