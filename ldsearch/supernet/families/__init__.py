"""The registry of model families, keyed by the configuration's model type."""

from ldsearch.registry import Registry
from ldsearch.supernet.families.bart import BART_LIKE
from ldsearch.supernet.families.bert import BERT_LIKE
from ldsearch.supernet.families.distilbert import DistilBertFamily
from ldsearch.supernet.families.modernbert import ModernBertFamily
from ldsearch.supernet.stages import Family

FAMILIES: Registry[Family] = Registry(
    "families",
    {
        family.model_type: family
        for family in (*BERT_LIKE, DistilBertFamily(), ModernBertFamily(), *BART_LIKE)
    },
)
