"""Gaussian moments and gains of a branch at infinite width, from which analysis.theory is built."""
