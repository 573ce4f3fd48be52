"""Room costmodel/machine."""
