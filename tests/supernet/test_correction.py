"""The correction of vectors of texts that lost tokens: by its formula, where it is, and what it costs."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch.utils.flop_counter import FlopCounterMode

from ldsearch.costs.workload import Workload
from ldsearch.errors import SupernetError
from ldsearch.export.folder import write_huggingface
from ldsearch.export.loading import load_exported
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.correction import CORRECTION, correction_of
from ldsearch.supernet.embedding import OUTPUT
from ldsearch.supernet.folder import load_model, save_model
from ldsearch.supernet.heads import HEADS
from ldsearch.supernet.saliency import LEARNED, WEIGHTS_FILE, score_weights
from ldsearch.supernet.supernet import inference
from tests.supernet.test_saliency import TOKENIZER, UNKNOWN
from tests.tiny import FAMILIES, learned, padded_batch, tiny_model

HEAD = "SentenceEmbedding"
BLOCKS = 3
BATCH = padded_batch([12, 9, 1, 5], seed=2)
SHORT = Subnet.of_encoder(range(BLOCKS), [10, 4, 4], 12)  # of a single token nothing is dropped


def sentences(family: str, *, normalised: bool) -> Supernet:
    """With random weights of score and correction."""
    model = tiny_model(family, blocks=BLOCKS, head=HEAD)
    setattr(model.config, OUTPUT, {"pooling": "mean", "normalised": normalised})
    return learned(model)


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_a_vector_is_moved_by_what_entered_and_what_was_kept(family: str):
    """By the means that the stock embeddings and the sub-network without a correction give."""
    net = sentences(family, normalised=False).eval()
    found, whole = inference(net, BATCH, SHORT), inference(net, BATCH, net.full)
    entered: list[torch.Tensor] = []
    handle = net.layers_of("encoder")[0].register_forward_pre_hook(
        lambda layer, given: entered.append(given[0].double())
    )
    assert torch.equal(inference(net, BATCH, net.full), whole)  # its weights change no full model
    handle.remove()
    weights = correction_of(net.model).double()
    correction_of(net.model).zero_()
    kept = inference(net, BATCH, SHORT).double()
    for row, (n, left) in enumerate(zip((12, 9, 1, 5), (4, 3, 1, 2), strict=True)):
        features = torch.cat([entered[0][row, :n].mean(dim=0), kept[row], torch.ones(1)])
        wanted = kept[row] + (1 - left / n) * features @ weights
        torch.testing.assert_close(found[row].double(), wanted, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(found[2], whole[2], atol=1e-5, rtol=1e-5)


def test_what_is_normalised_is_what_was_moved():
    plain, normalised = (inference(sentences("bert", normalised=own), BATCH, SHORT) for own in (False, True))
    torch.testing.assert_close(torch.nn.functional.normalize(plain, dim=-1), normalised)


def test_an_export_moves_vectors_too_and_one_of_blocks_alone_holds_nothing_of_it(tmp_path: Path):
    net = sentences("bert", normalised=True).eval()
    for name, subnet in (("short", SHORT), ("depth", Subnet.of_encoder([0, 2]))):
        write_huggingface(net, TOKENIZER, subnet, tmp_path / name, UNKNOWN)
        torch.testing.assert_close(
            load_exported(tmp_path / name)(**BATCH).sentence_embedding,
            inference(net, BATCH, subnet),
            atol=1e-5,
            rtol=1e-5,
        )
        assert (tmp_path / name / WEIGHTS_FILE).is_file() == (subnet is SHORT)


def test_its_cost_is_what_torch_counts():
    net = sentences("bert", normalised=True)
    net.model.set_attn_implementation("eager")
    for lengths in ([10, 4, 4], [12, 12, 12]):
        subnet, counted = Subnet.of_encoder(range(BLOCKS), lengths, 12), []
        for rows in (1, 2):
            with FlopCounterMode(display=False) as counter:
                inference(net, padded_batch([12] * rows), subnet)
            counted.append(counter.get_total_flops() / 2)
        assert net.macs(Workload.padded(12))([subnet])[0] == counted[1] - counted[0]


def test_it_is_of_means_alone_and_what_was_saved_before_has_none(tmp_path: Path):
    model = sentences("bert", normalised=True).model
    save_model(model, TOKENIZER, tmp_path)
    assert torch.equal(
        correction_of(Supernet(load_model(str(tmp_path))[0], LEARNED).model), correction_of(model)
    )
    weights = score_weights(model)
    for name in ("SequenceClassification", "QuestionAnswering"):
        other = Supernet(load_model(str(tmp_path), HEADS[name])[0], LEARNED)
        assert correction_of(other.model) is None
    # Nor is it read where another score chooses tokens.
    for head in (HEAD, "SequenceClassification"):
        torch.manual_seed(0)  # of a head that is new
        other = Supernet(load_model(str(tmp_path), HEADS[head])[0], "column").eval()
        assert not other.shape.correcting
        moved = inference(other, BATCH, SHORT)
        other.model._buffers.pop(CORRECTION)
        torch.testing.assert_close(moved, inference(other, BATCH, SHORT))
    save_file({**weights, CORRECTION: weights[CORRECTION][1:].contiguous()}, tmp_path / WEIGHTS_FILE)
    with pytest.raises(SupernetError, match="is of another model"):
        Supernet(load_model(str(tmp_path))[0], LEARNED)
    save_file({name: own for name, own in weights.items() if name != CORRECTION}, tmp_path / WEIGHTS_FILE)
    before = Supernet(load_model(str(tmp_path))[0], LEARNED)
    assert correction_of(before.model) is None
    correction_of(model).zero_()
    same = inference(Supernet(model, LEARNED), BATCH, SHORT)
    torch.testing.assert_close(inference(before, BATCH, SHORT), same)
    first = tiny_model("bert", blocks=BLOCKS, head=HEAD)
    setattr(first.config, OUTPUT, {"pooling": "cls"})
    assert correction_of(learned(first).model) is None
