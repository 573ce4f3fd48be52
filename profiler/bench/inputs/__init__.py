"""What is measured: shapes of a model's operations, groups of ranks, tensors to work on."""
