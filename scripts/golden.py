"""Golden tables: what is proposed, drawn, trained, scored and printed, from seeds alone.

    python scripts/golden.py make --out runs/golden
    python scripts/golden.py compare results/golden runs/golden

A rebuild of the package must leave them as they are, or say which row changed and why. All data are made up
here and everything runs on one thread. A table that exists is kept: delete it to make it again. The last
line is one JSON object.
"""

import argparse
import csv
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from golden_library import passes, proposals, scores

# Logged losses have four digits. Scores and costs are equal but for the processor's rounding.
LOSS, NUMBER = 2e-4, 1e-5
# So many that the tiny models learn something: scores of untrained ones are all alike.
STEPS = 150
FLAGS = ("--max_steps", STEPS, "--learning_rate", 5e-3, "--logging_steps", 1, "--disable_tqdm", "True")
FLAGS += ("--per_device_train_batch_size", 32, "--bf16", "False")  # on every processor
SIZES = {"hidden_size": 16, "num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 32}
CONFIGS = {
    "bert": {"model_type": "bert", "max_position_embeddings": 64, **SIZES},
    "gpt2": {"model_type": "gpt2", "n_embd": 16, "n_layer": 4, "n_head": 2, "n_positions": 64},
    "bart": {
        "model_type": "bart",
        "d_model": 16,
        "encoder_layers": 4,
        "decoder_layers": 4,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "encoder_ffn_dim": 32,
        "decoder_ffn_dim": 32,
        "max_position_embeddings": 64,
    },
}
REVIEWS = ("--data", "reviews.csv", "--model", "bert.json", "--max-length", 32)
PAIRS = ("--task", "translation", "--data", "pairs.csv", "--model", "bart.json", "--max-length", 32)
TEXT = ("--task", "causal", "--data", "text.txt", "--model", "gpt2.json", "--max-length", 32)
COLUMN = ("--token-score", "column")  # the default of the time
# Trainings by name: their options, written out. Later ones may start from earlier ones.
TRAININGS: dict[str, tuple[object, ...]] = {
    "plain": (*REVIEWS, "--strategy", "plain"),
    "layerdrop": (*REVIEWS, "--strategy", "layerdrop", "--layer-drop", 0.3),
    "layerdrop-linear": (
        *(*REVIEWS, "--strategy", "layerdrop", "--layer-drop", 0.5),
        *("--layer-drop-schedule", "linear", "--min-layers", 2),
    ),
    "layerdrop-target": (*REVIEWS, "--strategy", "layerdrop", "--target-layers", 2),
    "layerdrop-groups": (*REVIEWS, "--strategy", "layerdrop", "--drop-groups", "head+ffn+layer"),
    "layerdrop-parity": (*REVIEWS, "--strategy", "layerdrop", "--layer-drop", 0.3, "--parity"),
    "lengthdrop": (
        *(*REVIEWS, "--strategy", "lengthdrop", "--drop-bound", 0.4, "--plain-share", 0.3, *COLUMN),
    ),
    "lengthdrop-shares": (
        *(*REVIEWS, "--strategy", "lengthdrop", "--drop-bound", 0.4, "--sandwich", "shares"),
        *("--plain-share", 0.0, "--token-score", "power"),
    ),
    "lengthdrop-taught": (
        *(*REVIEWS[:2], "--model", "models/plain", "--max-length", 32, "--strategy", "lengthdrop"),
        *("--teacher", "models/plain", "--label-share", 0.5, "--state-weight", 1.0, "--plain-share", 0.0),
        *("--drop-bound", 0.5, "--layer-drop", "0,0.4,0,0.4", *COLUMN),
    ),
    "lengthdrop-parity": (*REVIEWS, "--strategy", "lengthdrop", "--parity", "--drop-bound", 0.4),
    "causal": (*TEXT, "--strategy", "layerdrop", "--layer-drop", 0.3),
    "flexible": (*PAIRS, "--strategy", "flexible-depth"),
    "flexible-sampled": (
        *(*PAIRS, "--strategy", "flexible-depth", "--assignment", "seq", "--encoder-tasks", 2),
        *("--decoder-tasks", 1, "--always-full", "--reduction", "mean"),
    ),
    "flexible-lengths": (*PAIRS, "--strategy", "flexible-depth", "--drop-bound", 0.3, *COLUMN),
}
# Command lines behind the trainings, in order; the keys are those of the tables in results/golden.
BUDGET = ("--budget", 0.6)
LENGTHS = ("--genes", "lengths", "--name", "lengthdrop-evolve")  # the default of the time
COMMANDS: dict[str, tuple[object, ...]] = {
    "info": ("info", "models/lengthdrop"),
    "evolve": ("evolve", "--supernet", "models/lengthdrop", *BUDGET, "--evaluations", 40, *LENGTHS),
    "evolve-again": (
        *("evolve", "--supernet", "models/lengthdrop", "--budget", 0.8, "--evaluations", 40, *LENGTHS),
    ),
    "evolve-nsga-joint": (
        *("evolve", "--supernet", "models/lengthdrop-taught", *BUDGET, "--evaluations", 40),
        *("--strategy", "nsga", "--genes", "depth+lengths", "--seed", 3),
    ),
    "evolve-greedy-kl": (
        *("evolve", "--supernet", "models/lengthdrop", "--strategy", "greedy", "--objective", "kl"),
        *(*BUDGET, "--evaluations", 40, "--genes", "lengths", "--name", "lengthdrop-greedy"),
    ),
    "evolve-at-least": (
        *("evolve", "--supernet", "models/layerdrop", "--at-least", "full", "--evaluations", 15),
        *("--genes", "depth"),
    ),
    **{
        f"select-{rule}": ("evolve", "--strategy", rule, "--supernet", "models/layerdrop", "--keep", 2)
        for rule in ("every-other", "chunk-middle", "validation", "beam", "swaps", "learned", "influence")
    },
    "select-constant-ratio": (
        *("evolve", "--strategy", "constant-ratio", "--supernet", "models/lengthdrop", *BUDGET),
    ),
    "select-assignment": ("evolve", "--strategy", "assignment", "--supernet", "models/flexible"),
    "grid": ("evaluate", "models/flexible", "--all-depths"),
    "evaluate": ("evaluate", "models/lengthdrop", "--subnet", "full", "--split", "report"),
    "pareto": ("info", "runs/lengthdrop-evolve", "--budget", 0.7),
    "compare": (
        *(
            "compare",
            "--supernet",
            "models/layerdrop",
            "--strategy",
            "every-other",
            "--strategy",
            "nsga:depth",
        ),
        *("--budget", "0.5,0.75", "--evaluations", 12, "--seeds", 2),
    ),
    "bad-budget": ("evolve", "--supernet", "models/lengthdrop", "--budget", "0.4x"),
    "bad-supernet": ("evolve", "--supernet", "models/none"),
    "bad-strategy": ("evolve", "--strategy", "best", "--supernet", "models/layerdrop"),
}
# What differs between two runs of the same code.
VOLATILE = {"seconds", "fingerprint", "train_runtime", "date", "time"}


def write_data(folder: Path) -> None:
    """Rows whose label is the majority of two kinds of words, one in ten wrong; pairs; running text."""
    rng = np.random.default_rng(0)

    def words(count: int, kinds: Sequence[str]) -> list[str]:
        return [f"{kinds[int(rng.integers(len(kinds)))]}{int(rng.integers(12))}" for _ in range(count)]

    rows: dict[str, int] = {}
    while len(rows) < 900:
        found = words(int(rng.integers(5, 25)), ("good", "bad", "so", "and"))
        good, bad = (sum(word.startswith(kind) for word in found) for kind in ("good", "bad"))
        if good != bad:
            rows[" ".join(found)] = int((good > bad) != (rng.random() < 0.1))
    write_csv(folder / "reviews.csv", ("text", "label"), rows.items())
    sources = dict.fromkeys(" ".join(words(int(rng.integers(4, 12)), ("a", "b"))) for _ in range(400))
    write_csv(
        folder / "pairs.csv",
        ("source", "target"),
        ((source, " ".join(reversed(source.upper().split()))) for source in sources),
    )
    lines = (" ".join(words(int(rng.integers(6, 20)), ("a", "b", "c"))) for _ in range(600))
    (folder / "text.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for name, config in CONFIGS.items():
        (folder / f"{name}.json").write_text(json.dumps(config), encoding="utf-8")


def write_csv(path: Path, header: Sequence[str], rows: Any) -> None:
    """One file with a header."""
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])


def ldsearch(arguments: Sequence[object], folder: Path, json_only: bool = False) -> tuple[int, str, str]:
    """Exit code, output and errors of a command line, run in the folder on one thread."""
    start = "from ldsearch.cli import main; main()"
    command = [sys.executable, "-c", start, *(["--json"] if json_only else []), *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "NO_COLOR": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def losses(folder: Path) -> dict[str, Any]:
    """The logged losses of each training, at every step; or how it was refused."""
    found: dict[str, Any] = {}
    for name, options in TRAININGS.items():
        code, output, errors = ldsearch(
            ["train-supernet", *options, *FLAGS, "--runs", "models", "--name", name], folder
        )
        logged = [float(loss) for loss in re.findall(r"'loss': '?([\d.e+-]+)'?", output)]
        found[name] = {"exit": code, "error": errors.strip().splitlines()[-1:]} if code else logged
        print(f"trained {name}: {errors.strip() if code else logged[-1]}", flush=True)
    return found


def commands(folder: Path) -> dict[str, Any]:
    """What each command prints as JSON, or its exit code and error; and the tables of its run."""
    found: dict[str, Any] = {}
    for name, arguments in COMMANDS.items():
        known = tables(folder / "runs")
        code, output, errors = ldsearch([*arguments, *runs_of(arguments)], folder, json_only=True)
        # Records name data by full paths, which differ between machines.
        relative = output.replace(f"{folder}/", "")
        answer: Any = steady(json.loads(relative)) if output.strip() else last_line(errors, folder)
        written = tables(folder / "runs")
        new = {table: rows for table, rows in written.items() if known.get(table) != rows}
        found[name] = {"exit": code, "answer": answer, "tables": new}
        print(f"ran {name}: {code}", flush=True)
    return found


def last_line(errors: str, folder: Path) -> list[str]:
    """The last line of what a command said of its failure, without the folder it ran in."""
    return [line.replace(f"{folder}/", "") for line in errors.strip().splitlines()[-1:]]


def runs_of(arguments: Sequence[object]) -> tuple[str, ...]:
    """Where a command writes; ``info`` writes nowhere."""
    return () if arguments[0] == "info" else ("--runs", "runs")


def tables(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Every table below a folder, without what differs between two runs."""
    found = {}
    for path in sorted(folder.rglob("*.csv")):
        with path.open(newline="", encoding="utf-8") as file:
            rows = [{key: number(value) for key, value in row.items()} for row in csv.DictReader(file)]
        found[str(path.relative_to(folder))] = steady(rows)
    return found


def number(text: str) -> float | str:
    """A cell as a number where it is one."""
    try:
        return float(text)
    except ValueError:
        return text


def steady(found: Any) -> Any:
    """Without what differs between two runs of the same code."""
    if isinstance(found, Mapping):
        return {key: steady(value) for key, value in found.items() if key not in VOLATILE}
    return [steady(value) for value in found] if isinstance(found, list) else found


def differences(old: Any, new: Any, tolerance: float, where: str = "") -> Iterator[str]:
    """Where two tables differ; numbers may differ by the tolerance, relative to those above 1."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in {**old, **new}:
            if (key in old) != (key in new):
                yield f"{where}/{key}: only in the {'old' if key in old else 'new'}"
            else:
                yield from differences(old[key], new[key], tolerance, f"{where}/{key}")
    elif isinstance(old, list) and isinstance(new, list):
        if len(old) != len(new):
            yield f"{where}: {len(old)} entries, now {len(new)}"
        for index, (one, other) in enumerate(zip(old, new, strict=False)):
            yield from differences(one, other, tolerance, f"{where}[{index}]")
    elif not alike(old, new, tolerance):
        yield f"{where}: {old!r}, now {new!r}"


def alike(old: Any, new: Any, tolerance: float) -> bool:
    """Whether two entries are equal, numbers within the tolerance."""
    if isinstance(old, float | int) and isinstance(new, float | int):
        both_nan = math.isnan(old) and math.isnan(new)
        return both_nan or math.isclose(old, new, rel_tol=tolerance, abs_tol=tolerance)
    return bool(old == new)


def make(out: Path) -> None:
    """Write the tables that are missing."""
    out.mkdir(parents=True, exist_ok=True)
    work = out / "work"
    if not (work / "reviews.csv").is_file():
        work.mkdir()
        write_data(work)
    made: dict[str, Callable[[], Any]] = {
        "proposals": proposals,
        "passes": passes,
        "losses": lambda: losses(work),
        "scores": lambda: scores({name: work / "models" / name for name in TRAININGS}),
        "commands": lambda: commands(work),
    }
    for name, make_table in made.items():
        path = out / f"{name}.json"
        if not path.is_file():
            # A line for each entry, so that a diff shows which changed.
            entries = (f"{json.dumps(key)}: {json.dumps(value)}" for key, value in make_table().items())
            path.write_text("{\n" + ",\n".join(entries) + "\n}\n", encoding="utf-8")


def compare(old: Path, new: Path) -> int:
    """Print every difference; how many there are."""
    count = 0
    for path in sorted(old.glob("*.json")):
        tables = [json.loads((folder / path.name).read_text(encoding="utf-8")) for folder in (old, new)]
        for line in differences(*tables, LOSS if path.stem == "losses" else NUMBER, path.stem):
            count += 1
            print(line)
    return count


def main() -> None:
    """Make or compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("make", help="write tables").add_argument("--out", type=Path, required=True)
    comparing = verbs.add_parser("compare", help="exit 1 if two folders of tables differ")
    comparing.add_argument("old", type=Path)
    comparing.add_argument("new", type=Path)
    options = parser.parse_args()
    if options.verb == "make":
        make(options.out.resolve())
        print(json.dumps({"out": str(options.out)}))
    else:
        count = compare(options.old, options.new)
        print(json.dumps({"differences": count}))
        raise SystemExit(bool(count))


if __name__ == "__main__":
    main()
