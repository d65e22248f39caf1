"""The registry of model families, keyed by the configuration's model type."""

from collections.abc import Mapping
from types import MappingProxyType

from transformers import PreTrainedConfig

from ldsearch.errors import SupernetError
from ldsearch.supernet.families.bert import BERT_LIKE
from ldsearch.supernet.families.distilbert import DistilBertFamily
from ldsearch.supernet.stages import Family

FAMILIES: Mapping[str, Family] = MappingProxyType(
    {family.model_type: family for family in (*BERT_LIKE, DistilBertFamily())}
)


def family_of(config: PreTrainedConfig) -> Family:
    """The family of a configuration.

    Raises:
        SupernetError: If the family is not supported; it names those that are.
    """
    try:
        return FAMILIES[config.model_type]
    except KeyError:
        supported = ", ".join(sorted(FAMILIES))
        raise SupernetError(
            f"model family {config.model_type!r} is not supported; supported: {supported}"
        ) from None
