"""Room costmodel/measured."""
