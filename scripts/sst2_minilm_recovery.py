"""Recovery for results/sst2_minilm: chosen sub-networks before and after a short distillation alone."""

from pathlib import Path

from ldsearch.options import TrainSupernet
from ldsearch.subnet import Subnet
from ldsearch.training.recover import recover
from ldsearch.trials.goal import Budget
from ldsearch.trials.trial import Trial

STEPS = 200
TRAINER = {"bf16": True, "disable_tqdm": "True", "save_strategy": "no", "learning_rate": 5e-5}
BUDGETS = ("0.4", "0.5", "0.7")


def measure(supernet: Path, candidates: list[Trial], full: Trial) -> dict:
    """Three chosen sub-networks, recovered by distillation from the full model."""
    rows = []
    for budget in BUDGETS:
        trial = Budget.parse(budget).choose(candidates, full)
        rows.append(recovered(supernet, trial.subnet, budget) | {"macs_share": share(trial, full)})
    return {"steps": STEPS, "recovered": rows}


def share(trial: Trial, full: Trial) -> float:
    """Of the full model's MACs."""
    return trial.costs["macs"] / full.costs["macs"]


def recovered(supernet: Path, subnet: Subnet, budget: str) -> dict:
    """A sub-network chosen on the search rows, before and after its own distillation, on the report rows."""
    print(f"recovering the choice at {budget}", flush=True)
    options = TrainSupernet(
        model=str(supernet),
        subnet=subnet.to_json(),
        runs=supernet.parent,
        name=f"{supernet.name}-recovered-{budget}",
        trainer={"max_steps": STEPS, **TRAINER},
    )
    found = recover(options)
    names = ("inherited", "recovered", "full", "gain", "against_full")
    return {"budget": budget, "subnet": subnet.describe(), **{name: found[name] for name in names}}
