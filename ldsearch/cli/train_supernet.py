"""ldsearch train-supernet: train once, so that every depth and length works."""

from pathlib import Path
from typing import Annotated

import typer

from ldsearch.cli.console import Name, Runs, Seed, quiet_libraries, resumable


def train_supernet(
    context: typer.Context,
    task: Annotated[
        str,
        typer.Option(help="classification, regression, multi-label, tokens, questions or masked."),
    ] = "classification",
    data: Annotated[
        str,
        typer.Option(help="File (csv, tsv, json, jsonl, parquet; gz too), folder, hub id, or docstrings."),
    ] = "docstrings",
    config: Annotated[str | None, typer.Option(help="Configuration of a hub dataset.")] = None,
    validation: Annotated[
        str | None, typer.Option(help="File with rows to search and report on: halves, without a test split.")
    ] = None,
    keep_overlap: Annotated[
        bool,
        typer.Option("--keep-overlap", help="Use every row, also those that share text across splits."),
    ] = False,
    metric: Annotated[
        str | None,
        typer.Option(
            help="Score: accuracy, f1, mcc, pearson, ... as the task has them.", show_default="the task's own"
        ),
    ] = None,
    stride: Annotated[
        int, typer.Option(help="Tokens that two windows of a long context share (questions).")
    ] = 128,
    text_column: Annotated[str | None, typer.Option(help="Column of the text.")] = None,
    pair_column: Annotated[str | None, typer.Option(help="Column of the second text of a pair.")] = None,
    label_column: Annotated[str | None, typer.Option(help="Column of the label.")] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="Hub id, folder, or a config.json to start from scratch.",
            show_default="a 6-block BERT from scratch",
        ),
    ] = None,
    strategy: Annotated[str, typer.Option(help="plain, layerdrop or lengthdrop.")] = "lengthdrop",
    max_length: Annotated[
        int | None, typer.Option(help="Tokens that inputs are cut to.", show_default="64 or 128")
    ] = None,
    drop_bound: Annotated[
        float | None, typer.Option(help="LengthDrop bound p.", show_default="by depth: 0.36 for 6 blocks")
    ] = None,
    layer_drop: Annotated[
        str | None,
        typer.Option(help="LayerDrop probability, or one per block: 0,0.1,0.2.", show_default="0.2"),
    ] = None,
    layer_drop_schedule: Annotated[
        str, typer.Option(help="constant, or linear: rising to --layer-drop at the last block.")
    ] = "constant",
    target_layers: Annotated[
        int | None, typer.Option(help="Blocks that run on average, instead of --layer-drop.")
    ] = None,
    min_layers: Annotated[int, typer.Option(help="The fewest blocks that run.")] = 0,
    drop_groups: Annotated[
        str,
        typer.Option(help="What --strategy layerdrop drops: layer, sublayer, head, ffn, head+layer, ..."),
    ] = "layer",
    sandwich: Annotated[
        str,
        typer.Option(help="LengthDrop's sub-networks see all of a batch (paper) or parts of it (shares)."),
    ] = "paper",
    plain_share: Annotated[
        float | None,
        typer.Option(
            help="Share of a LengthDrop training that trains the full model alone first.",
            show_default="0.4 for a new head, 0 for a fine-tuned classifier",
        ),
    ] = None,
    teacher: Annotated[
        str,
        typer.Option(help="LengthDrop distils from the full pass (in-place), a model's folder, or none."),
    ] = "in-place",
    parity: Annotated[bool, typer.Option("--parity", help="Follow the papers' reference code.")] = False,
    name: Name = None,
    runs: Runs = Path("runs"),
    seed: Seed = 0,
) -> None:
    """Train a supernet. Flags that ldsearch does not know go to Hugging Face's TrainingArguments.

    An interrupted training goes on from its last checkpoint when the same command is run again.

    **Examples**

    - `ldsearch train-supernet`

    - `ldsearch train-supernet --data reviews.csv --model bert-base-uncased --bf16 --num_train_epochs 5`

    - `ldsearch train-supernet --task questions --data train.jsonl --validation dev.jsonl --model ./my-bert`

    - `ldsearch train-supernet --data nyu-mll/glue --config sst2 --model ./my-finetuned-bert --name sst2`
    """
    from ldsearch.tasks.tables import Columns
    from ldsearch.training.rates import parse
    from ldsearch.workflows.deliver import info
    from ldsearch.workflows.options import TrainOptions
    from ldsearch.workflows.train import train_supernet as train

    quiet_libraries()
    options = TrainOptions(
        task=task,
        metric=metric,
        stride=stride,
        teacher=teacher,
        data=data,
        config=config,
        validation=validation,
        columns=Columns(text_column, pair_column, label_column),
        keep_overlap=keep_overlap,
        model=model,
        strategy=strategy,
        reference=max_length,
        drop_bound=drop_bound,
        layer_drop=None if layer_drop is None else parse(layer_drop),
        layer_drop_schedule=layer_drop_schedule,
        target_layers=target_layers,
        min_layers=min_layers,
        drop_groups=drop_groups,
        sandwich=sandwich,
        plain_share=plain_share,
        parity=parity,
        seed=seed,
        trainer=tuple(context.args),
    )
    stem = Path(data).name.split(".")[0] or "supernet"
    with resumable("run the same command again to go on from the last checkpoint"):
        folder = train(runs / (name or f"{stem}-{strategy}"), options)
    facts = info(folder)
    print(f"splits: {facts['splits']}; {facts['overlap']}")
    hint = _NEXT.get(strategy, "evaluate {folder} --subnet full")
    print(f"supernet {folder}: full model {facts['metrics']}; next: ldsearch {hint.format(folder=folder)}")


_NEXT = {
    "lengthdrop": "evolve --supernet {folder} --budget 0.4",
    "layerdrop": "select --supernet {folder} --strategy every-other",
}
