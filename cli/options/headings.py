"""Headings of a long help page, in the order of a user's questions."""

from collections.abc import Mapping

LONGEST_LIST = 12
"""Options that need no heading."""
OUTPUT = "Output"
"""The last heading, with the help page itself."""
HEADINGS: Mapping[str, str] = {
    "The job": "log settings model tower global_batch_size seq_length lengths packing precision "
    "optimizer state_precision train loss_tokens tokens runtime runtime_version",
    "The machines": "cluster nodes gpus gpu nic power_limit offers profiles reserve_bytes "
    "reserve_host_bytes nproc_per_node nnodes node_rank rdzv_endpoint",
    "Failures, money and energy": "lost saved since_save price mtbf_node restart checkpoint save "
    "spare_nodes repair kg_co2_per_kwh pue",
    "The schedule": "kind synthesise from_csv placement pp vpp num_microbatches "
    "microbatch_group_size sequence_chunks memory_limit split_backward",
    "Its times": "forward input_grad weight_grad p2p stage_times attention_share vocab_forward "
    "vocab_backward offload offload_chunks",
    "What is run": "nproc launcher template stop_command simulate trials budget steps timeout "
    "start_timeout quick only fresh all_links scratch resume dry_run",
    "What may change": "allow islands outer_every outer_dtype outer_overlap outer_fragments "
    "search_options all_nodes take",
    "What is held": "layout runtime_options fix exclude trusted trainer fit_chance fit_p99 "
    "memory_margin strict",
    "The answer and its proof": "objective slack deadline pareto baseline top time_limit workers",
    OUTPUT: "verbose output output_dir write csv trace width print_launch report force as_json",
}
"""Heading -> options of that question, by their names in Python."""
HEADING_OF = {name: heading for heading, names in HEADINGS.items() for name in names.split()}
