"""Nouns: frozen descriptions of model, training, cluster and layout. No formulas live here."""
