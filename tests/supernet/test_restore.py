"""Drop-and-Restore: a dropped token carries the output of the last block that fully processed it."""

import itertools

import pytest
import torch

from ldsearch.subnet import Lengths, Stack, Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.heads import logits_of
from ldsearch.supernet.supernet import inference
from ldsearch.supernet.tokens import State, put_back
from tests.tiny import padded_batch, tiny_model

LENGTHS = [24, 3, 17, 9, 1, 24, 12, 5]
STACKS = {
    "every block drops": Stack((0, 1, 2, 3), Lengths((18, 13, 7, 2), 24)),
    "the second and fourth drop": Stack((0, 1, 2, 3), Lengths((24, 12, 12, 6), 24)),
    "LayerDrop and lengths": Stack((1, 3), Lengths((11, 4), 24)),
    "absolute": Stack((0, 2, 3), Lengths((16, 8, 3), 24, "absolute")),
}


def restored(supernet: Supernet, batch: dict[str, torch.Tensor], stack: Stack) -> torch.Tensor:
    """What the head gets to read, shape (B, n, d)."""
    seen = []
    handle = supernet.model.get_submodule(first_of_head(supernet)).register_forward_pre_hook(
        lambda module, inputs: seen.append(inputs[0])
    )
    inference(supernet, batch, Subnet(encoder=stack))
    handle.remove()
    (hidden,) = seen
    return hidden


def first_of_head(supernet: Supernet) -> str:
    """The stock module that reads a BERT model's last hidden states."""
    names = {"TokenClassification": "classifier", "QuestionAnswering": "qa_outputs", "MaskedLM": "cls"}
    return names[supernet.head.name]


@pytest.mark.parametrize("kind", STACKS)
def test_what_a_block_drops_is_bit_for_bit_what_the_blocks_before_it_made(kind):
    """A token that leaves at the i-th executed block is as if the model ended before that block."""
    supernet = Supernet(tiny_model("bert", head="TokenClassification"))
    batch, stack = padded_batch(LENGTHS), STACKS[kind]
    whole = restored(supernet, batch, stack)
    entered = [shortened(stack, i) for i in range(len(stack.blocks) + 1)]
    made = torch.stack([restored(supernet, batch, part) for part in entered])
    same = (made == whole).all(dim=-1)  # (blocks + 1, B, n): position i is the input of the i-th block
    real = batch["attention_mask"].bool()
    assert same.any(dim=0)[real].all()
    left_at = same.int().argmax(dim=0)
    for index, n in enumerate(LENGTHS):
        counts = [min(n, stack.lengths.kept(i, n)) for i in range(len(stack.blocks))]
        expected = [n - counts[0], *(a - b for a, b in itertools.pairwise(counts)), counts[-1]]
        assert torch.bincount(left_at[index, :n], minlength=len(made)).tolist() == expected


def shortened(stack: Stack, blocks: int) -> Stack:
    """The stack's first executed blocks."""
    lengths = Lengths(stack.lengths.tokens[:blocks], stack.lengths.reference, stack.lengths.mode)
    return Stack(stack.blocks[:blocks], lengths)


@pytest.mark.parametrize("head", ["TokenClassification", "MaskedLM"])
def test_the_first_token_may_be_dropped_where_a_head_reads_every_token(head):
    supernet, batch = Supernet(tiny_model("bert", head=head)), padded_batch([24] * 8)
    one_left = restored(supernet, batch, Stack((0,), Lengths((1,), 24)))
    embedded = restored(supernet, batch, Stack(()))
    dropped = (one_left == embedded).all(dim=-1)
    assert dropped.sum(dim=1).tolist() == [23] * 8
    assert dropped[:, 0].any()


def state(positions: list[list[int]], real: list[list[int]], dtype: torch.dtype = torch.float32) -> State:
    """Hidden states that say where they come from: token t of row b holds 100 b + t + 1/2."""
    index = torch.tensor(positions)
    hidden = (100 * torch.arange(len(positions))[:, None] + index + 0.5)[..., None].expand(-1, -1, 2)
    return State(hidden.to(dtype), torch.tensor(real).bool(), index)


def test_tokens_return_to_where_they_stood_and_the_others_are_bit_for_bit_untouched():
    sequence = torch.randn(2, 5, 2, generator=torch.Generator().manual_seed(0))
    put = put_back(sequence, state([[0, 2, 4], [1, 3, 4]], [[1, 1, 1], [1, 1, 1]]))
    assert put[0, [0, 2, 4], 0].tolist() == [0.5, 2.5, 4.5]
    assert put[1, [1, 3, 4], 1].tolist() == [101.5, 103.5, 104.5]
    assert torch.equal(put[0, [1, 3]], sequence[0, [1, 3]])
    assert torch.equal(put[1, [0, 2]], sequence[1, [0, 2]])


def test_pads_are_never_written():
    sequence = torch.zeros(2, 4, 2)
    put = put_back(sequence, state([[0, 1, 3], [2, 0, 1]], [[1, 1, 0], [1, 0, 0]]))
    assert put[0, :, 0].tolist() == [0.5, 1.5, 0, 0]
    assert put[1, :, 0].tolist() == [0, 0, 102.5, 0]


@pytest.mark.parametrize(
    ("there", "back"), [(torch.float32, torch.bfloat16), (torch.bfloat16, torch.float32)]
)
def test_states_return_into_sequences_of_another_precision(there, back):
    put = put_back(torch.zeros(1, 3, 2, dtype=there), state([[0, 2]], [[1, 1]], back))
    assert put.dtype == there
    assert put[0, :, 0].tolist() == [0.5, 0, 2.5]


@pytest.mark.parametrize(("family", "head"), [("bert", "QuestionAnswering"), ("modernbert", "MaskedLM")])
def test_it_trains_under_bf16_autocast(family, head):
    supernet = Supernet(tiny_model(family, head=head)).train()
    batch, subnet = padded_batch(LENGTHS), Subnet(encoder=STACKS["every block drops"])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = logits_of(supernet(batch, subnet))
    logits.float().square().mean().backward()
    assert logits.shape[:2] == batch["input_ids"].shape
    gradients = [p.grad for layer in supernet.layers_of("encoder") for p in layer.parameters()]
    assert all(gradient is not None and gradient.isfinite().all() for gradient in gradients)
