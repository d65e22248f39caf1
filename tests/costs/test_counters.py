"""MACs of random sub-networks are what torch counts in the eager model."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode
from transformers import GPT2Config, GPT2LMHeadModel

from ldsearch.costs.workload import Workload
from ldsearch.errors import SupernetError
from ldsearch.subnet import Stack, Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.heads import ended
from tests.costs.drawing import DRAWS, REFERENCE, drawn_blocks, drawn_stack
from tests.tiny import (
    DECODERS,
    ENCODER_DECODERS,
    FAMILIES,
    OWN_PARTS,
    heads_of,
    padded_batch,
    tiny_decoder,
    tiny_encoder_decoder,
    tiny_model,
)

BLOCKS = 3
UNREGISTERED = ("blenderbot",)


def by_torch(model: nn.Module, batch: dict[str, Tensor]) -> float:
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(**batch)
    return counter.get_total_flops() / 2


@pytest.mark.parametrize("family", [name for name in FAMILIES if name not in OWN_PARTS])
def test_macs_under_every_head_are_what_torch_counts(family):
    """Of encoders with parts of their own, ``FamilyContract`` says so."""
    rng = np.random.default_rng(0)
    for head in heads_of(family):
        supernet = Supernet(tiny_model(family, blocks=BLOCKS, width=8, attention="eager", head=head))
        subnet, n = Subnet(drawn_stack(rng, BLOCKS, heads=2)), int(rng.integers(1, REFERENCE + 1))
        own = supernet.materialise(subnet).eval()
        counted = by_torch(own, padded_batch([n, n])) - by_torch(own, padded_batch([n]))
        assert supernet.macs(Workload.padded(n))([subnet])[0] == counted, subnet.to_json()


@pytest.mark.parametrize("head", ["TokenClassification", "SequenceClassification"])
def test_macs_of_t5_under_a_head_are_what_torch_counts(head):
    """Its encoder alone in closed form; beside a decoder that reads the text again, with that traced."""
    model = tiny_encoder_decoder("t5", head)
    model.set_attn_implementation("eager")
    supernet, rng = Supernet(model), np.random.default_rng(0)
    traced = supernet.macs(Workload.padded(REFERENCE))
    for _ in range(DRAWS):
        decoder = drawn_blocks(rng, 4, fewest=1) if "decoder" in supernet.stacks else None
        subnet = Subnet(drawn_stack(rng, BLOCKS, heads=4, fewest=1), decoder)
        n = int(rng.integers(1, REFERENCE + 1))
        workload = Workload.padded(n)
        closed = {} if decoder is None else {"encoder": replace(traced.encoder, workload=workload)}
        macs = replace(traced, workload=workload, **closed)
        batch = padded_batch([n])
        batch["input_ids"] = ended(model, batch["input_ids"], batch["attention_mask"])
        counted = by_torch(supernet.materialise(subnet).eval(), batch)
        assert macs([subnet])[0] == pytest.approx(counted, rel=1e-9), f"{n} tokens, {subnet.to_json()}"


@pytest.mark.parametrize("family", ENCODER_DECODERS)
def test_macs_of_an_encoder_decoder_are_what_torch_counts(family, monkeypatch):
    """In closed form and traced, tokens dropped for both memories."""
    model = tiny_encoder_decoder(family)
    model.set_attn_implementation("eager")
    traced = Supernet(model).macs(Workload.padded(REFERENCE, writes=True))
    monkeypatch.setattr("ldsearch.supernet.supernet.trace_macs", lambda *asked: traced)
    rng, memories = np.random.default_rng(0), ("restored", "kept")
    for draw in range(DRAWS):
        supernet = Supernet(model, memory=memories[draw % 2])
        subnet = Subnet(drawn_stack(rng, BLOCKS, heads=4, fewest=1), drawn_blocks(rng, 4, fewest=1))
        n, t = (int(length) for length in rng.integers(1, REFERENCE + 1, 2))
        workload = Workload.from_lengths([n], REFERENCE, [t])
        macs = replace(supernet.macs(workload), workload=workload)
        batch = padded_batch([n]) | {"decoder_input_ids": padded_batch([t])["input_ids"]}
        counted = by_torch(supernet.materialise(subnet).eval(), batch)
        assert macs([subnet])[0] == pytest.approx(counted, rel=1e-9), f"{n}, {t} tokens, {subnet.to_json()}"


@pytest.mark.parametrize("name", [*DECODERS, *UNREGISTERED])
def test_traced_macs_are_those_that_torch_counts(name):
    """Of models of no registered family, at other lengths than it was traced for."""
    supernet = Supernet((tiny_decoder if name in DECODERS else tiny_encoder_decoder)(name))
    traced, rng = supernet.macs(Workload.from_lengths([9], 60, [5])), np.random.default_rng(0)
    supernet.model.set_attn_implementation("eager")
    for _ in range(DRAWS):
        stacks = {stack: drawn_blocks(rng, depth, fewest=1) for stack, depth in supernet.depths.items()}
        n, t = (int(length) for length in rng.integers(1, 60, 2))
        batch, subnet = padded_batch([n]), Subnet(**stacks)
        if "encoder" in stacks:
            batch["decoder_input_ids"] = padded_batch([t])["input_ids"]
        macs = replace(traced, workload=Workload.from_lengths([n], 60, [t]))
        counted = by_torch(supernet.materialise(subnet).eval(), batch)
        assert macs([subnet])[0] == pytest.approx(counted, rel=1e-9), f"{n}, {t} tokens, {subnet.to_json()}"


@pytest.mark.parametrize("family", FAMILIES)
def test_a_closed_form_that_misses_a_product_of_a_block_is_refused(family):
    supernet = Supernet(tiny_model(family, blocks=BLOCKS, width=8))
    assert supernet.macs(Workload.padded(5))([supernet.full])[0] > 0
    supernet.layers_of("encoder")[1].adapter = nn.Linear(8, 2, bias=False)
    with pytest.raises(SupernetError, match=r"^block 1 of \w+ has \d+ weights in matrices, not the \d+ of "):
        supernet.macs(Workload.padded(5))


@pytest.mark.parametrize(
    "product",
    [
        lambda hidden: torch.addbmm(hidden[0], hidden, torch.eye(16)[None])[None],
        lambda hidden: hidden + torch.mv(torch.eye(16), hidden[0, 0]),
    ],
    ids=["addbmm", "mv"],
)
def test_a_traced_product_that_fvcore_does_not_know_is_refused(product):
    model = tiny_decoder("gpt2")
    model.transformer.h[2].mlp.register_forward_hook(lambda module, inputs, output: product(output))
    with pytest.raises(SupernetError, match=r"matrices that cannot be counted: fvcore finds [\d,]+ M"):
        Supernet(model).macs(Workload.padded(5))


@pytest.mark.parametrize("kind", ["Bloom", "Falcon"])
def test_decoders_with_products_of_their_own_kind_are_counted(kind):
    """Bloom's are ``baddbmm``; Falcon calls ``scaled_dot_product_attention`` whatever it is told."""
    sizes = {"vocab_size": 60, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = getattr(transformers, f"{kind}Config")(**sizes, pad_token_id=0)
    model = getattr(transformers, f"{kind}ForCausalLM")(config).eval()
    supernet, half = Supernet(model), Subnet(decoder=Stack((1,)))
    (macs,) = supernet.macs(Workload.padded(9))([half])
    model.set_attn_implementation("eager")
    assert macs == pytest.approx(by_torch(supernet.materialise(half).eval(), padded_batch([9])), rel=1e-9)


def test_sixteen_layers_pruned_to_eight_lose_what_fairseqs_readme_says():
    """Of blocks of width 1024 and 4096, 12,596,224 parameters each: 246,933,504 to 146,163,712."""
    config = GPT2Config(vocab_size=50, n_positions=8, n_embd=1024, n_head=8, n_layer=16, n_inner=4096)
    with torch.device("meta"):
        supernet = Supernet(GPT2LMHeadModel(config))
    half = Subnet(decoder=Stack(tuple(range(0, 16, 2))))
    whole, pruned = supernet.parameters_cost([supernet.full, half])
    assert whole - pruned == 246_933_504 - 146_163_712 == 8 * 12_596_224
    assert sum(p.numel() for p in supernet.materialise(half).parameters()) == pruned
