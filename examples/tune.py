"""Tune how a supernet is trained, with Optuna: the area under its frontier on the search rows chooses.

    python examples/tune.py reviews.csv --model bert-base-uncased --trials 20

The same command goes on after an interruption, and further with more --trials. Edit SPACE to vary other
options of train-supernet, or arguments of the Trainer. optuna-dashboard opens the study, runs/tune/tune.db.
"""

import argparse
from pathlib import Path

import optuna
from optuna.distributions import CategoricalDistribution, FloatDistribution
from optuna.trial import TrialState

import ldsearch
from ldsearch.errors import TrainingError
from ldsearch.options.binding import read_trainer
from ldsearch.trials.pareto import staircase_weights

SPACE = {
    "learning_rate": FloatDistribution(1e-5, 1e-3, log=True),
    "drop_bound": FloatDistribution(0.3, 0.45),
    "sandwich": CategoricalDistribution(["paper", "shares"]),
}
TRAINER = ("learning_rate",)  # those of SPACE that are arguments of the Trainer


def train_and_search(runs: Path, parameters: dict, args: argparse.Namespace, rest: list[str]):
    """Return the areas under one frontier, on search rows and on report rows; both are maximised."""
    ours = {name: value for name, value in parameters.items() if name not in TRAINER}
    trainer = read_trainer(rest) | {name: parameters[name] for name in TRAINER}
    supernet = runs / "supernet"
    if not (supernet / "supernet.json").exists():
        ldsearch.train_supernet(
            data=args.data, model=args.model, trainer=trainer, runs=runs, name="supernet", **ours
        )
    ldsearch.evolve(supernet=supernet, evaluations=args.evaluations, runs=runs, name="evolve")
    run = ldsearch.Run.open(runs / "evolve")
    sign = -1 if args.lower_is_better else 1
    searched, held_out = (sign * run.frontier[name].to_numpy() for name in ("score", "held_out_score"))
    weights = staircase_weights(run.frontier["macs_share"], searched, args.low, 1)  # NaN: none so cheap
    return float(weights @ searched), float(weights @ held_out)


def main() -> None:
    """Run the study, then print its best trial's area on rows that chose nothing."""
    parser = argparse.ArgumentParser(description="Arguments that are not listed go to the Trainer.")
    parser.add_argument("data")
    parser.add_argument("--model", help="hub id, folder or config.json; none: a small one from scratch")
    parser.add_argument("--trials", type=int, default=20, help="trainings in all")
    parser.add_argument("--evaluations", type=int, default=40, help="sub-networks measured per training")
    parser.add_argument("--low", type=float, default=0.6, help="the area starts at this share of the MACs")
    parser.add_argument("--lower-is-better", action="store_true", help="as of perplexity")
    parser.add_argument("--folder", type=Path, default=Path("runs/tune"))
    args, rest = parser.parse_known_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    file = f"sqlite:///{args.folder}/tune.db"
    study = optuna.create_study(study_name="tune", storage=file, direction="maximize", load_if_exists=True)
    while True:
        trials = study.get_trials(deepcopy=False)
        trial = next((trial for trial in trials if trial.state == TrialState.RUNNING), None)  # interrupted
        if trial is None:
            if len(trials) >= args.trials:
                break
            study.sampler = optuna.samplers.TPESampler(seed=len(trials))  # a new seed: no draw twice
            trial = study.ask(SPACE)
        try:
            area, _ = train_and_search(args.folder / f"trial-{trial.number}", trial.params, args, rest)
        except TrainingError as error:
            print(f"trial {trial.number}: {error}")
            area = float("nan")
        study.tell(trial.number, area)  # Optuna counts NaN as failed
        print(f"trial {trial.number}: area {area:.4f} with {trial.params}")
    best = study.best_trial
    searched, held_out = train_and_search(args.folder / f"trial-{best.number}", best.params, args, rest)
    print(f"best: trial {best.number}, area {searched:.4f}; {held_out:.4f} on rows that chose nothing")


if __name__ == "__main__":
    main()
