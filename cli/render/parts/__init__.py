"""Room cli/render/parts."""
