"""ldsearch distill-data: what a model makes of the training sources, as training data."""

from pathlib import Path
from typing import Annotated, Any

import typer

from ldsearch.cli.console import (
    Beams,
    LengthPenalty,
    MaxTarget,
    MinTarget,
    NoRepeatNgram,
    print_notes,
    quiet_libraries,
    resumable,
    watching,
)


def distill_data(
    model: Annotated[str, typer.Argument(help="Folder of an encoder-decoder or a supernet, or a hub id.")],
    data: Annotated[
        str, typer.Option(help="File (csv, tsv, json, jsonl, parquet; gz too), folder or hub id.")
    ],
    out: Annotated[Path, typer.Option(help="File to write (.jsonl): a source and its new target a line.")],
    task: Annotated[str, typer.Option(help="translation or summarisation.")] = "translation",
    config: Annotated[str | None, typer.Option(help="Configuration of a hub dataset.")] = None,
    validation: Annotated[
        str | None, typer.Option(help="File with the held-out rows, as the training will name it.")
    ] = None,
    keep_overlap: Annotated[
        bool, typer.Option("--keep-overlap", help="Use every row, also those that share text across splits.")
    ] = False,
    text_column: Annotated[str | None, typer.Option(help="Column of the source.")] = None,
    label_column: Annotated[str | None, typer.Option(help="Column of the target.")] = None,
    beams: Beams = 4,
    length_penalty: LengthPenalty = 1.0,
    no_repeat_ngram: NoRepeatNgram = 0,
    min_target: MinTarget = 1,
    max_target: MaxTarget = 128,
    max_source: Annotated[int, typer.Option(help="Tokens that sources are cut to.")] = 128,
    batch_size: Annotated[int, typer.Option(help="Sources decoded at once.")] = 32,
    limit: Annotated[
        int | None, typer.Option(help="Only the first so many sources.", show_default="all")
    ] = None,
) -> dict[str, Any]:
    """Decode the training sources with MODEL: sequence-level distillation (Kim & Rush 2016).

    Only rows that a training on the data would train on are decoded. Train on what is written with the
    original --validation, so that scores are against real targets. The same command goes on after an
    interruption.

    **Examples**

    - `ldsearch distill-data runs/teacher --data multi30k/ --out multi30k-distilled.jsonl`

    - `ldsearch distill-data ./my-bart --task summarisation --data papers.jsonl --validation dev.jsonl
      --no-repeat-ngram 3 --max-source 512 --out papers-distilled.jsonl`
    """
    from ldsearch.commands.distill_data import DistillOptions
    from ldsearch.commands.distill_data import distill_data as distill
    from ldsearch.decoding import Decoding
    from ldsearch.tasks import DataSource
    from ldsearch.tasks.tables import Columns

    quiet_libraries()
    options = DistillOptions(
        model=model,
        source=DataSource(
            data,
            config=config,
            validation=validation,
            columns=Columns(text=text_column, label=label_column),
            keep_overlap=keep_overlap,
            search_rows="half",  # of the training rows all are written anew
        ),
        task=task,
        decoding=Decoding(beams, length_penalty, min_target, max_target, no_repeat_ngram),
        max_source=max_source,
        batch_size=batch_size,
        limit=limit,
    )
    with resumable("run the same command again; nothing decoded is lost"), watching() as watcher:
        watcher.phase("decoding", None)
        found = distill(
            out,
            options,
            lambda done, total: watcher.progress.update(watcher.bar, completed=done, total=total),
        )
    print(f"written: {found.out}: {found.rows} pairs ({options.decoding.describe()}); {found.overlap}")
    notes = []
    if found.blank:
        notes.append(f"{found.blank} targets have no text: training refuses them, raise --min-target")
    if found.cut:
        notes.append(f"{data} has no validation rows of its own: some were cut from it and are not decoded")
    print_notes(notes)
    held_out = validation or "<the original validation file>"
    # Search rows that were cut from the written ones would be scored against the teacher's words.
    flags = f"--task {task} --data {out} --validation {held_out} --search-rows half --model {model}"
    print(f"next: ldsearch train-supernet {flags}")
    return {"data": str(found.out), "rows": found.rows}
