"""The black-box game: shared types, threat, block grids, canvases, scheduler and engine.

Knows no attack, no framework and no run folder. Imports `setsearch` at most.
"""
