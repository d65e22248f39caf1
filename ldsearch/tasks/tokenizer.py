"""A WordPiece tokenizer trained on the spot, for models that start from scratch."""

from collections.abc import Iterable

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import BertTokenizer, PreTrainedTokenizerBase

_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def train_wordpiece(texts: Iterable[str], vocabulary: int) -> PreTrainedTokenizerBase:
    """A lower-casing BERT tokenizer of at most ``vocabulary`` pieces (Devlin et al. 2019, Sec. 4).

    The same texts give the same ids, here and in another process.
    """
    texts = list(texts)
    model = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    model.normalizer = normalizers.BertNormalizer(lowercase=True)
    model.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner: set[str] = set()
    for text in texts:
        for word, _ in model.pre_tokenizer.pre_tokenize_str(model.normalizer.normalize_str(text)):
            inner.update(word[1:])
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocabulary,
        # Left alone, the trainer numbers the inner characters in the order of a randomly seeded hash map
        # and breaks ties between merges by these numbers: name them first.
        special_tokens=[*_SPECIAL, *sorted(f"##{character}" for character in inner)],
        show_progress=False,
        min_frequency=2,
    )
    model.train_from_iterator(texts, trainer)
    return BertTokenizer(vocab=model.get_vocab())
