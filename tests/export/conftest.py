"""The command line, and a place with a finished search, as the commands' own tests have them."""

from tests.cli.conftest import ldsearch, wild, wild_place

__all__ = ["ldsearch", "wild", "wild_place"]
