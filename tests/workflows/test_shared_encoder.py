"""Encoder outputs that models share: computed once a batch, and answers as without sharing."""

from functools import wraps

import pytest
import torch

from ldsearch.evaluation.decoding import Decoding, decode
from ldsearch.search.generation import SharedEncoder
from ldsearch.subnet import Lengths, Stack, Subnet
from ldsearch.supernet import Supernet
from tests.translators import sentences, tiny_translator, word_tokenizer

TOKENIZER, SOURCES = word_tokenizer(), sentences(14, seed=1)
# Beam search changes the encoder outputs that it is given.
DECODING = Decoding(beams=2, length_penalty=0.6, max_length=8)
ENCODERS = {
    "full": Stack((0, 1)),
    "cut": Stack((1,)),
    "short": Stack((0, 1), Lengths((8, 5), 12)),
    "grouped": Stack((0, 1), heads_off=((0, 1),), sublayers_off=((1, "feed_forward"),)),
}
DECODERS = (Stack((0,)), Stack((0, 1)), Stack((1,)))


@pytest.fixture(scope="module", params=["marian", "bart"])
def supernet(request) -> Supernet:
    return Supernet(tiny_translator(request.param), memory="kept").eval()


def runs_of(supernet: Supernet, monkeypatch) -> list[str]:
    """One entry for each pass of any encoder: the stock one's, or that of dropped tokens."""
    seen: list[str] = []
    for owner, name in ((type(supernet.model.get_encoder()), "forward"), (Supernet, "encoded")):
        original = getattr(owner, name)

        @wraps(original)  # generate reads its signature
        def watched(*inputs, original=original, name=name, **named):
            seen.append(name)
            return original(*inputs, **named)

        monkeypatch.setattr(owner, name, watched)
    return seen


@pytest.mark.parametrize("name", ENCODERS)
def test_answers_are_those_of_each_model_alone_and_the_encoder_runs_once(supernet, name, monkeypatch):
    encoder = ENCODERS[name]
    models = [supernet.materialise(Subnet(encoder=encoder, decoder=decoder)) for decoder in DECODERS]
    how = {"max_source": 20, "batch_size": 5}
    alone = [decode(model, TOKENIZER, SOURCES, DECODING, **how) for model in models]
    assert len({tuple(texts) for texts in alone}) == 3
    runs = runs_of(supernet, monkeypatch)
    for encode, expected in ((SharedEncoder(), 3), (SharedEncoder(0), 9)):
        found = [decode(model, TOKENIZER, SOURCES, DECODING, **how, encode=encode) for model in models]
        assert found == alone
        assert len(runs) == expected  # batches, or batches of each model
        runs.clear()


def test_what_does_not_fit_is_not_kept(supernet):
    model = supernet.materialise(supernet.full)
    batch = TOKENIZER(SOURCES[:3], padding=True, return_tensors="pt")
    rows = {name: batch[name] for name in ("input_ids", "attention_mask")}
    width = rows["input_ids"].shape[1]
    size = 3 * width * (4 * 16 + 8)
    for budget, left in ((size - 1, size - 1), (size, 0)):
        encode = SharedEncoder(budget)
        with torch.no_grad():
            first, again = (encode(model, rows)["encoder_outputs"] for _ in range(2))
        assert first is not again
        assert torch.equal(first.last_hidden_state, again.last_hidden_state)
        assert encode.left == left
