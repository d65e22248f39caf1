"""The learned token score: which tokens it keeps, and that its weights go where the model goes."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from transformers import AutoModelForSequenceClassification, BertTokenizer

from ldsearch.errors import SupernetError
from ldsearch.export.card import Provenance
from ldsearch.export.folder import write_huggingface
from ldsearch.export.loading import load_exported
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.folder import load_model, save_model
from ldsearch.supernet.heads import HEADS
from ldsearch.supernet.left_behind import MAP
from ldsearch.supernet.saliency import LEARNED, WEIGHTS, WEIGHTS_FILE, score_weights
from ldsearch.supernet.supernet import inference
from ldsearch.testing.inputs import one_of_each
from tests.tiny import FAMILIES, learned, padded_batch, tiny_model

TOKENIZER = BertTokenizer(vocab={"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4})
BATCH = padded_batch([9, 6, 12])
HALVES = Subnet.of_encoder([0, 1, 2], [12, 8, 4], 24)
UNKNOWN = Provenance("x", None, None, {}, None, {})


def test_the_tokens_that_stay_have_the_largest_sums_of_state_and_context():
    """By the stock model's own hidden states, its eager attention written out."""
    model = tiny_model("bert", blocks=1, head="TokenClassification")
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
    added = set(model.state_dict()) - before
    assert added == {f"bert.encoder.layer.{index}.{WEIGHTS}" for index in range(4)}


def test_an_unknown_score_names_the_learned_one_too():
    with pytest.raises(SupernetError, match="use one of learned, column, power"):
        Supernet(tiny_model("bert"), "nothing")


@pytest.mark.parametrize("family", FAMILIES)
def test_a_saved_model_keeps_its_weights(tmp_path: Path, family: str):
    supernet = learned(tiny_model(family, blocks=3))
    save_model(supernet.model, TOKENIZER, tmp_path)
    again = Supernet(load_model(str(tmp_path))[0], LEARNED)
    expected = inference(supernet, BATCH, HALVES)
    assert torch.equal(inference(again, BATCH, HALVES), expected)
    assert Supernet(load_model(str(tmp_path))[0]).score == LEARNED
    other = Supernet(load_model(str(tmp_path))[0], "column")
    assert not torch.allclose(inference(other, BATCH, HALVES), expected)


def test_stock_classes_load_what_is_saved_without_a_word(tmp_path: Path):
    supernet = learned(tiny_model("bert", blocks=3))
    save_model(supernet.model, TOKENIZER, tmp_path)
    model, found = AutoModelForSequenceClassification.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(found.values())
    torch.testing.assert_close(model.eval()(**BATCH).logits, inference(supernet, BATCH, supernet.full))


def test_weights_of_another_model_or_that_make_no_sense_are_refused(tmp_path: Path):
    model = learned(tiny_model("bert", blocks=3)).model
    save_model(model, TOKENIZER, tmp_path)
    own = score_weights(model)
    for weights, says in (
        (score_weights(learned(tiny_model("bert", blocks=4)).model), "no attribute"),
        (score_weights(learned(tiny_model("bert", blocks=2)).model), "no weights for block 2"),
        (score_weights(learned(tiny_model("bert", blocks=3, width=32)).model), "weights a layer"),
        ({name: tensor[None].contiguous() for name, tensor in own.items()}, "weights a layer"),
        ({name: tensor / 0 for name, tensor in own.items()}, "NaN or infinite"),
    ):
        save_file(weights, tmp_path / WEIGHTS_FILE)
        with pytest.raises(SupernetError, match=says):
            Supernet(load_model(str(tmp_path))[0], LEARNED)


def test_an_export_that_drops_needs_its_weights_and_stock_classes_see_none_in_another(tmp_path: Path):
    """That it chooses as the supernet does is the family contract's."""
    supernet, folders = learned(tiny_model("bert", blocks=3)), [tmp_path / "lengths", tmp_path / "depth"]
    short, depth = (one_of_each(3, 24)[kind] for kind in ("lengths", "no first block"))
    for subnet, folder in zip((short, depth), folders, strict=True):
        write_huggingface(supernet, TOKENIZER, subnet, folder, UNKNOWN)
    (folders[0] / WEIGHTS_FILE).unlink()
    with pytest.raises(SupernetError, match="has no token_score"):
        load_exported(folders[0])
    model, found = AutoModelForSequenceClassification.from_pretrained(folders[1], output_loading_info=True)
    assert not found["unexpected_keys"]
    expected = inference(supernet, BATCH, depth)
    torch.testing.assert_close(model.eval()(**BATCH).logits, expected, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_a_dropped_token_answers_with_its_state_mapped():
    net, ids = learned(tiny_model("bert", blocks=3, head="TokenClassification")), padded_batch([9])
    net.eval()
    states, (layer, *_) = [], net.layers_of("encoder")[1:]
    handle = layer.register_forward_pre_hook(lambda module, inputs: states.append(inputs[0].clone()))
    whole = inference(net, ids, net.full)
    handle.remove()
    short = inference(net, ids, Subnet.of_encoder([0, 1, 2], [9, 4, 4], 9))[0]
    weights = getattr(layer, MAP).double()
    rank = len(weights) // 2
    mapped = states[0][0].double() @ weights[:rank].T @ weights[rank:-1] + weights[-1]
    answers = net.model.classifier(mapped.float())
    alike = [place for place in range(9) if torch.allclose(answers[place], short[place], atol=1e-4)]
    assert len(alike) == 5
    dropped, other = Subnet.of_encoder([0, 1, 2], [9, 4, 4], 9), Supernet(net.model, "column").eval()
    by_attention = inference(other, ids, dropped)
    # What was fitted before there were maps keeps the states as they are, as other scores do.
    for own in net.layers_of("encoder"):
        delattr(own, MAP)
    before = inference(net, ids, Subnet.of_encoder([0, 1, 2], [9, 4, 4], 9))[0]
    assert torch.equal(before[[*{*range(9)} - {*alike}]], short[[*{*range(9)} - {*alike}]])
    torch.testing.assert_close(before[alike], net.model.classifier(states[0][0])[alike])
    assert torch.equal(inference(net, ids, net.full), whole)
    assert torch.equal(inference(other, ids, dropped), by_attention)


def test_maps_are_of_heads_that_tag_tokens_alone(tmp_path: Path):
    model = learned(tiny_model("bert", head="TokenClassification")).model
    save_model(model, TOKENIZER, tmp_path)
    for name in ("SequenceClassification", "QuestionAnswering", "MaskedLM"):
        other = Supernet(load_model(str(tmp_path), HEADS[name])[0], LEARNED)
        assert {*score_weights(other.model)} == {n for n in score_weights(model) if not n.endswith(MAP)}
    assert not Supernet(tiny_model("albert", head="TokenClassification"), LEARNED).shape.dropped_rank
    assert Supernet(model, LEARNED).shape.dropped_rank == 16


def test_a_map_of_another_width_is_refused(tmp_path: Path):
    model = learned(tiny_model("bert", head="TokenClassification")).model
    save_model(model, TOKENIZER, tmp_path)
    own = {
        name: tensor[:, 1:].contiguous() if name.endswith(MAP) else tensor
        for name, tensor in score_weights(model).items()
    }
    save_file(own, tmp_path / WEIGHTS_FILE)
    with pytest.raises(SupernetError, match="is of another model"):
        Supernet(load_model(str(tmp_path))[0], LEARNED)
