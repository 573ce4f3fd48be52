"""Room costmodel/validate/cases."""
