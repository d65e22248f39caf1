"""The options of every verb, each written once: for the command line, for Python, and for the run's record.

A field is an option: its name, type, default and help; a class with ``PANEL`` names the heading that its
options stand under in ``--help``. ``cli.py`` binds the classes to the command line;
``ldsearch.evolve(budget="0.4")`` takes the same names; a run stores them and ``flags`` prints them again.
Nothing heavy is imported here, so that ``--help`` answers at once.
"""

from ldsearch.options.reading import DistillData, HealthOptions, ImportanceOptions, Info, Report
from ldsearch.options.search import Compress, Evolve, SearchOptions
from ldsearch.options.serving import Compare, Evaluate, Export, Profile
from ldsearch.options.shared import (
    DataFiles,
    DecodingOptions,
    MovedData,
    NamedSubnet,
    RunFolder,
    Seed,
    SharedStorage,
    Take,
)
from ldsearch.options.training import (
    PARITY,
    FlexibleOptions,
    LayerDropOptions,
    LengthDropOptions,
    TrainData,
    TrainSupernet,
)
from ldsearch.options.verbs import VERBS, flag_of, flags, panel_of

__all__ = [
    "PARITY",
    "VERBS",
    "Compare",
    "Compress",
    "DataFiles",
    "DecodingOptions",
    "DistillData",
    "Evaluate",
    "Evolve",
    "Export",
    "FlexibleOptions",
    "HealthOptions",
    "ImportanceOptions",
    "Info",
    "LayerDropOptions",
    "LengthDropOptions",
    "MovedData",
    "NamedSubnet",
    "Profile",
    "Report",
    "RunFolder",
    "SearchOptions",
    "Seed",
    "SharedStorage",
    "Take",
    "TrainData",
    "TrainSupernet",
    "flag_of",
    "flags",
    "panel_of",
]
