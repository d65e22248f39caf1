"""The options of report, info and distill-data."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ldsearch.options.binding import option
from ldsearch.options.shared import (
    DataFiles,
    DecodingOptions,
    MovedData,
    RunFolder,
    Seed,
    SharedStorage,
    Take,
)


@dataclass(frozen=True, kw_only=True)
class HealthOptions:
    """Fine-tuning of a few sub-networks."""

    PANEL = "Health (with --health)"

    count: int = option(32, "Sub-networks to fine-tune, four of each of several costs.")
    steps: int = option(300, "Optimizer steps of each training.", least=1)
    start: Path | None = option(
        None, "Fine-tune from this model's weights too, such as those from before LengthDrop."
    )
    space: str | None = option(
        None, "Shipped search space or YAML file.", shown="what was trained, 16 levels"
    )


@dataclass(frozen=True, kw_only=True)
class ImportanceOptions:
    """Random sub-networks without a block."""

    PANEL = "Importance (with --importance)"

    keep: int | None = option(None, "Blocks of a sub-network that lacks the block.", shown="half", least=1)
    subsets: int = option(20, "Random sub-networks for each block.", least=1)
    stack: str | None = option(None, "encoder or decoder.", shown="the only one")
    objective: str = option("score", "score, or kl: how far outputs are from the full model's.")


@dataclass(frozen=True, kw_only=True)
class Report(ImportanceOptions, HealthOptions, MovedData, Seed, RunFolder):
    """Write a self-contained HTML page on finished searches; loads no model unless told to measure.

    Frontiers with intervals and controls, convergence, kept blocks and lengths, health, importance, costs,
    latency where it was measured, the commands to rebuild it. A page that this command wrote before is
    replaced.

    `--health` fine-tunes sub-networks on their own, four of each of several costs, and gives Kendall's tau
    between inherited and fine-tuned scores at equal cost: near 1 inherited scores rank sub-networks well;
    near 0 choose by a rule, or train the supernet longer. `--importance` compares random sub-networks
    without a block to the same with it. Both are measured once, beside the run, and take a supernet instead
    of a run too; flags that ldsearch does not know go to Hugging Face's TrainingArguments. The same command
    goes on after an interruption.

    **Examples**

    - `ldsearch report runs/sst2-lengthdrop-evolve`
    - `ldsearch report runs/bert-evolve runs/distilbert-evolve --output bert.html`
    - `ldsearch report runs/sst2-lengthdrop-evolve --health --count 40 --steps 500`
    - `ldsearch report runs/multi30k-flexible-depth --importance --stack decoder --subsets 10`
    """

    folders: tuple[Path, ...] = option(
        (), "Finished search runs; with --health or --importance also a supernet.", argument="RUN..."
    )
    output: Path = option(Path("report.html"), "The page; its figures lie beside it as SVG and PNG.")
    health: bool = option(False, "Do inherited scores rank sub-networks as training each would?")
    importance: bool = option(False, "What does leaving each block out cost over random sub-networks?")
    trainer: Mapping[str, Any] = field(default_factory=dict)  # flags of TrainingArguments


@dataclass(frozen=True, kw_only=True)
class Info(Take, SharedStorage):
    """Describe a supernet, a search run or a folder of them; with a budget, choose among what was measured.

    Of a folder of runs the sizes are listed, and what killed processes left there. The choice is among the
    measurements of every search on the same supernet and rows. Loads no model and runs nothing.

    **Examples**

    - `ldsearch info runs/docstrings-lengthdrop`
    - `ldsearch info runs --clean`
    - `ldsearch info runs/docstrings-lengthdrop-evolve`
    - `ldsearch info runs/sst2-lengthdrop-evolve --budget 0.5`
    - `ldsearch info runs/sst2-lengthdrop --at-least full --save full.json`
    - `ldsearch info runs/sst2-lengthdrop-evolve --budget 0.5 --storage journal:/mnt/shared/sst2.log`
    """

    folder: Path = option(..., "A supernet, a search run, or a folder of runs.", argument="FOLDER")
    clean: bool = option(False, "Of a folder of runs: remove what killed processes left, after asking.")
    save: Path | None = option(None, "Write the chosen sub-network here, as --subnet takes it.")


@dataclass(frozen=True, kw_only=True)
class DistillData(DecodingOptions, DataFiles):
    """Decode the training sources with MODEL: sequence-level distillation (Kim & Rush 2016).

    Only rows that a training on the data would train on are decoded. Train on what is written with the
    original --validation, so that scores are against real targets. The same command goes on after an
    interruption.

    **Examples**

    - `ldsearch distill-data runs/teacher --data multi30k/ --out multi30k-distilled.jsonl`
    - `ldsearch distill-data ./my-bart --task summarisation --data papers.jsonl --validation dev.jsonl
      --no-repeat-ngram 3 --max-source 512 --out papers-distilled.jsonl`
    """

    model: str = option(..., "Folder of an encoder-decoder or a supernet, or a hub id.", argument="MODEL")
    data: str = option(..., "File (csv, tsv, json, jsonl, parquet; gz too), folder or hub id.")
    out: Path = option(..., "File to write (.jsonl): a source and its new target a line.")
    task: str = option("translation", "translation or summarisation.")
    beams: int = option(4, "Of beam search; 1 is greedy.")
    min_target: int = option(1, "The fewest tokens of a text.")
    max_source: int = option(128, "Tokens that sources are cut to.")
    batch_size: int = option(32, "Sources decoded at once.", least=1)
