"""The figures: tables in, a matplotlib figure out. One module a figure or family of them; analysis.figures writes them."""
