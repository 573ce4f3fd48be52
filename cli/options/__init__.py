"""Room cli/options."""
