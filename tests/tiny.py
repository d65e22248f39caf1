"""Tiny random models with randomised norms (fresh norms are the identity and hide mistakes), and batches."""

import torch
from transformers import AutoConfig, AutoModelForSequenceClassification, PreTrainedModel

VOCABULARY = 60
FAMILIES = ("bert", "distilbert", "roberta", "xlm-roberta", "electra")
IMPLEMENTATIONS = ("eager", "sdpa")


def tiny_model(
    family: str,
    *,
    blocks: int = 4,
    width: int = 16,
    labels: int = 3,
    attention: str = "sdpa",
    seed: int = 0,
    positions: int = 512,
) -> PreTrainedModel:
    """A random classifier whose every weight, norms and biases included, is drawn from a wide normal."""
    torch.manual_seed(seed)
    sizes = {
        "hidden_size": width,
        "num_hidden_layers": blocks,
        "num_attention_heads": 2,
        "intermediate_size": 2 * width,
    }
    if family == "distilbert":
        sizes = {"dim": width, "n_layers": blocks, "n_heads": 2, "hidden_dim": 2 * width}
    if family == "electra":
        sizes["embedding_size"] = width // 2  # as in the small models
    config = AutoConfig.for_model(
        family,
        vocab_size=VOCABULARY,
        # The first belongs to padding.
        max_position_embeddings=positions + 1 if "roberta" in family else positions,
        pad_token_id=0,
        num_labels=labels,
        **sizes,
    )
    config._attn_implementation = attention
    model = AutoModelForSequenceClassification.from_config(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            is_norm_weight = "norm" in name.lower() and name.endswith("weight")
            parameter.normal_(mean=1.0 if is_norm_weight else 0.0, std=0.3)
    return model.eval()


def padded_batch(lengths: list[int], seed: int = 0) -> dict[str, torch.Tensor]:
    """Random ids of the given true lengths, padded on the right with id 0."""
    generator = torch.Generator().manual_seed(seed)
    longest = max(lengths)
    ids = torch.randint(1, VOCABULARY, (len(lengths), longest), generator=generator)
    mask = (torch.arange(longest) < torch.tensor(lengths)[:, None]).long()
    return {"input_ids": ids * mask, "attention_mask": mask}


def row(batch: dict[str, torch.Tensor], index: int) -> dict[str, torch.Tensor]:
    """One row of a batch without its padding."""
    length = int(batch["attention_mask"][index].sum())
    return {name: tensor[index : index + 1, :length] for name, tensor in batch.items()}
