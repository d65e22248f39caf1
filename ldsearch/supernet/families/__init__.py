"""The registry of model families, keyed by the configuration's model type."""

from ldsearch.registry import Registry
from ldsearch.supernet.families.albert import Albert
from ldsearch.supernet.families.bart import BartLike
from ldsearch.supernet.families.bert import BertLike, DistilBert
from ldsearch.supernet.families.deberta import DebertaV2
from ldsearch.supernet.families.family import Family
from ldsearch.supernet.families.modernbert import ModernBert
from ldsearch.supernet.families.mpnet import MPNet
from ldsearch.supernet.families.nomic import Nomic
from ldsearch.supernet.families.t5 import T5

__all__ = ["FAMILIES", "Family"]

FAMILIES: Registry[Family] = Registry(
    "families",
    {
        **dict.fromkeys(
            ("bert", "roberta", "xlm-roberta", "electra", "camembert", "data2vec-text", "ernie"), BertLike()
        ),
        "roberta-prelayernorm": BertLike(("attention.LayerNorm", "intermediate.LayerNorm"), "LayerNorm"),
        "megatron-bert": BertLike(("attention.ln", "ln"), "encoder.ln"),
        "xlm-roberta-xl": BertLike(("attention.self_attn_layer_norm", "LayerNorm"), "encoder.LayerNorm"),
        "albert": Albert(),
        "distilbert": DistilBert(),
        "deberta-v2": DebertaV2(),
        "modernbert": ModernBert(),
        **dict.fromkeys(("nomic_bert", "gte", "jina_embeddings_v3"), Nomic()),
        "mpnet": MPNet(),
        **dict.fromkeys(("t5", "mt5"), T5()),
        "bart": BartLike(positions_of_ids=True),
        "marian": BartLike(scales=True),
        "mbart": BartLike(pre_norm=True, positions_of_ids=True),
        "pegasus": BartLike(pre_norm=True, scales=True),
    },
)
