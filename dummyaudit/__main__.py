"""`python -m dummyaudit`."""

from dummyaudit.cli.main import main

main()
