"""The learned token score and what is fitted with it: by their formulas, and where their weights go.

That exports and costs know them is the family contract's.
"""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import AutoModelForSequenceClassification

from ldsearch.errors import SupernetError
from ldsearch.export.folder import write_huggingface
from ldsearch.export.loading import load_exported
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.correction import CORRECTION, correction_of
from ldsearch.supernet.embedding import OUTPUT
from ldsearch.supernet.folder import load_model, save_model
from ldsearch.supernet.heads import HEADS
from ldsearch.supernet.left_behind import MAP
from ldsearch.supernet.saliency import LEARNED, WEIGHTS, WEIGHTS_FILE, score_weights
from ldsearch.supernet.supernet import inference
from ldsearch.testing.inputs import one_of_each, stock_output
from tests.export.test_export import PROVENANCE, TOKENIZER
from tests.supernet.exported import graph_output
from tests.tiny import FAMILIES, HEADED, learned, padded_batch, tiny_model

BATCH = padded_batch([9, 6, 12])
HALVES = Subnet.of_encoder([0, 1, 2], [12, 8, 4], 24)
CLASSES, TAGS, SENTENCES = "SequenceClassification", "TokenClassification", "SentenceEmbedding"


def test_the_tokens_that_stay_have_the_largest_sums_of_state_and_context():
    """By the stock model's own hidden states, its eager attention written out."""
    model = tiny_model("bert", blocks=1, head=TAGS)
    net, ids = learned(model), padded_batch([9])
    entered = model(**ids, output_hidden_states=True).hidden_states[0][0]
    layer, width = model.bert.encoder.layer[0], model.config.hidden_size
    own = layer.attention.self
    query, key, value = (
        linear(entered).unflatten(-1, (own.num_attention_heads, -1)).transpose(0, 1)
        for linear in (own.query, own.key, own.value)
    )
    context = ((query @ key.mT / own.attention_head_size**0.5).softmax(-1) @ value).transpose(0, 1).flatten(1)
    scores = entered @ layer.token_score[:width] + context @ layer.token_score[width:]
    best = set(scores.topk(4).indices.tolist())
    whole = inference(net, ids, net.full)[0]
    short = inference(net, ids, Subnet.of_encoder([0], [4], 9))[0]
    alike = {place for place in range(9) if torch.allclose(whole[place], short[place], atol=1e-5)}
    assert alike == best  # what does not stay leaves as it entered


def test_stock_weights_are_untouched_and_other_scores_add_none():
    model = tiny_model("bert")
    before = set(model.state_dict())
    Supernet(model)
    assert set(model.state_dict()) == before
    Supernet(model, LEARNED)
    assert set(model.state_dict()) - before == {f"bert.encoder.layer.{index}.{WEIGHTS}" for index in range(4)}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_saved_model_keeps_its_weights_and_stock_classes_see_none(tmp_path: Path, family: str):
    supernet = learned(tiny_model(family, blocks=3))
    save_model(supernet.model, TOKENIZER, tmp_path)
    again = Supernet(load_model(str(tmp_path))[0])
    expected = inference(supernet, BATCH, HALVES)
    assert torch.equal(inference(again, BATCH, HALVES), expected)
    assert again.score == LEARNED
    other = Supernet(load_model(str(tmp_path))[0], "column")
    assert not torch.allclose(inference(other, BATCH, HALVES), expected)
    model, found = AutoModelForSequenceClassification.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(found.values())
    whole = inference(supernet, BATCH, supernet.full)
    torch.testing.assert_close(stock_output(model.eval(), BATCH), whole, atol=1e-5, rtol=1e-5)


def weights(head: str = CLASSES, blocks: int = 3, width: int = 16) -> dict[str, Tensor]:
    return score_weights(learned(tiny_model("bert", blocks=blocks, width=width, head=head)).model)


def narrower(own: dict[str, Tensor]) -> dict[str, Tensor]:
    """Of matrices a column is missing."""
    return {name: one[:, 1:].contiguous() if one.dim() > 1 else one for name, one in own.items()}


def test_weights_of_another_model_or_that_make_no_sense_are_refused(tmp_path: Path):
    for head, given, says in (
        (CLASSES, weights(blocks=4), "no attribute"),
        (CLASSES, weights(blocks=2), "no weights for block 2"),
        (CLASSES, weights(width=32), "weights a layer"),
        (CLASSES, {name: one[None].contiguous() for name, one in weights().items()}, "weights a layer"),
        (CLASSES, {name: one / 0 for name, one in weights().items()}, "NaN or infinite"),
        (TAGS, narrower(weights(TAGS)), "is of another model"),
        (SENTENCES, narrower(weights(SENTENCES)), "its vectors have not 16 numbers"),
    ):
        save_model(tiny_model("bert", blocks=3, head=head), TOKENIZER, tmp_path)
        save_file(given, tmp_path / WEIGHTS_FILE)
        with pytest.raises(SupernetError, match=says):
            Supernet(load_model(str(tmp_path))[0], LEARNED)


def test_an_export_that_drops_needs_its_weights_and_another_holds_none(tmp_path: Path):
    for head in (CLASSES, TAGS, SENTENCES):
        supernet, folders = learned(tiny_model("bert", blocks=3, head=head)), []
        for kind in ("lengths", "no first block"):
            subnet = one_of_each(3, 24)[kind]
            written = write_huggingface(supernet, TOKENIZER, subnet, tmp_path / head / kind, PROVENANCE)
            folders.append(written.folder)
        (folders[0] / WEIGHTS_FILE).unlink()
        with pytest.raises(SupernetError, match="has no token_score"):
            load_exported(folders[0])
        assert not (folders[1] / WEIGHTS_FILE).exists()
    depth = tmp_path / CLASSES / "no first block"
    _, found = AutoModelForSequenceClassification.from_pretrained(depth, output_loading_info=True)
    assert not found["unexpected_keys"]


@torch.no_grad()
def test_a_dropped_token_answers_with_its_state_mapped():
    net, ids = learned(tiny_model("bert", blocks=3, head=TAGS)), padded_batch([9])
    net.eval()
    states, (layer, *_) = [], net.layers_of("encoder")[1:]
    handle = layer.register_forward_pre_hook(lambda module, inputs: states.append(inputs[0].clone()))
    whole = inference(net, ids, net.full)
    handle.remove()
    dropped, other = Subnet.of_encoder([0, 1, 2], [9, 4, 4], 9), Supernet(net.model, "column").eval()
    short, by_attention = inference(net, ids, dropped)[0], inference(other, ids, dropped)
    own = getattr(layer, MAP).double()
    rank = len(own) // 2
    mapped = states[0][0].double() @ own[:rank].T @ own[rank:-1] + own[-1]
    answers = net.model.classifier(mapped.float())
    alike = torch.tensor([torch.allclose(answers[place], short[place], atol=1e-4) for place in range(9)])
    assert alike.sum() == 5
    # What was fitted before there were maps keeps the states as they are, as other scores do.
    for each in net.layers_of("encoder"):
        delattr(each, MAP)
    before = inference(net, ids, dropped)[0]
    assert torch.equal(before[~alike], short[~alike])
    torch.testing.assert_close(before[alike], net.model.classifier(states[0][0])[alike])
    assert torch.equal(inference(net, ids, net.full), whole)
    assert torch.equal(inference(other, ids, dropped), by_attention)


def test_maps_are_of_heads_that_tag_tokens_and_corrections_of_means_alone(tmp_path: Path):
    for saved, own in ((TAGS, MAP), (SENTENCES, CORRECTION)):
        save_model(learned(tiny_model("bert", head=saved)).model, TOKENIZER, tmp_path)
        for head in HEADED:
            other = Supernet(load_model(str(tmp_path), HEADS[head])[0], LEARNED)
            kinds = {name.rpartition(".")[2] for name in score_weights(other.model)}
            assert kinds == ({WEIGHTS, own} if head == saved else {WEIGHTS}), head
    first = tiny_model("bert", head=SENTENCES)
    setattr(first.config, OUTPUT, {"pooling": "cls"})
    assert correction_of(learned(first).model) is None
    for family, rank in (("bert", 16), ("albert", 0)):
        assert Supernet(tiny_model(family, head=TAGS), LEARNED).shape.dropped_rank == rank


LENGTHS = (12, 9, 1, 5)
TEXTS = padded_batch([*LENGTHS], seed=2)
SHORT = Subnet.of_encoder(range(3), [10, 4, 4], 12)  # of a single token nothing is dropped


def sentences(family: str = "bert", *, normalised: bool = True) -> Supernet:
    model = tiny_model(family, blocks=3, head=SENTENCES)
    setattr(model.config, OUTPUT, {"pooling": "mean", "normalised": normalised})
    return learned(model).eval()


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_a_vector_is_moved_by_what_entered_and_what_was_kept(family: str):
    """By the means that the stock embeddings and the sub-network without a correction give."""
    net = sentences(family, normalised=False)
    found, whole = inference(net, TEXTS, SHORT), inference(net, TEXTS, net.full)
    entered: list[torch.Tensor] = []
    handle = net.layers_of("encoder")[0].register_forward_pre_hook(
        lambda layer, given: entered.append(given[0].double())
    )
    assert torch.equal(inference(net, TEXTS, net.full), whole)  # its weights change no full model
    handle.remove()
    own = correction_of(net.model).double()
    correction_of(net.model).zero_()
    kept = inference(net, TEXTS, SHORT).double()
    for row, (n, left) in enumerate(zip(LENGTHS, (4, 3, 1, 2), strict=True)):
        features = torch.cat([entered[0][row, :n].mean(dim=0), kept[row], torch.ones(1)])
        wanted = kept[row] + (1 - left / n) * features @ own
        torch.testing.assert_close(found[row].double(), wanted, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(found[2], whole[2], atol=1e-5, rtol=1e-5)


def test_what_is_normalised_is_what_was_moved_in_a_graph_too():
    nets = [sentences(normalised=own) for own in (False, True)]
    plain, normalised = (inference(net, TEXTS, SHORT) for net in nets)
    torch.testing.assert_close(torch.nn.functional.normalize(plain, dim=-1), normalised)
    torch.testing.assert_close(graph_output(nets[1], SHORT, TEXTS), normalised, atol=1e-5, rtol=1e-4)


def test_a_model_saved_before_has_no_correction_and_another_score_reads_none(tmp_path: Path):
    model = sentences().model
    save_model(model, TOKENIZER, tmp_path)
    other = Supernet(load_model(str(tmp_path))[0], "column")
    assert not other.shape.correcting
    moved = inference(other, TEXTS, SHORT)
    other.model._buffers.pop(CORRECTION)
    torch.testing.assert_close(moved, inference(other, TEXTS, SHORT))
    save_file({n: one for n, one in score_weights(model).items() if n != CORRECTION}, tmp_path / WEIGHTS_FILE)
    before = Supernet(load_model(str(tmp_path))[0], LEARNED)
    assert correction_of(before.model) is None
    correction_of(model).zero_()
    same = inference(Supernet(model, LEARNED), TEXTS, SHORT)
    torch.testing.assert_close(inference(before, TEXTS, SHORT), same)
