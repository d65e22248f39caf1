"""A classifier of your own csv, from Python: train, search, score on rows that chose nothing, export.

    python examples/search_csv.py reviews.csv --model bert-base-uncased --budget 0.4

Arguments that are not listed go to the Trainer. Run again, it goes on where it was interrupted.
"""

import argparse
from pathlib import Path

import torch
from transformers import AutoTokenizer

import ldsearch
from ldsearch.options.binding import read_trainer


def main() -> None:
    """Run the four steps and label one text."""
    parser = argparse.ArgumentParser(description="Arguments that are not listed go to the Trainer.")
    parser.add_argument("data", help="csv with a text and a label column")
    parser.add_argument("--model", required=True, help="hub id, folder or config.json")
    parser.add_argument("--budget", default="0.4", help="share of the full model's MACs, 12ms@batch=8, ...")
    parser.add_argument("--genes", default="depth+lengths", help="what is searched")
    parser.add_argument("--evaluations", type=int, default=100, help="sub-networks measured")
    parser.add_argument("--text", default="Arrived late, and broken.")
    args, rest = parser.parse_known_args()
    name, runs = Path(args.data).stem, Path("runs")
    if not (runs / name / "supernet.json").exists():
        ldsearch.train_supernet(
            data=args.data, model=args.model, layer_drop=(0.2,), trainer=read_trainer(rest), name=name
        )
    chosen = ldsearch.evolve(
        supernet=runs / name,
        genes=args.genes,
        budget=args.budget,
        evaluations=args.evaluations,
        name=f"{name}-search",
    )
    run = ldsearch.Run.open(runs / f"{name}-search")  # tables are data frames
    columns = ["macs_share", "held_out_score", "difference", "difference_low", "difference_high"]
    print(run.frontier[columns].to_string(index=False, float_format="{:.4f}".format))
    held_out = ldsearch.evaluate(folder=run.folder)
    print(f"score {chosen['score']:.4f} on the rows that chose; on others {held_out['difference']}")

    output = Path("exported") / f"{name}-search"
    if not output.exists():
        ldsearch.export_model(folder=run.folder, output=output)
    model, tokenizer = ldsearch.load(output), AutoTokenizer.from_pretrained(output)
    with torch.inference_mode():
        probabilities = model(**tokenizer(args.text, return_tensors="pt")).logits[0].softmax(-1)
    config = getattr(model, "model", model).config  # of one that drops tokens the model is inside
    print(f"{args.text!r}: {config.id2label[int(probabilities.argmax())]} {float(probabilities.max()):.2f}")


if __name__ == "__main__":
    main()
