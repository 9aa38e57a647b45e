"""Results as values: outcomes, summaries, statistics and tables. Imports `core` at most; knows no run folder."""
