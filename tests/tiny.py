"""Tiny random models with randomised norms (fresh norms are the identity and hide mistakes), and batches."""

import torch
from transformers import AutoConfig, PreTrainedModel

from ldsearch import testing
from ldsearch.supernet.heads import HEADS

VOCABULARY = 60
FAMILIES = ("bert", "distilbert", "roberta", "xlm-roberta", "electra", "modernbert")
HEADED = tuple(HEADS)


def tiny_model(
    family: str,
    *,
    blocks: int = 4,
    width: int = 16,
    labels: int = 3,
    attention: str = "sdpa",
    seed: int = 0,
    positions: int = 512,
    head: str = "SequenceClassification",
) -> PreTrainedModel:
    """A random model with a head, every weight, norms and biases included, drawn from a wide normal."""
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
    if family == "modernbert":
        # A window so narrow that it matters; full attention in every third block, as in the released models.
        sizes |= {
            "local_attention": 8,
            "attention_dropout": 0.1,
            "embedding_dropout": 0.1,
            "mlp_dropout": 0.1,
            "bos_token_id": 2,
            "eos_token_id": 3,
            "cls_token_id": 2,
            "sep_token_id": 3,
        }
    config = AutoConfig.for_model(
        family,
        vocab_size=VOCABULARY,
        # The first belongs to padding.
        max_position_embeddings=positions + 1 if "roberta" in family else positions,
        pad_token_id=0,
        num_labels=2 if head == "QuestionAnswering" else labels,
        **sizes,
    )
    config._attn_implementation = attention
    model = HEADS[head].auto.from_config(config)
    return testing.randomised(model)


def padded_batch(lengths: list[int], seed: int = 0) -> dict[str, torch.Tensor]:
    """Random ids of the given true lengths, padded on the right with id 0."""
    return testing.padded_batch(lengths, VOCABULARY, seed=seed)


def row(batch: dict[str, torch.Tensor], index: int) -> dict[str, torch.Tensor]:
    """One row of a batch without its padding."""
    length = int(batch["attention_mask"][index].sum())
    return {name: tensor[index : index + 1, :length] for name, tensor in batch.items()}
