"""The version of parsimon."""

__version__ = "0.3.0"
