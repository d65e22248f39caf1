"""Tiny random models with randomised norms (fresh norms are the identity and hide mistakes), and batches."""

from fractions import Fraction

import torch
from transformers import AutoConfig, PreTrainedModel

from ldsearch import testing
from ldsearch.supernet import Supernet
from ldsearch.supernet.correction import CORRECTION
from ldsearch.supernet.heads import HEADS
from ldsearch.supernet.left_behind import MAP
from ldsearch.supernet.saliency import LEARNED, WEIGHTS
from ldsearch.training.strategies import Setting, StackSetting

VOCABULARY = 60
# Each with parts of its own, and those whose parts are the first's under other names.
OWN_PARTS = ("bert", "distilbert", "roberta", "electra", "modernbert", "megatron-bert", "mpnet", "deberta-v2")
FAMILIES = (
    *OWN_PARTS,
    *("xlm-roberta", "camembert", "data2vec-text", "roberta-prelayernorm", "xlm-roberta-xl", "ernie"),
    *("nomic_bert", "gte", "jina_embeddings_v3"),
)
OFFSET = ("camembert", "data2vec", "roberta", "xlm-roberta")  # positions begin behind the padding's
NO_SPANS = ("nomic_bert", "gte")  # whose stock classes have no head for questions
EAGER = ("megatron-bert", "mpnet", "deberta-v2")
HEADED = tuple(name for name, head in HEADS.items() if not head.generates)
DECODERS = ("gpt2", "llama", "mistral", "qwen2", "qwen3")
ENCODER_DECODERS = ("bart", "marian", "mbart", "pegasus", "t5", "t5-gated")


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
    sizes: dict[str, object] = {
        "hidden_size": width,
        "num_hidden_layers": blocks,
        "num_attention_heads": 2,
        "intermediate_size": 2 * width,
    }
    if family == "distilbert":
        sizes = {"dim": width, "n_layers": blocks, "n_heads": 2, "hidden_dim": 2 * width}
    if family == "electra":
        sizes["embedding_size"] = width // 2  # as in the small models
    if family == "albert":
        sizes |= {"embedding_size": width, "hidden_act": "gelu"}
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
    if family == "nomic_bert":  # whose configuration has none
        sizes |= {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
    if family == "deberta-v2":
        # As in the released models, but with so few buckets that far positions share some.
        sizes |= {
            "relative_attention": True,
            "position_buckets": 6,
            "max_relative_positions": 20,
            "norm_rel_ebd": "layer_norm",
            "share_att_key": True,
            "pos_att_type": "p2c|c2p",
            "position_biased_input": False,
        }
    config = AutoConfig.for_model(
        family,
        vocab_size=VOCABULARY,
        # The first belongs to padding, in MPNet the second.
        max_position_embeddings=positions + (2 if family == "mpnet" else family.startswith(OFFSET)),
        pad_token_id=0,
        num_labels=2 if head == "QuestionAnswering" else labels,
        **sizes,
    )
    # Their stock classes have no other.
    config._attn_implementation = "eager" if family in EAGER else attention
    model = HEADS[head].auto.from_config(config)
    return testing.randomised(model)


def heads_of(family: str) -> tuple[str, ...]:
    """The heads that a family's stock classes have."""
    return tuple(head for head in HEADED if head != "QuestionAnswering" or family not in NO_SPANS)


def tiny_decoder(name: str, **changes: object) -> PreTrainedModel:
    """A random causal language model of 4 blocks; windows of 4 tokens, in qwen2's last two blocks only."""
    sizes: dict[str, object] = {"n_embd": 16, "n_layer": 4, "n_head": 4, "n_positions": 64}
    if name != "gpt2":
        sizes = {
            "hidden_size": 16,
            "intermediate_size": 24,
            "num_hidden_layers": 4,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 64,
        }
    own: dict[str, dict[str, object]] = {
        "mistral": {"sliding_window": 4},
        "qwen2": {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 2},
        "qwen3": {"head_dim": 8},
    }
    tokens = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    return _random(name, "CausalLM", {**sizes, **tokens, **own.get(name, {}), **changes})


def tiny_encoder_decoder(name: str, head: str = "Seq2SeqLM", **changes: object) -> PreTrainedModel:
    """A random encoder-decoder of 3 and 4 blocks; ``t5-gated`` has a gate and an untied head."""
    tokens = {"pad_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2}
    if name.startswith("t5"):
        sizes: dict[str, object] = {"d_kv": 4, "d_ff": 24, "num_layers": 3, "num_decoder_layers": 4}
        sizes |= {"num_heads": 4, "relative_attention_num_buckets": 8, "relative_attention_max_distance": 12}
        if name == "t5-gated":
            # As in mT5-small, heads are wider together than the model.
            sizes |= {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "d_kv": 6}
        return _random("t5", head, {"d_model": 16, **tokens, **sizes, **changes})
    sizes = {
        f"{stack}_{size}": value
        for stack, blocks in (("encoder", 3), ("decoder", 4))
        for size, value in (("layers", blocks), ("attention_heads", 4), ("ffn_dim", 24))
    }
    tokens |= {"bos_token_id": 1, "max_position_embeddings": 64, "d_model": 16}
    return _random(name, head, {**tokens, **sizes, **changes})


def _random(model_type: str, head: str, fields: dict[str, object]) -> PreTrainedModel:
    torch.manual_seed(0)
    return testing.randomised(
        HEADS[head].auto.from_config(AutoConfig.for_model(model_type, **{"vocab_size": VOCABULARY, **fields}))
    )


def learned(model: PreTrainedModel, seed: int = 0) -> Supernet:
    """A supernet whose learned token score has random weights."""
    supernet, generator = Supernet(model, LEARNED), torch.Generator().manual_seed(seed)
    for module in (*supernet.layers_of("encoder"), model):
        for name in (WEIGHTS, MAP, CORRECTION):
            if (own := getattr(module, name, None)) is not None:
                own.normal_(generator=generator)
    return supernet


def padded_batch(lengths: list[int], seed: int = 0) -> dict[str, torch.Tensor]:
    """Random ids of the given true lengths, padded on the right with id 0."""
    return testing.padded_batch(lengths, VOCABULARY, seed=seed)


def row(batch: dict[str, torch.Tensor], index: int) -> dict[str, torch.Tensor]:
    """One row of a batch without its padding."""
    length = int(batch["attention_mask"][index].sum())
    return {name: tensor[index : index + 1, :length] for name, tensor in batch.items()}


def small_setting(rate: float, **changes: object) -> Setting:
    """What a strategy is told of a tiny model of 4 blocks."""
    return Setting({"encoder": StackSetting(4, (rate,) * 4)}, 16, Fraction(9, 25), **changes)
