"""Train, search, profile and export on a GPU, and the same scores as on the processor.

    python scripts/gpu_check.py [FOLDER]

Each step is a command of its own with a time limit; a step that fails does not stop the others. torchrun
starts a process a GPU, also where there is one. The last line is one JSON object; the exit status is 0 if no
step failed.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

LDSEARCH = ("-m", "ldsearch", "--json")
TRAIN = ("train-supernet", "--bf16", "--max_steps")
STEPS = 400  # enough to leave the most frequent class behind
SHORT = 40  # of the trainings on several processes
LIMIT = 240  # seconds of a step
# bf16 on the GPU, fp32 on the processor, 3,579 rows: nearer than the standard error of an accuracy.
NEAR = 0.01
GUESS = 0.30  # accuracy of the most frequent class: two models that say nothing else prove nothing


class Check:
    """Steps with their outcome.

    Args:
        folder: Where runs are written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.steps: dict[str, dict[str, Any]] = {}

    def run(self, name: str, words: Sequence[str], status: int = 0, **environment: str) -> dict[str, Any]:
        """Run a command with this interpreter; returns the JSON object that it prints last, or nothing.

        Args:
            name: Of the step.
            words: The command line after the interpreter.
            status: The exit status that is right.
            environment: Variables to set.
        """
        print(f"{name}: {' '.join(words)}", flush=True)
        started = time.perf_counter()
        step: dict[str, Any] = {"ok": False}
        self.steps[name] = step
        try:
            done = subprocess.run(
                [sys.executable, *words],
                cwd=self.folder,
                env={**os.environ, **environment},
                capture_output=True,
                text=True,
                timeout=LIMIT,
                check=False,
            )
        except subprocess.TimeoutExpired:
            step["error"] = f"not done after {LIMIT} s"
            return {}
        step["seconds"] = round(time.perf_counter() - started, 1)
        step["ok"] = done.returncode == status
        if not step["ok"]:
            step["error"] = (done.stderr.strip() or done.stdout.strip()).splitlines()[-40:]
            print("  failed: " + "\n  ".join(step["error"]), flush=True)
            return {}
        printed = done.stdout.strip().splitlines()
        return json.loads(printed[-1]) if printed and printed[-1].startswith("{") else {}

    def launched(self, name: str, processes: int) -> None:
        """A short training by torchrun."""
        launcher = ("-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}")
        self.run(name, (*launcher, *LDSEARCH, *TRAIN, str(SHORT), "--name", name))


def main() -> int:
    """Run all steps."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, help="keeps the runs; by default nothing is kept")
    parser.add_argument("--anywhere", action="store_true", help="try the script itself, without a GPU")
    options = parser.parse_args()
    gpus = torch.cuda.device_count()
    if not gpus and not options.anywhere:
        print("error: torch sees no GPU here", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        check = Check(folder.resolve())
        scores = try_all(check, gpus)
    name = torch.cuda.get_device_name(0) if gpus else "cpu"
    result = {
        "device": name,
        "gpus": gpus,
        "torch": torch.__version__,
        "scores": scores,
        "steps": check.steps,
    }
    print(json.dumps(result))
    return int(any(step["ok"] is False for step in check.steps.values()))


def try_all(check: Check, gpus: int) -> dict[str, float]:
    """Every step; returns the full model's score on both devices."""
    check.run("train", (*LDSEARCH, *TRAIN, str(STEPS), "--name", "one"))
    check.launched("torchrun", max(1, gpus))
    if gpus > 1:
        plain = (*LDSEARCH, *TRAIN, "2", "--name", "plain")
        check.run("several GPUs without torchrun are refused", plain, status=2)
    search = ("evolve", "--supernet", "runs/one", "--budget", "0.4", "--evaluations", "20")
    check.run("evolve", (*LDSEARCH, *search))
    cells = ("--batch", "1,32", "--length", "64", "--repeats", "3")
    for runtime in ("eager", "own"):
        named = ("--runtime", runtime, "--name", f"profile-{runtime}")
        check.run(f"profile {runtime}", (*LDSEARCH, "profile", "runs/one-evolve", *cells, *named))
    check.run("export", (*LDSEARCH, "export", "runs/one-evolve", "exported"))
    full = ("evaluate", "runs/one", "--subnet", "full")
    scores = {}
    for device, hidden in (("gpu", {}), ("processor", {"CUDA_VISIBLE_DEVICES": ""})):
        printed = check.run(f"evaluate on the {device}", (*LDSEARCH, *full), **hidden)
        if "score" in printed:
            scores[device] = float(printed["score"])
    alike = len(scores) == 2 and abs(scores["gpu"] - scores["processor"]) <= NEAR
    check.steps["both devices score alike"] = {"ok": alike and min(scores.values()) > GUESS}
    return scores


if __name__ == "__main__":
    raise SystemExit(main())
