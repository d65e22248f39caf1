"""Tokenizers: those trained on the spot, for models that start from scratch, and what tasks need of one."""

from collections.abc import Iterable

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import BertTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from ldsearch.errors import DataError

_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
_PAD, _END = "<pad>", "</s>"


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


def train_bpe(texts: Iterable[str], vocabulary: int) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer of at most ``vocabulary`` pieces (Radford et al. 2019, Sec. 2.2).

    Nothing is unknown to it and decoding gives the text back. It pads on the right with ``<pad>`` (0), and
    ends a text in ``</s>`` (1). The same texts give the same ids, here and in another process.

    Raises:
        DataError: If the vocabulary has no room for the bytes and the special tokens.
    """
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    if vocabulary < (least := len(alphabet) + 2):
        raise DataError(f"a vocabulary of {vocabulary} has no room for every byte: {least} are the least")
    model = Tokenizer(models.BPE())
    model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        min_frequency=2,
        special_tokens=[_PAD, _END],
        initial_alphabet=alphabet,
        show_progress=False,
    )
    model.train_from_iterator(texts, trainer)
    end = (_END, model.token_to_id(_END))
    model.post_processor = processors.TemplateProcessing(
        single=f"$A {_END}", pair=f"$A {_END} $B {_END}", special_tokens=[end]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=model,
        pad_token=_PAD,
        eos_token=_END,
        padding_side="right",
        clean_up_tokenization_spaces=False,
        model_input_names=["input_ids", "attention_mask"],
    )


def require_fast(tokenizer: PreTrainedTokenizerBase) -> None:
    """Refuse a tokenizer that does not say where its tokens come from.

    Raises:
        DataError: If it is a slow one.
    """
    if not tokenizer.is_fast:
        raise DataError(
            f"{type(tokenizer).__name__} does not say which words or characters a token covers: the task "
            "needs a fast tokenizer (tokenizer.json)"
        )
