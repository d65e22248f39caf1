"""Heads: what one that pools reads of dropped tokens, what they cost, which there are."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from ldsearch.errors import SupernetError
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.heads import HEADS, head_named, logits_of
from ldsearch.supernet.supernet import inference
from tests.tiny import FAMILIES, HEADED, padded_batch, row, tiny_model

REFERENCE = 12


def best(scores: torch.Tensor, count: int) -> list[int]:
    return sorted(scores.argsort(descending=True)[:count].tolist())


def test_a_head_that_pools_the_mean_reads_restored_tokens():
    model = tiny_model("modernbert")
    model.config.classifier_pooling = "mean"
    supernet = Supernet(model)
    assert not supernet.reads_first
    batch = padded_batch([12, 9])
    with torch.inference_mode():
        assert torch.equal(inference(supernet, batch, Subnet.full(4)), model(**batch).logits)
    # The last length matters to a mean, as it does not to the first token.
    first = inference(supernet, batch, Subnet.of_encoder(range(4), [12, 12, 12, 6], REFERENCE))
    last = inference(supernet, batch, Subnet.of_encoder(range(4), [12, 12, 12, 1], REFERENCE))
    assert not torch.allclose(first, last, atol=1e-3)
    # Dropped after the last attention, tokens carry the block before: half of them, by hand.
    with torch.inference_mode():
        stock = model(**row(batch, 0), output_hidden_states=True).hidden_states
    with torch.inference_mode():
        last_block = supernet.layers_of("encoder")[3]
        state = supernet.family.embed(model, row(batch, 0))
        for layer in supernet.layers_of("encoder")[:3]:
            state = type(state)(
                supernet.family.run(layer, state, model.config), state.real, None, state.per_token
            )
        torch.testing.assert_close(state.hidden, stock[3])
        attention = supernet.family.attention(supernet.family.parts(last_block), state)
        stay = best(attention.probabilities.sum(dim=(1, 2))[0], 6)
        out = supernet.family.run(last_block, state, model.config)
        mixed = state.hidden.clone()
        mixed[:, stay] = out[:, stay]
        pooled = model.model.final_norm(mixed).mean(dim=1)
        expected = model.classifier(model.drop(model.head(pooled)))
    torch.testing.assert_close(first[:1], expected)


@pytest.mark.parametrize("head", HEADED)
@pytest.mark.parametrize("family", FAMILIES)
def test_macs_of_a_head_are_what_a_counter_counts_of_a_model_without_blocks(family, head):
    supernet = Supernet(tiny_model(family, attention="eager", head=head))
    batch, nothing = padded_batch([7]), Subnet.of_encoder([])
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        supernet(batch, nothing)
    counted = counter.get_total_flops() / 2
    shape = supernet.shape
    assert shape.head_per_example + 7 * shape.head_per_token == counted > 0


@pytest.mark.parametrize(
    "name",
    # The last two are encoders that look both ways.
    ["BertForMultipleChoice", "BertModel", "", "ForNothing", "BertLMHeadModel", "RobertaForCausalLM"],
)
def test_other_heads_are_refused_with_those_there_are(name):
    with pytest.raises(
        SupernetError, match="only heads for SequenceClassification, TokenClassification"
    ) as no:
        head_named(name)
    assert not str(no.value).startswith(":")
    assert head_named("XLMRobertaForMaskedLM") is HEADS["MaskedLM"]


def test_both_ends_of_a_span_are_one_tensor():
    model = tiny_model("bert", head="QuestionAnswering")
    batch = padded_batch([5, 3])
    with torch.inference_mode():
        stock = model(**batch)
        ours = logits_of(Supernet(model)(batch, Subnet.full(4)))
    assert ours.shape == (2, 5, 2)
    assert torch.equal(ours[..., 0], stock.start_logits)
    assert torch.equal(ours[..., 1], stock.end_logits)
