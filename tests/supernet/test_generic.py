"""The generic view: any stock model with one list of blocks, depth-only."""

import sys

import numpy as np
import pytest
import torch
import transformers
from torch.utils.flop_counter import FlopCounterMode
from transformers import BertTokenizer, PreTrainedModel

from ldsearch.errors import SubnetError, SupernetError
from ldsearch.export import export_subnet
from ldsearch.export.card import Provenance
from ldsearch.subnet import Stack, Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.counting import trace_macs
from ldsearch.supernet.heads import logits_of
from ldsearch.supernet.supernet import inference
from ldsearch.testing import padded_batch, randomised
from ldsearch.workload import Workload
from tests.tiny import bypassing, tiny_model

BLOCKS, VOCABULARY, LENGTHS = 4, 60, [12, 5, 1, 8]
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "num_hidden_layers": BLOCKS,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
SLIDING = {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 2}
GPT2 = {"vocab_size": VOCABULARY, "n_positions": 64, "n_embd": 16, "n_layer": BLOCKS, "n_head": 2}
DISENTANGLED = {"relative_attention": True, "position_buckets": 8, "pos_att_type": ["c2p", "p2c"]}
# Model type, its configuration, where its blocks are.
MODELS = {
    "mpnet": ("MPNet", SIZES | {"pad_token_id": 1}, "mpnet.encoder.layer"),
    "camembert": ("Camembert", SIZES | {"pad_token_id": 1}, "roberta.encoder.layer"),
    "ernie": ("Ernie", SIZES, "ernie.encoder.layer"),
    # Its relative position embeddings belong to the encoder and stay.
    "deberta-v2": ("DebertaV2", SIZES | DISENTANGLED, "deberta.encoder.layer"),
    "gpt2": ("GPT2", GPT2 | {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}, "transformer.h"),
    "llama": ("Llama", SIZES, "model.layers"),
    # Full attention in blocks 0 and 1, a window in 2 and 3.
    "qwen2": ("Qwen2", SIZES | SLIDING | {"num_key_value_heads": 2}, "model.layers"),
}
DECODERS = ("gpt2", "llama", "qwen2")
DEPTHS = [(1, 3), (0, 2, 3), (2,), ()]


def build(kind: str, **changes: object) -> PreTrainedModel:
    name, fields, _ = MODELS[kind]
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**{**fields, "num_labels": 3, **changes})
    return randomised(getattr(transformers, f"{name}ForSequenceClassification")(config))


def batch_of(model: PreTrainedModel, lengths: list[int] = LENGTHS) -> dict[str, torch.Tensor]:
    return padded_batch(lengths, VOCABULARY, model.config.pad_token_id)


@torch.inference_mode()
def stock(model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    return logits_of(model(**batch))


@pytest.fixture(params=MODELS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


def test_it_says_that_it_is_depth_only_and_refuses_what_is_finer(kind):
    model = build(kind)
    supernet = Supernet(model)
    assert supernet.stacks == {"encoder": MODELS[kind][2]}
    assert (supernet.blocks, supernet.pinned) == (BLOCKS, ())
    for stack in (
        Subnet.of_encoder(range(BLOCKS), [9, 8, 7, 6], 9).encoder,
        Stack((0,), heads_off=((0, 1),)),
        Stack((0,), ffn_share=((0, 0.5),)),
        Stack((0,), sublayers_off=((0, "attention"),)),
    ):
        subnet = Subnet(encoder=stack)
        for call in (lambda s: supernet(batch_of(model), s), supernet.materialise):
            with pytest.raises(SubnetError, match=r"depth-only, .* \(those are bert"):
                call(subnet)
    with pytest.raises(SupernetError, match=f"^{model.config.model_type} works depth-only"):
        _ = supernet.shape
    assert not Supernet(tiny_model("bert")).depth_only


@pytest.mark.parametrize("lengths", [LENGTHS, [7, 7]])
def test_the_full_subnetwork_is_the_stock_model_bit_for_bit(kind, lengths):
    model = build(kind)
    batch = batch_of(model, lengths)
    assert torch.equal(inference(Supernet(model), batch, Subnet.full(BLOCKS)), stock(model, batch))


@pytest.mark.parametrize("blocks", DEPTHS)
def test_a_depth_subnetwork_is_the_stock_model_with_the_other_blocks_bypassed(kind, blocks):
    supernet = Supernet(build(kind))
    batch = batch_of(supernet.model)
    ours = inference(supernet, batch, Subnet.of_encoder(blocks))
    assert torch.equal(ours, stock(bypassing(build(kind), supernet.stacks["encoder"], blocks), batch))
    # Nothing is left behind by a call.
    assert torch.equal(inference(supernet, batch, Subnet.full(BLOCKS)), stock(build(kind), batch))


@pytest.mark.parametrize("blocks", [(1, 3), (0, 2, 3)])
def test_a_depth_subnetwork_materialises_and_reloads_as_a_stock_model_of_the_kept_blocks(
    kind, blocks, tmp_path
):
    supernet, subnet = Supernet(build(kind)), Subnet.of_encoder(blocks)
    batch = batch_of(supernet.model)
    expected = inference(supernet, batch, subnet)
    own = supernet.materialise(subnet)
    assert type(own) is type(supernet.model)
    assert torch.equal(stock(own, batch), expected)
    tokenizer = BertTokenizer(vocab={"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4})
    provenance = Provenance("s", "t", "d", "c", "m")
    folder = export_subnet(supernet, tokenizer, subnet, tmp_path / "out", provenance)
    loaded, info = type(own).from_pretrained(folder, output_loading_info=True)
    assert not any(info[name] for name in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    torch.testing.assert_close(stock(loaded.eval(), batch), expected, atol=1e-5, rtol=0)
    assert supernet.parameters_cost([subnet])[0] == sum(p.numel() for p in loaded.parameters())


def test_lists_with_an_entry_per_block_keep_the_entries_of_the_kept_blocks():
    kept = Subnet.of_encoder([1, 3])
    qwen = Supernet(build("qwen2")).materialise(kept)
    assert qwen.config.layer_types == ["full_attention", "sliding_attention"]
    longformer = transformers.LongformerConfig(**SIZES, attention_window=[2, 4, 6, 8])
    pruned = Supernet(transformers.LongformerForSequenceClassification(longformer)).materialise(kept)
    assert pruned.config.attention_window == [4, 8]
    # Lists that only happen to be as long as the model is deep.
    gpt2 = Supernet(build("gpt2", eos_token_id=[2, 3, 4, 5])).materialise(kept)
    assert gpt2.config.eos_token_id == [2, 3, 4, 5]


@pytest.mark.parametrize("decoder", DECODERS)
def test_a_pruned_decoders_cache_is_right_without_its_first_block(decoder):
    supernet = Supernet(build(decoder))
    base = supernet.materialise(Subnet.of_encoder([1, 3])).base_model.eval()
    ids = batch_of(supernet.model, [9, 9])["input_ids"]
    with torch.inference_mode():
        whole = base(ids).last_hidden_state
        first = base(ids[:, :5], use_cache=True)
        assert first.past_key_values.get_seq_length() == 5
        rest = base(ids[:, 5:], past_key_values=first.past_key_values, use_cache=True).last_hidden_state
    torch.testing.assert_close(rest, whole[:, 5:], atol=1e-4, rtol=0)


@pytest.mark.parametrize("checkpointing", [False, True])
def test_gradients_reach_the_shared_weights_of_the_blocks_that_run(kind, checkpointing):
    subnet = Subnet.of_encoder([1, 3])
    reference, supernet = build(kind).train(), Supernet(build(kind)).train()
    if checkpointing and kind == "mpnet":
        with pytest.raises(SupernetError, match="MPNetForSequenceClassification does not support"):
            supernet.gradient_checkpointing_enable()
        return
    if checkpointing:
        supernet.gradient_checkpointing_enable()
    for model in (lambda **batch: supernet(batch, subnet), Supernet(reference).materialise(subnet).train()):
        torch.manual_seed(0)
        logits_of(model(**batch_of(reference))).square().sum().backward()
    pairs = zip(supernet.model.named_parameters(), reference.parameters(), strict=True)
    for (name, ours), theirs in pairs:
        assert (ours.grad is None) == (theirs.grad is None), name
        if ours.grad is not None:
            torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-5, rtol=1e-5)
    touched = [any(p.grad is not None for p in layer.parameters()) for layer in supernet.layers_of("encoder")]
    assert touched == [False, True, False, True]


def test_traced_macs_are_those_counted_on_the_eager_model(kind):
    model = build(kind)
    supernet = Supernet(model)
    rng = np.random.default_rng(0)
    drawn = [tuple(sorted(rng.permutation(BLOCKS)[:count].tolist())) for count in (1, 2, 3)]
    lengths = [int(n) for n in rng.integers(2, 60, len(drawn))]
    subnets = [Subnet.of_encoder(blocks) for blocks in drawn]
    macs = [supernet.macs(Workload.padded(n))([s])[0] for n, s in zip(lengths, subnets, strict=True)]
    model.set_attn_implementation("eager")
    for n, subnet, traced in zip(lengths, subnets, macs, strict=True):
        with FlopCounterMode(display=False) as counter:
            supernet(batch_of(model, [n]), subnet)
        assert traced == pytest.approx(counter.get_total_flops() / 2, rel=1e-9)


def test_traced_macs_are_means_over_the_workload():
    supernet, subnet = Supernet(build("mpnet")), Subnet.of_encoder([1, 3])
    short, long = (supernet.macs(Workload.padded(n))([subnet])[0] for n in (4, 50))
    mean = supernet.macs(Workload.from_lengths([4, 4, 4, 50], 50))([subnet])[0]
    assert mean == pytest.approx((3 * short + long) / 4)
    with pytest.raises(SubnetError, match="whole blocks only"):
        supernet.macs(Workload.padded(4))([Subnet(encoder=Stack((0,), heads_off=((0, 1),)))])


def test_macs_that_are_no_quadratic_are_refused(monkeypatch):
    counts = {8: 80.0, 16: 160.0, 24: 240.0, 41: 410.0, 49: 490.0}
    monkeypatch.setattr(
        "ldsearch.supernet.counting._count_macs", lambda m, s, n, t: ({"encoder": [counts[n]]}, 0.0)
    )
    model = build("mpnet")
    assert trace_macs(model, {"encoder": ""}, Workload.padded(50), "macs")([Subnet.of_encoder([0])])[
        0
    ] == pytest.approx(500)
    counts[49] += 1  # a kink, beyond where short inputs could show it
    with pytest.raises(SupernetError, match="do not grow as a quadratic"):
        trace_macs(model, {"encoder": ""}, Workload.padded(50), "macs")
    trace_macs(model, {"encoder": ""}, Workload.padded(30), "macs")


def test_a_model_that_cannot_be_traced_is_one_line():
    with pytest.raises(SupernetError, match=r"^ErnieForSequenceClassification cannot be traced: ") as refused:
        Supernet(build("ernie", max_position_embeddings=20)).macs(Workload.padded(8))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "longest"),
    [("mpnet", 62), ("camembert", 62), ("ernie", 64), ("gpt2", 64), ("llama", 64)],
)
def test_the_longest_input_leaves_out_positions_of_padding(kind, longest):
    model = build(kind)
    supernet = Supernet(model)
    assert supernet.longest == longest
    assert stock(model, batch_of(model, [longest, 3])).isfinite().all()
    if kind != "llama":
        with pytest.raises((IndexError, RuntimeError)):
            stock(model, batch_of(model, [longest + 1, 3]))


def test_no_positions_are_no_bound():
    bloom = transformers.BloomConfig(vocab_size=9, hidden_size=8, n_layer=2, n_head=2, pad_token_id=0)
    assert Supernet(transformers.BloomForSequenceClassification(bloom)).longest == sys.maxsize
