"""The executor: what one by one gives, with each common thing computed once, in memory that is bounded."""

import random
import weakref
from collections.abc import Sequence
from itertools import combinations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode
from transformers import LayoutLMConfig, LayoutLMForSequenceClassification

from ldsearch.costs.workload import Workload
from ldsearch.errors import SubnetError, SupernetError
from ldsearch.evaluation.executor import Executor, shares_prefixes
from ldsearch.evaluation.prefixes import PrefixCache
from ldsearch.subnet import Lengths, Stack, Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.supernet import inference
from ldsearch.testing.inputs import one_of_each
from tests.tiny import learned, padded_batch, row, tiny_model

REFERENCE = 24
LENGTHS = [24, 3, 19, 7, 19, 1]
EVERY = (0, 1, 2, 3)
HEADS = ("SequenceClassification", "TokenClassification", "SentenceEmbedding")


def encoder(
    blocks: Sequence[int], tokens: Sequence[int] | None = None, mode: str = "ratio", **groups
) -> Subnet:
    lengths = None if tokens is None else Lengths(tuple(tokens), REFERENCE, mode)
    return Subnet(encoder=Stack(tuple(blocks), lengths, **groups))


def many(count: int, seed: int) -> list[Subnet]:
    """Random depths, lengths and groups, few levels so that much is common; duplicates, full and empty."""
    rng = random.Random(seed)
    subnets = [*one_of_each(4, REFERENCE).values(), encoder(EVERY), encoder(())]
    for _ in range(count):
        blocks = sorted(rng.sample(EVERY, rng.choice([1, 2, 4, 4, 4])))
        tokens = sorted(rng.choices([2, 6, 12, 18, 24], k=len(blocks)), reverse=True)
        off = ((blocks[-1], rng.randrange(2)),) if rng.random() < 0.2 else ()
        subnets.append(encoder(blocks, tokens, rng.choice(["ratio", "absolute"]), heads_off=off))
    return [*subnets, *rng.choices(subnets, k=5)]


def nothing(ends: Sequence[int], logits: torch.Tensor) -> None:
    """Keep none."""


def together(
    executor: Executor, batch: dict[str, torch.Tensor], subnets: list[Subnet], *cache: PrefixCache
) -> list[torch.Tensor]:
    found: dict[int, torch.Tensor] = {}

    def keep(ends: Sequence[int], logits: torch.Tensor) -> None:
        assert not set(ends) & set(found)
        found.update(dict.fromkeys(ends, logits))

    executor.run(batch, subnets, keep, *cache)
    return [found[index] for index in range(len(subnets))]


def assert_one_by_one(supernet: Supernet, subnets: list[Subnet], batches: list[list[int]]) -> None:
    """Within 2e-5 of each row alone and unpadded."""
    executor = Executor(supernet)
    alone: dict[tuple[Subnet, int], torch.Tensor] = {}
    whole = padded_batch(LENGTHS)
    for rows in batches:
        longest = max(LENGTHS[i] for i in rows)
        batch = {name: tensor[rows, :longest] for name, tensor in whole.items()}
        for subnet, logits in zip(subnets, together(executor, batch, subnets), strict=True):
            for place, index in enumerate(rows):
                if (subnet, index) not in alone:
                    alone[subnet, index] = inference(supernet, row(whole, index), subnet)[0]
                theirs = alone[subnet, index]
                ours = logits[place] if theirs.dim() == 1 else logits[place, : LENGTHS[index]]
                close = (ours - theirs).abs() <= 2e-5 * theirs.abs().clamp(min=1)
                assert close.all(), (subnet.describe(), index, float((ours - theirs).abs().max()))


@pytest.mark.parametrize(
    ("family", "head", "score"),
    [
        *(("modernbert", "SequenceClassification", score) for score in ("column", "power", "learned")),
        *(("bert", head, "learned") for head in ("TokenClassification", "SentenceEmbedding")),
    ],
)
def test_heads_that_read_every_token_by_any_score_in_any_order_and_batches(family, head, score):
    """In other families: the family contract; in several generations: ``test_prefix_cache``."""
    model = tiny_model(family, head=head)
    model.config.classifier_pooling = "mean"
    supernet = Supernet(learned(model).model, score)
    assert not supernet.reads_first
    assert family != "bert" or supernet.shape.dropped_rank or supernet.shape.correcting
    subnets = many(15, seed=2)
    random.Random(3).shuffle(subnets)
    assert_one_by_one(supernet, subnets, [[0, 1, 2, 3, 4, 5], [5, 1, 0]])


def test_a_batch_without_a_mask():
    supernet = Supernet(tiny_model("bert", head="TokenClassification"))
    batch = {"input_ids": padded_batch([9, 9])["input_ids"]}
    subnets = many(10, seed=5)
    for subnet, logits in zip(subnets, together(Executor(supernet), batch, subnets), strict=True):
        torch.testing.assert_close(logits, inference(supernet, batch, subnet), atol=1e-5, rtol=1e-5)


def all_depths(blocks: int) -> list[Subnet]:
    return [encoder(chosen) for m in range(1, blocks + 1) for chosen in combinations(range(blocks), m)]


def test_all_255_depths_of_8_blocks_are_255_block_evaluations():
    model = tiny_model("bert", blocks=8)
    runs = []
    for layer in model.bert.encoder.layer:
        layer.intermediate.dense.register_forward_hook(lambda *_: runs.append(1))
    executor, subnets = Executor(Supernet(model)), all_depths(8)
    executor.run(padded_batch([3]), subnets, nothing)
    assert sum(len(subnet.encoder.blocks) for subnet in subnets) == 1_024
    assert len(runs) == executor.work.evaluations == executor.work.heads == 255


@pytest.mark.parametrize("head", HEADS)
def test_block_evaluations_are_the_distinct_prefixes(head):
    supernet = Supernet(tiny_model("bert", head=head))
    subnets, n = many(60, seed=4), 19
    prefixes, endings = set(), set()
    for subnet in subnets:
        stack, path, left = subnet.encoder, (), n
        for position, block in enumerate(stack.blocks):
            path = (*path, block, stack.groups(block))
            prefixes.add(path)
            if stack.lengths is not None:
                left = min(left, stack.lengths.kept(position, n))
            path = (*path, left)
        endings.add(path[:-1] if supernet.reads_first else path)
    executor = Executor(supernet)
    executor.run(padded_batch([n]), subnets, nothing)
    assert executor.work.evaluations == len(prefixes)
    assert executor.work.heads == len(endings)


def test_what_acts_alike_on_these_rows_is_run_once():
    keeps_all = [encoder(EVERY, tokens, "absolute") for tokens in ([20, 20, 12, 9], [24, 14, 10, 9], [9] * 4)]
    subnets = [*keeps_all, encoder(EVERY)]
    for head, last in (("TokenClassification", 9), ("SequenceClassification", 1)):
        executor, ends = Executor(Supernet(tiny_model("bert", head=head))), []
        given = [*subnets, encoder(EVERY, [9, 9, 9, last], "absolute")]
        executor.run(padded_batch([9, 5]), given, lambda found, _, ends=ends: ends.append(sorted(found)))
        assert (executor.work.evaluations, ends) == (4, [[0, 1, 2, 3, 4]])


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("family", ["bert", "distilbert", "modernbert", "mpnet"])
def test_macs_are_those_that_torch_counts(family, head):
    model = tiny_model(family, head=head, attention="eager")
    supernet = learned(model) if head == "SentenceEmbedding" else Supernet(model)
    batch, subnets = padded_batch([19, 19]), many(30, seed=6)
    executor = Executor(supernet)
    with FlopCounterMode(display=False) as counter:
        supernet.pipeline.family.embed(supernet.model, batch)
        embed = counter.get_total_flops()
        executor.run(batch, subnets, nothing)
    assert 2 * executor.work.macs == counter.get_total_flops() - 2 * embed
    # A single path of a head that reads every token has nothing to share.
    if not supernet.reads_first:
        executor, one = Executor(supernet), encoder(EVERY, [24, 24, 24, 12])
        executor.run(batch, [one], nothing)
        assert executor.work.macs == 2 * supernet.macs(Workload.padded(19))([one])[0]


class Alive(TorchDispatchMode):
    """The most bytes that tensors made under it held at one time."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.most = 0
        self.held: dict[int, int] = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, (tuple, list)) else (made,):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                key, size = storage.data_ptr(), storage.nbytes()
                if key not in self.held:
                    self.held[key], self.now = 0, self.now + size
                self.held[key] += 1
                weakref.finalize(tensor, self.drop, key, size)
        self.most = max(self.most, self.now)
        return made

    def drop(self, key: int, size: int) -> None:
        self.held[key] -= 1
        if not self.held[key]:
            del self.held[key]
            self.now -= size


@pytest.mark.parametrize("head", [*HEADS, "MaskedLM"])
@pytest.mark.parametrize("family", ["bert", "modernbert", "mpnet", "deberta-v2"])
def test_memory_stays_within_the_budget_and_is_flat_in_the_number_of_subnetworks(family, head):
    budget, most = 2**20, []
    executor = Executor(Supernet(tiny_model(family, head=head)), budget)
    rows = executor.rows(REFERENCE)
    assert rows > 1
    for count in (40, 160):
        with Alive() as alive:
            executor.run(padded_batch([REFERENCE] * rows), many(count, seed=7), nothing)
        most.append(alive.most)
    assert most[1] <= 1.05 * most[0]
    assert budget / 5 < most[1] <= budget
    assert Executor(executor.supernet, 1).rows(REFERENCE) == 1


def test_the_mode_comes_back_and_no_gradient_is_kept():
    supernet = Supernet(tiny_model("bert")).train()
    logits = together(Executor(supernet), padded_batch([5]), [encoder(EVERY)])
    assert supernet.training
    assert not logits[0].requires_grad
    torch.testing.assert_close(logits[0], inference(supernet, padded_batch([5]), encoder(EVERY)))


def test_what_does_not_fit_and_a_model_of_no_registered_family_are_refused():
    executor = Executor(Supernet(tiny_model("bert")))
    with pytest.raises(SubnetError, match="block 4"):
        executor.run(padded_batch([5]), [encoder([0]), encoder([4])], nothing)
    config = LayoutLMConfig(vocab_size=9, hidden_size=8, num_hidden_layers=2, num_attention_heads=2)
    generic = Supernet(LayoutLMForSequenceClassification(config))
    assert not shares_prefixes(generic)  # but runs one by one
    with pytest.raises(SupernetError, match="no registered family"):
        Executor(generic)
