"""What supernets and runs say of themselves, in words: for cards and for ``ldsearch info``."""

from collections.abc import Mapping
from typing import Any

from ldsearch.supernet.folder import SupernetRecord
from ldsearch.training.rates import mean


def training_in_words(record: SupernetRecord) -> str:
    """Strategy or loss, steps, seed and rates of a training."""
    if record.subnet is not None:
        training = record.training
        source = "the full model's logits" if training["loss"] == "distill" else "the labels"
        return (
            f"{training['arguments'].get('max_steps')} steps on its own, from {source}, starting from the "
            f"weights of {training['model']}, seed {record.seed}"
        )
    return (
        f"strategy {record.strategy}, seed {record.seed}, LengthDrop bound {record.drop_bound}, "
        f"LayerDrop {layer_drop_in_words(record)}, inputs cut to {record.reference} tokens"
    )


def layer_drop_in_words(record: SupernetRecord) -> str:
    """The LayerDrop rates, of which groups."""
    rates = record.layer_rates or [record.layer_drop]
    words = f"{rates[0]:g}"
    if len(set(rates)) > 1:
        words = f"{' '.join(f'{rate:g}' for rate in rates)} (mean {mean(rates):g})"
    if (groups := record.training.get("drop_groups") or "layer") != "layer":
        words += f" of {groups} groups"
    if least := record.training.get("min_layers"):
        words += f", at least {least} blocks running"
    return words


def recovered_in_words(record: SupernetRecord) -> str:
    """The scores of a model trained on its own."""
    return ", ".join(f"{name} {value:.4f}" for name, value in record.metrics.items()) or "not measured"


def score_in_words(best: Mapping[str, Any]) -> str:
    """A score, the rows it rests on, and what chose it.

    Args:
        best: As ``best.json`` has it.
    """
    chosen_by = (
        f"{best['metric']} {best['score']:.4f} on {best['examples']} {best['split']} examples, by which it "
        f"was chosen (full model {best['full_score']:.4f})"
    )
    held = best.get("held_out")
    if held is None:
        return f"{chosen_by}: optimistic"
    difference = held["difference"]
    return (
        f"{best['metric']} {held['score']:.4f} on {difference['examples']} {held['split']} examples that "
        f"chose nothing (full model {held['full_score']:.4f}, difference {difference['mean']:+.4f}, "
        f"95% interval {difference['low']:+.4f} to {difference['high']:+.4f}); {chosen_by}"
    )
