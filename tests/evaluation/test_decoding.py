"""Answers in batches: those of stock ``generate`` one by one, whatever the model was saved with."""

import pytest
import torch
from torch import nn
from transformers import NllbTokenizer

from ldsearch.errors import DataError, LdsearchError, SupernetError
from ldsearch.evaluation.decoding import Decoding, decode, decode_batches
from tests.tiny import tiny_decoder, tiny_encoder_decoder, tiny_model
from tests.translators import PAD, sentences, tiny_translator, word_tokenizer

TOKENIZER = word_tokenizer()
SOURCES = sentences(14, seed=1)
DECODINGS = (
    Decoding(max_length=20),
    Decoding(beams=4, length_penalty=0.6, max_length=20),
    Decoding(beams=4, length_penalty=1.5, min_length=4, max_length=15, no_repeat_ngram=2),
)


def one_by_one(model, decoding, sources=SOURCES):
    """Stock generation without any padding, its options as keywords."""
    answers = []
    for source in sources:
        options = {"num_beams": decoding.beams, "max_new_tokens": decoding.max_length, "do_sample": False}
        if decoding.beams > 1:
            options |= {"length_penalty": decoding.length_penalty, "early_stopping": True}
        if decoding.min_length:
            options |= {"min_new_tokens": decoding.min_length}
        if decoding.no_repeat_ngram:
            options |= {"no_repeat_ngram_size": decoding.no_repeat_ngram}
        inputs = TOKENIZER(source, return_tensors="pt")
        options |= {"bad_words_ids": [[PAD]], "forced_eos_token_id": None}
        found = model.generate(inputs["input_ids"], **options)
        answers.append(TOKENIZER.decode(found[0], skip_special_tokens=True))
    return answers


@pytest.fixture(scope="module", params=["marian", "bart"])
def model(request):
    found = tiny_translator(request.param)
    found.generation_config.forced_eos_token_id = None  # which one_by_one cannot unset
    return found


@pytest.mark.parametrize("decoding", DECODINGS, ids=Decoding.describe)
def test_a_batch_answers_as_stock_generation_does_one_by_one(model, decoding):
    expected = one_by_one(model, decoding)
    # Else the comparison would say little: answers differ, and some end where their batch goes on.
    assert len(set(expected)) > 5
    assert len({len(answer.split()) for answer in expected}) > 2
    for batch_size in (5, 14):
        found = decode(model, TOKENIZER, SOURCES, decoding, max_source=20, batch_size=batch_size)
        assert found == expected, batch_size


SAVED = {
    "num_beams": 2,
    "max_length": 3,
    "min_length": 2,
    "do_sample": True,
    "temperature": 0.5,
    "no_repeat_ngram_size": 1,
    "encoder_no_repeat_ngram_size": 1,
    "repetition_penalty": 9.0,
    "bad_words_ids": [[5], [6], [7]],
    "begin_suppress_tokens": [8, 9],
    "forced_eos_token_id": 4,
}


def saved_with(monkeypatch, model, **fields):
    """Until the test ends."""
    own = type(model.generation_config).from_dict({**model.generation_config.to_dict(), **fields})
    monkeypatch.setattr(model, "generation_config", own)
    return own


def test_what_a_model_was_saved_with_changes_nothing_and_stays(model, monkeypatch):
    plain = decode(model, TOKENIZER, SOURCES[:6], DECODINGS[1], max_source=20)
    own = saved_with(monkeypatch, model, **SAVED)
    before = own.to_dict()
    assert decode(model, TOKENIZER, SOURCES[:6], DECODINGS[1], max_source=20) == plain
    assert model.generation_config is own
    assert own.to_dict() == before


def test_a_forced_first_token_is_kept(model, monkeypatch):
    saved_with(monkeypatch, model, forced_bos_token_id=TOKENIZER.convert_tokens_to_ids("bird"))
    answers = decode(model, TOKENIZER, SOURCES[:6], Decoding(max_length=8), max_source=20)
    assert all(answer.startswith("bird") for answer in answers)


def test_a_language_that_targets_begin_with_comes_first_though_the_model_names_none():
    pieces = ["<s>", "<pad>", "</s>", "<unk>", "▁", *"abcdefghij"]
    nllb = NllbTokenizer(
        {piece: i for i, piece in enumerate(pieces)}, [], src_lang="deu_Latn", tgt_lang="eng_Latn"
    )
    model = tiny_encoder_decoder("m2m_100", vocab_size=len(nllb), pad_token_id=1)
    texts, how = ["ab", "cdefg", "jih"], {"do_sample": False, "max_new_tokens": 8, "bad_words_ids": [[1]]}

    def stock(**forced):
        found = [model.generate(**nllb(text, return_tensors="pt"), **how, **forced)[0] for text in texts]
        return [nllb.decode(ids, skip_special_tokens=True) for ids in found]

    wanted = stock(forced_bos_token_id=nllb.convert_tokens_to_ids("eng_Latn"))
    assert wanted != stock()
    assert decode(model, nllb, texts, Decoding(max_length=8), max_source=20) == wanted


def test_pads_are_never_written_even_where_the_model_likes_them_best():
    model = tiny_translator("marian")
    model.final_logits_bias[0, PAD] = 100.0
    answers = decode(model, TOKENIZER, SOURCES[:4], Decoding(min_length=5, max_length=9), max_source=20)
    assert all(5 <= len(answer.split()) <= 9 for answer in answers)


class Wrapped(nn.Module):
    """A module around a model, as a sub-network of fixed lengths is one."""

    def __init__(self, model):
        super().__init__()
        self.inner = nn.ModuleDict({"model": model})
        self.config = model.config

    def generate(self, **inputs):
        return self.inner["model"].generate(**inputs)


def test_a_module_around_a_model_decodes_like_it(model, monkeypatch):
    plain = decode(model, TOKENIZER, SOURCES[:6], DECODINGS[1], max_source=20)
    saved_with(monkeypatch, model, num_beams=3)
    assert decode(Wrapped(model), TOKENIZER, SOURCES[:6], DECODINGS[1], max_source=20) == plain


def test_dropout_is_off_and_every_part_is_left_in_its_mode():
    model = tiny_translator("bart")
    quiet = decode(model, TOKENIZER, SOURCES[:6], DECODINGS[0], max_source=20)
    for part in model.modules():
        if isinstance(getattr(part, "dropout", None), float):
            part.dropout = 0.5
    model.train()
    model.get_encoder().eval()
    modes = [part.training for part in model.modules()]
    assert decode(model, TOKENIZER, SOURCES[:6], DECODINGS[0], max_source=20) == quiet
    assert [part.training for part in model.modules()] == modes
    assert torch.is_grad_enabled()


def test_sources_are_cut_keeping_their_end(model):
    long, cut = " ".join(["dog"] * 30), " ".join(["dog"] * 6)
    (answer,) = decode(model, TOKENIZER, [long], DECODINGS[0], max_source=7)
    assert [answer] == one_by_one(model, DECODINGS[0], [cut])


def test_the_longest_come_first_and_what_is_left_makes_the_same_batches(model):
    options = {"max_source": 20, "batch_size": 5}
    batches = list(decode_batches(model, TOKENIZER, SOURCES, DECODINGS[0], **options))
    rows = [row for batch in batches for row, _ in batch]
    lengths = [len(SOURCES[row].split()) for row in rows]
    assert lengths == sorted(lengths, reverse=True)
    assert sorted(rows) == list(range(14))
    left = sorted(rows[10:])
    rest = list(decode_batches(model, TOKENIZER, [SOURCES[row] for row in left], DECODINGS[0], **options))
    assert [[(left[row], answer) for row, answer in batch] for batch in rest] == batches[2:]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"beams": 0}, "1 beam or more"),
        ({"beams": 1, "length_penalty": 0.6}, "2 beams or more"),
        ({"beams": 4, "length_penalty": float("nan")}, "finite"),
        ({"min_length": -1}, "0..19"),
        ({"min_length": 8, "max_length": 8}, "0..7"),
        ({"max_length": 0}, "the most, 0"),
        ({"no_repeat_ngram": -1}, "not -1"),
        ({"max_length": 65}, "answers of 65"),
        ({"max_source": 65}, "64 positions, too few for sources of 65"),
        ({"max_source": 0}, "sources of 0 tokens"),
        ({"batch_size": 0}, "1 source or more"),
    ],
)
def test_options_that_make_no_sense(model, options, says):
    batches = {name: value for name, value in options.items() if name in ("max_source", "batch_size")}
    decoding = {name: value for name, value in options.items() if name not in batches}
    decoding, batches = {"max_length": 20, **decoding}, {"max_source": 20, **batches}
    with pytest.raises(LdsearchError, match=says):
        decode(model, TOKENIZER, SOURCES, Decoding(**decoding), **batches)


def test_what_cannot_be_decoded_is_refused(model):
    ordinary, bare = Decoding(max_length=20), word_tokenizer()
    bare.backend_tokenizer.post_processor = None
    with pytest.raises(DataError, match="source 2 has no tokens: ' '"):
        decode(model, bare, ["the dog", " "], ordinary, max_source=20)
    for other in (tiny_model("bert"), tiny_decoder("gpt2")):
        with pytest.raises(SupernetError, match="no encoder-decoder that generates"):
            decode(other, TOKENIZER, SOURCES, ordinary, max_source=20)


def test_as_many_tokens_as_there_are_positions_fit(model):
    (answer,) = decode(model, TOKENIZER, ["dog " * 70], Decoding(min_length=63, max_length=64), max_source=64)
    assert 63 <= len(answer.split()) <= 64
