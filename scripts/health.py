"""Do inherited scores rank sub-networks of equal cost? One SST-2 supernet, sub-networks trained alone.

    python scripts/health.py --data path/to/sst2 --runs runs/headroom --out results/health

The supernet is that of scripts/headroom.py: 10,000 training rows are held out of its training, so that both
scores rest on 5,000 rows of their own. An hour on two cores; what was trained is kept, so run it until it
ends. The last line is one JSON object.
"""

import json
import shutil
from pathlib import Path

import pandas as pd
from headroom import RATE, prepare
from scipy.stats import kendalltau
from sst2_minilm_train import arguments, train

from ldsearch import Bench
from ldsearch.errors import LdsearchError
from ldsearch.options import Report
from ldsearch.runs.run import Study
from ldsearch.search.health import PER_BIN, health, verdict

TRAINER = {"bf16": True, "disable_tqdm": "True", "save_strategy": "no", "learning_rate": 5e-5}
EARLIER = "over_all_costs.csv"
NAMES = {
    "tau_within": "inherited with trained scores, pairs of about equal cost",
    "tau_partial": "inherited with trained scores, all pairs, given MACs",
    "tau": "inherited with trained scores, all pairs",
    "tau_of_cost": "MACs alone with trained scores, all pairs",
}


def write_page(study: Study, out: Path, count: int) -> None:
    """``README.md`` in the folder, with the command that makes it."""
    fields = study.fields
    p_values = {"tau_within": fields["p_value_within"], "tau": fields["p_value"]}
    lines = [
        "# Do inherited scores rank sub-networks of equal cost?",
        "",
        "```",
        "python scripts/health.py --data path/to/sst2 --runs runs/headroom "
        f"--out results/health --count {count}",
        "```",
        "",
        f"SST-2, MiniLM-L6, one supernet; {len(study.table)} length configurations, {PER_BIN} of each of",
        f"several costs, each fine-tuned alone for {fields['steps']} steps from the weights it inherits.",
        f"Inherited scores are of {fields['inherited_examples']:,} rows, scores after training of "
        f"{fields['fine_tuned_examples']:,} others.",
        "",
        "| Kendall's tau of | | p |",
        "|---|---|---|",
    ]
    for name, words in NAMES.items():
        p_value = p_values.get(name)
        lines.append(f"| {words} | {fields[name]:.3f} | {'' if p_value is None else f'{p_value:.3g}'} |")
    lines += ["", f"Verdict: {verdict(study)}.", "", "![Scores](health.png)"]
    if (earlier := out / EARLIER).is_file():
        table = pd.read_csv(earlier)
        inherited, cost = (
            kendalltau(table[name], table["fine_tuned"]).statistic for name in ("inherited", "macs_share")
        )
        lines += [
            "",
            f"Earlier, {len(table)} sub-networks were spread over the cost range ([table]({EARLIER})):",
            f"inherited scores rank trained ones at {inherited:.2f} there, and MACs alone at {cost:.2f}.",
        ]
    (out / "README.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    """Train, measure, write."""
    parser = arguments(__doc__.splitlines()[0])
    parser.set_defaults(runs=Path("runs/headroom"))
    parser.add_argument("--out", type=Path, required=True, help="where README.md, csv, json and figure go")
    parser.add_argument("--rows", type=int, default=10_000, help="training rows that are held out")
    parser.add_argument("--count", type=int, default=32, help="sub-networks")
    parser.add_argument("--alone", type=int, default=300, help="optimizer steps of each")
    options = parser.parse_args()
    options.runs = options.runs.resolve()
    options.data = str(prepare(options))
    supernet = train(options, "supernet", "lengthdrop", 0, RATE, options.steps)
    how = Report(count=options.count, steps=options.alone, trainer=TRAINER)
    study = health(Bench.open(supernet), options.runs / "health", how, announce=print)
    options.out.mkdir(parents=True, exist_ok=True)
    for name in ("health.csv", "health.png", "health.json"):
        shutil.copy(study.folder / name, options.out / name)
    write_page(study, options.out, options.count)
    print(json.dumps({name: study.fields[name] for name in NAMES}))


if __name__ == "__main__":
    try:
        main()
    except LdsearchError as error:
        raise SystemExit(f"error: {error}") from error
