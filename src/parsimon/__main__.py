"""`python -m parsimon` is the command `parsimon`."""

from parsimon.cli import main

main()
