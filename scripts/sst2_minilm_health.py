"""Health and recovery for results/sst2_minilm: inherited scores beside those of trained sub-networks."""

import shutil
from pathlib import Path

from ldsearch import Bench
from ldsearch.commands.health import health
from ldsearch.commands.options import Report, TrainSupernet
from ldsearch.commands.recover import recover
from ldsearch.goal import Budget
from ldsearch.subnet import Subnet
from ldsearch.trial import Trial

COUNT, STEPS = 10, 200
TRAINER = {"bf16": True, "disable_tqdm": "True", "save_strategy": "no", "learning_rate": 5e-5}
BUDGETS = ("0.4", "0.5", "0.7")


def measure(supernet: Path, candidates: list[Trial], full: Trial, out: Path) -> dict:
    """Kendall's tau over sub-networks fine-tuned alone; three chosen ones recovered by distillation."""
    bench = Bench.open(supernet)
    print("health", flush=True)
    folder = supernet.parent / f"{supernet.name}-health"
    options = Report(count=COUNT, steps=STEPS, trainer=TRAINER)
    found = health(bench, folder, options, announce=print)
    for name in ("health.csv", "health.png"):
        shutil.copy(folder / name, out / name)
    rows = []
    for budget in BUDGETS:
        trial = Budget.parse(budget).choose(candidates, full)
        rows.append(recovered(supernet, trial.subnet, budget) | {"macs_share": share(trial, full)})
    return {
        "tau": found.fields["tau"],
        "p_value": found.fields["p_value"],
        "sub_networks": len(found.table),
        "examples": found.fields["examples"],
        "steps": STEPS,
        "recovered": rows,
    }


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
