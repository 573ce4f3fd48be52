"""Room costmodel/base."""
