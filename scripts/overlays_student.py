"""A DistilBERT made of some of a BERT's blocks: no segments, no pooler, the same numbers block by block.

python scripts/overlays_student.py path/to/bert path/to/student
"""

import argparse
import json
from pathlib import Path

import torch
from torch import Tensor
from transformers import AutoModel, AutoTokenizer, BertModel, DistilBertConfig, DistilBertModel

from ldsearch.errors import LdsearchError
from ldsearch.search.rules import every_other

PARTS = {
    "attention.self.query": "attention.q_lin",
    "attention.self.key": "attention.k_lin",
    "attention.self.value": "attention.v_lin",
    "attention.output.dense": "attention.out_lin",
    "attention.output.LayerNorm": "sa_layer_norm",
    "intermediate.dense": "ffn.lin1",
    "output.dense": "ffn.lin2",
    "output.LayerNorm": "output_layer_norm",
}


def distilbert(bert: BertModel, blocks: tuple[int, ...]) -> DistilBertModel:
    """The same model in DistilBERT's architecture, with some of its blocks: no segments, no pooler."""
    config, own = bert.config, bert.state_dict()
    types = own["embeddings.token_type_embeddings.weight"]
    found: dict[str, Tensor] = {
        "embeddings.word_embeddings.weight": own["embeddings.word_embeddings.weight"],
        "embeddings.position_embeddings.weight": own["embeddings.position_embeddings.weight"] + types[0],
    }
    for kind in ("weight", "bias"):
        found[f"embeddings.LayerNorm.{kind}"] = own[f"embeddings.LayerNorm.{kind}"]
        for index, block in enumerate(blocks):
            for theirs, ours in PARTS.items():
                found[f"transformer.layer.{index}.{ours}.{kind}"] = own[
                    f"encoder.layer.{block}.{theirs}.{kind}"
                ]
    made = DistilBertModel(
        DistilBertConfig(
            vocab_size=config.vocab_size,
            max_position_embeddings=config.max_position_embeddings,
            n_layers=len(blocks),
            n_heads=config.num_attention_heads,
            dim=config.hidden_size,
            hidden_dim=config.intermediate_size,
            dropout=config.hidden_dropout_prob,
            attention_dropout=config.attention_probs_dropout_prob,
            activation=config.hidden_act,
            pad_token_id=config.pad_token_id,
        )
    )
    made.load_state_dict(found)
    return made.eval()


def student(teacher: Path, folder: Path) -> Path:
    """The folder of a DistilBERT of every other block, whose conversion was checked on the whole model."""
    bert = AutoModel.from_pretrained(teacher).eval()
    depth = bert.config.num_hidden_layers
    tokens = torch.randint(bert.config.vocab_size, (4, 16), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        whole = distilbert(bert, tuple(range(depth)))(tokens).last_hidden_state
        if not torch.allclose(whole, bert(tokens).last_hidden_state, atol=1e-4):
            raise LdsearchError("converted to DistilBERT, the whole model does not say the same")
    distilbert(bert, every_other(depth, depth // 2)).save_pretrained(folder)
    # DistilBERT has no segments.
    inputs = ["input_ids", "attention_mask"]
    AutoTokenizer.from_pretrained(teacher, model_input_names=inputs).save_pretrained(folder)
    return folder


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bert", type=Path)
    parser.add_argument("student", type=Path)
    chosen = parser.parse_args()
    print(json.dumps(str(student(chosen.bert, chosen.student))))
