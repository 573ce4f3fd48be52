"""How well the estimate agrees with runs that other people measured."""
