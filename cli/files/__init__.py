"""Room cli/files."""
