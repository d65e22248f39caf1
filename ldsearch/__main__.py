"""``python -m ldsearch``."""

from ldsearch.cli import main

main()
