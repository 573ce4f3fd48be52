"""Room costmodel/blocks/attention."""
