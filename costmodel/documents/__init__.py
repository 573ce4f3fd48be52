"""Documents of evidence: measured runs, published runs, calibrations, constants, trials."""
