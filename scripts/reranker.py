"""A cross-encoder made faster: MiniLM-L6 on SQuAD's questions against paragraphs of the same article.

Each question has its paragraph and the hardest others of the article by TF-IDF. The articles of
``devsplit_train`` train, but for the last four, whose questions choose; all of ``devsplit_eval`` score. What
was stopped goes on, what is finished is used again. ``times`` is meant where nothing else runs. The parts, in
this order:

    python scripts/reranker.py --data path/to/squad_v1.1 --out results/reranker --part train
    python scripts/reranker.py --data path/to/squad_v1.1 --out results/reranker --part search
    python scripts/reranker.py --data path/to/squad_v1.1 --out results/reranker --part half
    python scripts/reranker.py --data path/to/squad_v1.1 --out results/reranker --part scores
    python scripts/reranker.py --data path/to/squad_v1.1 --out results/reranker --part times
"""

import argparse
import json
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from bench_compress import by_length, compressed
from bench_embeddings import cut_like
from numpy.typing import NDArray
from reranker_rows import columns, prepare
from sst2_minilm_train import minilm

import ldsearch as ld
from ldsearch.bench import Bench
from ldsearch.disk.files import write_json
from ldsearch.export.export import export
from ldsearch.latency.clock import Clock, device_facts
from ldsearch.options import TrainSupernet
from ldsearch.search.controls import dearest
from ldsearch.search.loop import StrategyContext
from ldsearch.search.spaces import search_space
from ldsearch.space.lengths import Shape
from ldsearch.subnet import SUBNET_FILE, Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.folder import load_model
from ldsearch.tasks.metrics import METRICS
from ldsearch.training.recover import train_fixed
from ldsearch.training.train_supernet import train_supernet
from ldsearch.trials.intervals import Interval, Statistics, bootstrap, paired_bootstrap

TOKENS = 192
HALF = (0, 2, 5)  # blocks
TIMED = 24  # questions
MARK = "\0"
RULE = "plain, constant ratio"
METRIC = METRICS["ranking"]["ndcg@10"](1)


def bf16() -> bool:
    """A processor with AVX2 alone emulates it."""
    return torch.cuda.is_available() or torch.backends.cpu.get_cpu_capability() != "AVX2"


def trainer(options: argparse.Namespace, steps: int) -> dict[str, Any]:
    """Arguments of a training, of so many steps of 32 pairs."""
    return {
        "bf16": bf16(),
        "max_steps": steps,
        "learning_rate": options.rate,
        "per_device_train_batch_size": 32,
        "disable_tqdm": "True",
        "save_strategy": "steps",
        "save_steps": max(1, steps // 10),
        "logging_steps": 25,
    }


def full_model(options: argparse.Namespace) -> Path:
    """The fine-tuned cross-encoder."""
    paths, folder = prepare(options), options.runs / f"full-{options.steps}"
    if not (folder / "supernet.json").is_file():
        how = TrainSupernet(
            task="ranking",
            strategy="plain",
            model=str(options.start or minilm()),
            data=str(columns(paths["train"], options.runs)),
            validation=str(columns(paths["own"], options.runs)),
            keep_overlap=True,  # whole articles stand apart
            max_length=TOKENS,
            trainer=trainer(options, options.steps),
        )
        train_supernet(folder, how, note=lambda text: print(text, flush=True), scored=False)
    return folder


def stock_folder(options: argparse.Namespace) -> Path:
    """The full model as others would have saved it, for compress: nothing of its training."""
    place: Path = options.runs / f"stock-{options.steps}"
    if not place.is_dir():
        model, tokenizer = load_model(str(full_model(options)))
        model.save_pretrained(place)
        tokenizer.save_pretrained(place)
    return place


def arms(options: argparse.Namespace) -> dict[str, list[str]]:
    """What compress is told beside a budget, by arm; the same data for all."""
    taught = ["--train", str(options.minutes)]
    return {
        "plain": [],
        "plain, query pinned": ["--pin-query"],
        "taught": taught,
        "taught, query pinned": [*taught, "--pin-query"],
        "taught, four blocks": [*taught, "--blocks", "4"],
    }


def shares_of_macs(options: argparse.Namespace) -> list[str]:
    """The budgets that are shares: a speed-up says nothing of MACs."""
    return [share for share in options.shares if not share.endswith("x")]


def folder_of(options: argparse.Namespace, arm: str, share: str) -> Path:
    """Where the file of an arm at a share lies."""
    place: Path = options.runs / f"{re.sub('[^a-z]+', '-', arm)}-{options.steps}-{share}"
    return place


def searched(options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """What compress says of every arm at every share; each file is kept."""
    # The taught ones train on the rows of the fine-tuning too, and choose by others.
    both = options.runs / "both"
    both.mkdir(exist_ok=True)
    for name, role in (("train", "train"), ("validation", "own")):
        # The fine-tuning's own rows stay where its record says.
        shutil.copy(columns(prepare(options)[role], options.runs), both / f"{name}.jsonl")
    rows = columns(prepare(options)["own"], options.runs)
    found: dict[str, dict[str, Any]] = {}
    for arm in options.arms:
        for share in options.shares:
            kept = folder_of(options, arm, share)
            place = kept.with_name(kept.name.removesuffix(f"-{share}"))
            if not (kept / "said.json").is_file():
                arguments = ["--max-length", str(TOKENS), "--budget", share, *arms(options)[arm]]
                data = both if "taught" in arm else rows
                said, seconds = compressed(stock_folder(options), data, place, arguments)
                shutil.copytree(place / "model", kept, dirs_exist_ok=True)
                write_json(kept / "said.json", {**said, "seconds": round(seconds, 1)})
            found[f"{arm}, {share}"] = json.loads((kept / "said.json").read_text())
            print(arm, share, found[f"{arm}, {share}"]["words"], flush=True)
    return found


def write(supernet: Path, place: Path, subnet: str, runtime: str) -> None:
    """A sub-network as a file of the runtime, compared on a few rows."""
    export(supernet, place, subnet=subnet, format="onnx", runtime=runtime, limit=20)


def ruled(options: argparse.Namespace) -> None:
    """The dearest constant ratio within every share, by the token score that compress fitted."""
    bench = Bench.open(options.runs / f"plain-{options.steps}" / "supernet")
    space = search_space(bench, genes="lengths", widen=True)
    context = StrategyContext(space, bench.macs, shape=Shape.EVEN)
    full = float(bench.macs([bench.full])[0])
    for share in shares_of_macs(options):
        (subnet,) = dearest(context, float(share) * full)
        place = folder_of(options, RULE, share)
        if not (place / "said.json").is_file():
            write(bench.folder, place, subnet.to_json(), options.runtime or "auto")
            point = {"macs": float(bench.macs([subnet])[0]) / full}
            runtime = json.loads((place / SUBNET_FILE).read_text())["runtime"]
            said = {"runtime": runtime, "points": [{}, point], "words": [subnet.describe()]}
            write_json(place / "said.json", said)


def half_folder(options: argparse.Namespace) -> Path:
    """Where half of the blocks are, once they are trained."""
    place: Path = options.runs / f"half-{options.steps}"
    return place


def half(options: argparse.Namespace) -> Path:
    """Half of the blocks, distilled from the full model, as a folder."""
    place = half_folder(options)
    if not place.is_dir():
        subnet, bench = Subnet.of_encoder(HALF), Bench.open(full_model(options))
        trained = train_fixed(
            bench,
            options.runs / f"half-{options.steps}-whole",
            subnet,
            TrainSupernet(trainer=trainer(options, options.half_steps or options.steps)),
        )
        model, tokenizer = load_model(str(trained))
        Supernet(model).materialise(subnet).save_pretrained(place)
        tokenizer.save_pretrained(place)
    return place


def served(folder: Path, runtime: str) -> Path:
    """A whole model as a file of the runtime."""
    place = folder.with_name(f"{folder.name}-{runtime}")
    if not place.is_dir():
        export(folder, place, format="onnx", runtime=runtime, least_agreement=0.9)  # on random tokens
    return place


def served_choice(options: argparse.Namespace, name: str, runtime: str) -> Path:
    """What compress chose at a share, as a file of the runtime: its own, or written again."""
    kept = folder_of(options, *name.rsplit(", ", 1))
    fields = json.loads((kept / SUBNET_FILE).read_text())
    place = kept if fields["runtime"] == runtime else kept.with_name(f"{kept.name}-{runtime}")
    if not place.is_dir():
        run = kept.with_name(kept.name.rpartition("-")[0])
        write(run / "supernet", place, json.dumps(fields["subnet"]), runtime)
    return place


def pairs_of(held: pd.DataFrame) -> list[str]:
    """Every question with each of its documents, as one text with a mark between."""
    rows = zip(held["query"], held["documents"], strict=True)
    return [f"{query}{MARK}{document}" for query, own in rows for document in own]


def ranked(model: Any, tokenizer: Any, held: pd.DataFrame, tokens: int) -> Statistics:
    """nDCG@10 of every held-out question."""

    def paired(texts: Sequence[str], **how: Any) -> Any:
        return tokenizer(*map(list, zip(*(text.split(MARK) for text in texts), strict=True)), **how)

    scores = np.array(
        by_length(lambda inputs: model(**inputs).logits[:, 0].tolist(), paired, pairs_of(held), tokens)
    )
    ends = held["documents"].map(len).cumsum().tolist()
    return METRIC.statistics(np.split(scores, ends[:-1]), list(held["labels"]))


def calls(model: Any, tokenizer: Any, held: pd.DataFrame, tokens: int) -> Callable[[], object]:
    """Answers to some questions one after the other: a batch of its documents each, padded to the longest."""
    batches = [
        tokenizer(
            [row.query] * len(row.documents),
            row.documents,
            return_tensors="pt",
            padding=True,
            truncation=True,
            max_length=tokens,
        )
        for row in held.head(TIMED).itertuples()
    ]

    def run() -> None:
        with torch.inference_mode():
            for inputs in batches:
                model(**inputs)

    return run


def said_of(options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """What compress said of every file that is there."""
    names = [*arms(options), RULE]
    named = {f"{arm}, {share}": folder_of(options, arm, share) for arm in names for share in options.shares}
    paths = {name: folder / "said.json" for name, folder in named.items()}
    return {name: json.loads(path.read_text()) for name, path in paths.items() if path.is_file()}


def models_of(options: argparse.Namespace, held: pd.DataFrame) -> dict[str, tuple[Any, int, float]]:
    """Every model, to how many tokens its inputs are cut, and its share of the MACs; the full one first."""
    compressions = said_of(options)
    runtime = options.runtime or next(iter(compressions.values()))["runtime"]
    stock = stock_folder(options)
    plain, tokenizer = load_model(str(stock))
    whole = ld.load(served(stock, runtime))
    queries, documents = map(list, zip(*(text.split(MARK) for text in pairs_of(held)), strict=True))
    ids = tokenizer(queries, documents, truncation=True, max_length=TOKENS)["input_ids"]
    lengths = np.array([len(own) for own in ids])
    models: dict[str, tuple[Any, int, float]] = {
        f"full, {runtime}": (whole, TOKENS, 1.0),
    }
    if half_folder(options).is_dir():
        halved = ld.load(served(half_folder(options), runtime))
        models[f"half of the blocks, {runtime}"] = halved, TOKENS, 0.5
    for share in shares_of_macs(options):
        cut = cut_like(Supernet(plain), lengths, float(share))
        models[f"full, inputs cut to {cut} tokens, {runtime}"] = (whole, cut, float(share))
    for name, said in compressions.items():
        file = ld.load(served_choice(options, name, runtime))
        models[f"{name}, {runtime}"] = file, TOKENS, said["points"][1]["macs"]
    return models


def scored(options: argparse.Namespace) -> dict[str, Any]:
    """nDCG@10 of every model and of TF-IDF, and the differences to the full one."""
    held = pd.read_json(prepare(options)["held"], lines=True)
    models = models_of(options, held)
    tokenizer = load_model(str(stock_folder(options)))[1]
    first = next(iter(models))
    scores: dict[str, Statistics] = {}
    for name, (model, tokens, _) in models.items():
        path = options.runs / "scores" / f"{name}, {len(held)} questions.json"
        if not path.is_file():
            path.parent.mkdir(exist_ok=True)
            write_json(path, ranked(model, tokenizer, held, tokens).tolist())
        scores[name] = np.array(json.loads(path.read_text()))
    scores["TF-IDF"] = METRIC.statistics(list(held["tf_idf"]), list(held["labels"]))
    rows = []
    for name, own in scores.items():
        row = {"name": name, "ndcg": float(own.mean())}
        row["minus_full"] = asdict(paired_bootstrap(own, scores[first]))
        row["by_article"] = asdict(by_article(own - scores[first], list(held["article"])))
        rows.append({**row, **({"macs": models[name][2]} if name in models else {})})
        print(rows[-1], flush=True)
    gap = paired_bootstrap(scores[first], scores["TF-IDF"])
    return {
        "questions": len(held),
        "articles": held["article"].nunique(),
        "steps": options.steps,
        "rate": options.rate,
        "half_steps": options.half_steps or options.steps,
        "minutes": options.minutes,
        "full_minus_tf_idf": asdict(gap),
        "rows": rows,
        "said": said_of(options),
    }


def timed(options: argparse.Namespace, result: dict[str, Any]) -> dict[str, Any]:
    """With milliseconds a question of every model, taken in turn."""
    held = pd.read_json(prepare(options)["held"], lines=True)
    models = models_of(options, held)
    tokenizer = load_model(str(stock_folder(options)))[1]
    ran = [calls(model, tokenizer, held, tokens) for model, tokens, _ in models.values()]
    rounds = Clock(repeats=5, warmup=1)(ran)
    for name, timing in zip(models, rounds.timings, strict=True):
        row = next(row for row in result["rows"] if row["name"] == name)
        row["ms"] = 1e3 * timing.median / min(TIMED, len(held))
    result["machine"] = device_facts(torch.device("cpu"), torch.float32)
    result["noise"] = rounds.noise.to_dict()
    return result


def by_article(differences: NDArray[np.float64], titles: Sequence[str]) -> Interval:
    """The mean difference, articles resampled whole: what another collection of articles would give."""
    names, place = np.unique(titles, return_inverse=True)
    sums = np.stack([np.bincount(place, differences), np.bincount(place)], axis=1)
    return bootstrap([(1.0, sums / len(names))], lambda means: means[..., 0] / means[..., 1])


def table(result: Mapping[str, Any]) -> str:
    """Every model in a line."""
    head = ["model", "MACs", "nDCG@10", "less the full model, questions resampled", "articles resampled"]
    head += ["ms a question", "times as fast"]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    first = result["rows"][0].get("ms")
    for row in result["rows"]:
        gaps = [
            f"{gap['mean']:+.4f} ({gap['low']:+.4f} to {gap['high']:+.4f})"
            for gap in (row["minus_full"], row["by_article"])
        ]
        times = [f"{row['ms']:.1f}", f"{first / row['ms']:.2f}"] if "ms" in row else ["", ""]
        macs = f"{row['macs']:.2f}" if "macs" in row else ""
        lines.append("| " + " | ".join([row["name"], macs, f"{row['ndcg']:.4f}", *gaps, *times]) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """One part."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with SQuAD")
    parser.add_argument("--out", type=Path, required=True, help="where reranker.json and table.md go")
    parser.add_argument("--runs", type=Path, default=Path("runs/reranker"), help="where models go")
    parser.add_argument(
        "--part", choices=["train", "search", "rule", "half", "scores", "times"], required=True
    )
    parser.add_argument("--from", dest="start", type=Path, help="folder to fine-tune (default: MiniLM-L6)")
    parser.add_argument("--steps", type=int, default=2_500, help="of the fine-tuning, of 32 pairs")
    parser.add_argument("--runtime", help="that serves (default: the fastest that compress found)")
    parser.add_argument("--half-steps", type=int, help="of the half of the blocks (default: as many)")
    parser.add_argument("--rate", type=float, default=1e-4, help="of every training here")
    parser.add_argument("--minutes", type=float, default=40, help="that a taught supernet trains")
    parser.add_argument("--questions", type=int, default=1_500, help="that score")
    parser.add_argument("--rows", type=int, help="questions that train and that choose (default: all)")
    parser.add_argument("--shares", nargs="+", default=["0.35", "0.5", "0.7"], help="of the MACs, or 2x")
    parser.add_argument("--arms", nargs="+", default=["plain", "plain, query pinned"], help="to search")
    options = parser.parse_args()
    path = options.out / "reranker.json"
    if options.part == "train":
        print(json.dumps({"model": str(full_model(options))}))
    elif options.part == "search":
        print(json.dumps({name: said["words"] for name, said in searched(options).items()}))
    elif options.part == "rule":
        ruled(options)
    elif options.part == "half":
        print(json.dumps({"model": str(half(options))}))
    else:
        options.out.mkdir(parents=True, exist_ok=True)
        scores = options.part == "scores"
        result = scored(options) if scores else timed(options, json.loads(path.read_text()))
        write_json(path, result)
        (options.out / "table.md").write_text(table(result), encoding="utf-8")
        print(json.dumps(result))


if __name__ == "__main__":
    main()
