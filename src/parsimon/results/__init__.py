"""What came out of attacks, as values: outcomes summarised, compared, tested and set in tables.

Knows no run folder and no model. Imports `core` at most.
"""
