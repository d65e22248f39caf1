"""A WordPiece tokenizer trained on the spot, for models that start from scratch."""

from collections.abc import Iterable

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import BertTokenizer, PreTrainedTokenizerBase

_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def train_wordpiece(texts: Iterable[str], vocabulary: int) -> PreTrainedTokenizerBase:
    """A lower-casing BERT tokenizer of at most ``vocabulary`` pieces (Devlin et al. 2019, Sec. 4)."""
    model = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    model.normalizer = normalizers.BertNormalizer(lowercase=True)
    model.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocabulary, special_tokens=_SPECIAL, show_progress=False, min_frequency=2
    )
    model.train_from_iterator(texts, trainer)
    return BertTokenizer(vocab=model.get_vocab())
