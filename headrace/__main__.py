"""`python -m headrace` is the `headrace` command."""

from headrace.command import main

main()
