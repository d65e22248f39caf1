"""Describes in words how a model was trained, for its model card and ldsearch info."""

from ldsearch.export.as_it_is import AS_IT_IS
from ldsearch.supernet.folder import SupernetRecord
from ldsearch.training.drop_rates import mean_rate

_KEPT = "; that lowered the score on the search rows, so the weights from before were kept"


def training_in_words(record: SupernetRecord) -> str:
    """Strategy or loss, steps, seed and rates of a training."""
    if record.subnet is not None:
        training = record.training
        source = "the full model's logits" if training["loss"] == "distill" else "the labels"
        return (
            f"{training['arguments'].get('max_steps')} steps on its own, from {source}, starting from the "
            f"weights of {training['model']}, seed {record.seed}"
            + (_KEPT if training.get("kept") == "inherited" else "")
        )
    if record.strategy == AS_IT_IS:
        return "not by ldsearch"
    cut = f"inputs cut to {record.reference} tokens"
    if record.training.get("arguments", {}).get("max_steps") == 0:
        return f"not by ldsearch: the learned token score is fitted to it, {cut}"
    if record.at is not None:
        steps = record.training["arguments"].get("max_steps")
        return f"{steps} steps of one sub-network, {record.at.describe()}, seed {record.seed}, {cut}"
    return (
        f"strategy {record.strategy}, seed {record.seed}, LengthDrop bound {record.drop_bound}, "
        f"LayerDrop {layer_drop_in_words(record)}, {cut}"
    )


def layer_drop_in_words(record: SupernetRecord) -> str:
    """The LayerDrop rates, of which groups."""
    rates = record.layer_rates or [record.layer_drop]
    words = f"{rates[0]:g}"
    if len(set(rates)) > 1:
        words = f"{' '.join(f'{rate:g}' for rate in rates)} (mean {mean_rate(rates):g})"
    if record.training.get("layer_drop_schedule") == "learned":
        words += ", learned"
    if (groups := record.training.get("drop_groups") or "layer") != "layer":
        words += f" of {groups} groups"
    if record.skipped == "norm":
        words += ", norms stay"
    if least := record.training.get("min_layers"):
        words += f", at least {least} blocks running"
    return words


def recovered_in_words(record: SupernetRecord) -> str:
    """The scores of a model trained on its own."""
    return ", ".join(f"{name} {value:.4f}" for name, value in record.metrics.items()) or "not measured"
