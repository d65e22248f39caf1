"""The commands that made a supernet and a run, from what their folders record; what is missing is said."""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from fractions import Fraction
from pathlib import Path
from typing import Any

from ldsearch.commands.finished import FinishedRun
from ldsearch.commands.train_options import TrainOptions
from ldsearch.runs import TRAINING_FILE, read_json
from ldsearch.search.evolve import EvolveSettings
from ldsearch.supernet.folder import SupernetRecord

_RENAMED = {"reference": "max-length"}
_DEPTH_TASKS = {"batch_fraction": "batch-share"}
_SELECTORS = {"budget ": "--budget", "at least ": "--at-least"}
# A strategy calls itself otherwise than the command line does.
_STRATEGIES = {"evolve": "nsga"}


@dataclass(frozen=True)
class Command:
    """A command line.

    Args:
        words: Its words.
        notes: What of it is not recorded.
    """

    words: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """As a shell takes it."""
        return shlex.join(self.words)


def train_command(folder: Path, record: SupernetRecord) -> Command:
    """``ldsearch train-supernet`` as it was asked for; options that have their default are left out."""
    notes: list[str] = []
    asked = _asked(folder, record, notes)
    usual = {field.name: getattr(TrainOptions(), field.name) for field in fields(TrainOptions)}
    words = ["ldsearch", "train-supernet"]
    own = {**record.source, **asked}
    for name, default in usual.items():
        if name in ("columns", "depth_tasks", "trainer") or name not in own:
            continue
        words += _flag(_RENAMED.get(name, name), own[name], default)
    for role, column in (record.source.get("columns") or {}).items():
        words += _flag(f"{role}-column", column, None)
    tasks = {**asdict(TrainOptions().depth_tasks)}
    for name, value in (asked.get("depth_tasks") or {}).items():
        words += _flag(_DEPTH_TASKS.get(name, name), value, tasks.get(name))
    words += ["--name", folder.resolve().name, *_runs(folder)]
    if record.training.get("model") or record.source.get("validation"):
        notes.append("paths are as they were given, seen from where the command was run")
    return Command((*words, *map(str, asked.get("trainer", ()))), tuple(notes))


def search_command(run: FinishedRun) -> Command:
    """``ldsearch evolve`` or ``ldsearch select``, as far as ``run.json`` records what was asked."""
    identity = run.fields["identity"]
    by_kl = str(identity["strategy"]).endswith("-kl")
    strategy = str(identity["strategy"]).removesuffix("-kl")
    notes: list[str] = []
    evolves = "settings" in identity
    words = ["ldsearch", "evolve" if evolves else "select"]
    words += ["--strategy", _STRATEGIES.get(strategy, strategy)]
    words += ["--supernet", str(run.supernet), *_selector(str(run.fields["selector"]))]
    words += _objective(by_kl, identity)
    words += ["--swap"] if run.fields["split"] == "report" else []
    if evolves:
        words += [*_evolving(identity), *_evaluations(run, notes)]
    elif keep := _keep(identity.get("depths")):
        words += ["--keep", keep]
    if identity.get("seed"):
        words += ["--seed", str(identity["seed"])]
    if "space" in identity:
        notes.append(
            "the search space is recorded by what it holds, not by name: if --space was given, give it again"
        )
    if run.fields.get("storage"):
        notes.append(
            f"workers shared a {run.fields['storage']} storage: its --storage address is not recorded"
        )
    return Command((*words, "--name", run.name, *_runs(run.folder)), tuple(notes))


def _asked(folder: Path, record: SupernetRecord, notes: list[str]) -> Mapping[str, Any]:
    """The options as training was asked for them; without that record, those that the supernet's implies."""
    if (folder / TRAINING_FILE).is_file():
        identity = read_json(folder / TRAINING_FILE).get("identity")
        if isinstance(identity, dict):
            return identity
    notes.append(
        f"{TRAINING_FILE} is not there: sandwich, teacher and averaging of checkpoints are not recorded "
        "elsewhere, and are left at their defaults here"
    )
    training = record.training
    usual_score = "column-with-pads" if record.parity else "column"
    trainer = [str(w) for key, value in training["arguments"].items() for w in (f"--{key}", value)]
    return {
        "model": training["model"],
        "strategy": record.strategy,
        "reference": record.reference,
        "drop_bound": None if record.drop_bound is None else float(Fraction(record.drop_bound)),
        "layer_drop": record.layer_rates or None,
        "min_layers": training.get("min_layers") or 0,
        "drop_groups": training.get("drop_groups") or "layer",
        "plain_share": training.get("plain_share"),
        "depth_tasks": training.get("depth_tasks"),
        "token_score": None if record.score == usual_score else record.score,
        "memory": record.memory,
        "parity": record.parity,
        "seed": record.seed,
        "trainer": trainer,
    }


def _flag(name: str, value: Any, default: Any) -> list[str]:
    """An option and its value, unless that is the default."""
    if value is None or value == default:
        return []
    option = f"--{name.replace('_', '-')}"
    if isinstance(value, bool):
        return [option]
    listed = value if isinstance(value, (list, tuple)) else [value]
    return [option, ",".join(f"{one:g}" if isinstance(one, float) else str(one) for one in listed)]


def _objective(by_kl: bool, identity: Mapping[str, Any]) -> list[str]:
    terms = ["kl"] if by_kl else []
    for cost in identity.get("costs", ()):
        at = "@batch={},length={}".format(*identity["cell"]) if cost == "latency" else ""
        terms.append(f"{cost}{at}")
    return ["--objective", "+".join(terms)] if terms else []


def _runs(folder: Path) -> list[str]:
    parent = folder.resolve().parent
    return [] if parent.name == "runs" else ["--runs", str(folder.parent)]


def _selector(text: str) -> list[str]:
    for start, option in _SELECTORS.items():
        if text.startswith(start):
            return [option, text.removeprefix(start)]
    return ["--most-accurate"]


def _evolving(identity: Mapping[str, Any]) -> Iterator[str]:
    settings, space, parity = identity["settings"], identity["space"], asdict(EvolveSettings.parity())
    if all(settings.get(name) == parity[name] for name in ("mutants", "crossovers")):
        yield "--parity"
    genes = genes_of(space)
    if genes != ("lengths",):
        yield from ("--genes", "+".join(genes))


def genes_of(space: Mapping[str, Any]) -> tuple[str, ...]:
    """What a recorded space leaves free, in the words of ``--genes``."""
    if "levels" in space:
        return ("lengths",)
    options = space.get("options") or []
    free = {
        "lengths": space.get("lengths") is not None,
        "depth": any(len(keep) > 1 for _, keep in space.get("depths") or []),
        "ffn": any(option.get("ffn_share", 1) != 1 for option in options),
        "head": any(option.get("heads_off") for option in options),
        "sublayer": any(option.get("sublayers_off") for option in options),
    }
    return tuple(name for name, is_free in free.items() if is_free)


def _evaluations(run: FinishedRun, notes: list[str]) -> list[str]:
    known = run.fields["identity"].get("evaluations")  # of searches by kl
    if known is None and run.fields["stopped"] == "evaluations":
        known = run.fields["trials"]
    if known is None:
        notes.append(
            f"--evaluations is not recorded: the search ended by itself ({run.fields['stopped']}) after "
            f"{run.fields['trials']}"
        )
        return []
    return ["--evaluations", str(known)]


def _keep(depths: Any) -> str:
    """The depths of each stack, where one of each was asked for."""
    if not isinstance(depths, list) or not depths:
        return ""
    stacks = depths if isinstance(depths[0], list) else [depths]
    return ",".join(str(kept[0]) for kept in stacks) if all(len(kept) == 1 for kept in stacks) else ""
