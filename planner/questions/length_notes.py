"""Notes on sequences of unequal length: what rows hold, and how they are priced."""

from collections.abc import Iterator

from trainplan.costmodel.blocks import packed_rows
from trainplan.costmodel.candidates import Context
from trainplan.costmodel.lengths import mean_length, padding_fraction, rows_of


def length_notes(on: Context) -> Iterator[str]:
    """One sentence each; none where all sequences have one length."""
    training = on.job.training
    if training.lengths is None:
        return
    padding = padding_fraction(training)
    yield (
        f"tokens/s and MFU count sequences alone: {padding:.1%} of the tokens of a row are padding"
    )
    if training.packing == "none":
        yield (
            f"each sequence, {mean_length(training):,.0f} tokens in the mean, is computed as a row "
            f"of {training.seq_length:,}: --packing greedy fills rows"
        )
        return
    whole = rows_of(training, 0.0, 0)
    assert whole is not None
    yield (
        f"a batch is {training.global_batch_size:,} rows of {whole.sequences:,.1f} sequences in "
        f"the mean, packed {training.packing}: the data pipeline has to pack so"
    )
    if packed_rows(on) is None:
        yield (
            "the unfused attention core computes a row as one sequence: packing saves padding, no "
            "attention"
        )
