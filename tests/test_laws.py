"""The laws that hold the house together: every family × every shipped space, scaled to a tiny model."""

import itertools
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from fvcore.nn import FlopCountAnalysis
from safetensors.torch import load_file, save_file
from torch.utils.flop_counter import FlopCounterMode
from transformers import BertTokenizer

from ldsearch.costs.macs import Macs
from ldsearch.export import export_subnet
from ldsearch.export.card import Provenance
from ldsearch.search.evolve import Evolve
from ldsearch.search.loop import search
from ldsearch.space import LengthSpace, SearchSpace, load_space, space_folder
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.supernet import inference
from ldsearch.trial import Score, Trial
from ldsearch.workload import Workload
from tests.tiny import FAMILIES, IMPLEMENTATIONS, VOCABULARY, padded_batch, row, tiny_model

BLOCKS, REFERENCE = 4, 24
SPACES = sorted(path.stem for path in space_folder().glob("*.yaml"))
LENGTHS = [24, 3, 17, 9, 1, 24, 12, 5]


def scaled(name: str) -> SearchSpace:
    return load_space(name, blocks=BLOCKS, reference=REFERENCE)


def samples(space: SearchSpace, count: int = 12) -> list[Subnet]:
    rng = np.random.default_rng(0)
    return [space.smallest(), space.largest(), *(space.sample(rng) for _ in range(count))]


@pytest.mark.parametrize("attention", IMPLEMENTATIONS)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("lengths", [LENGTHS, [24, 24]])
def test_law_1_the_full_subnetwork_is_the_model_bit_for_bit(family, attention, lengths):
    model = tiny_model(family, blocks=BLOCKS, attention=attention)
    batch = padded_batch(lengths)
    with torch.inference_mode():
        theirs = model(**batch).logits
    ours = inference(Supernet(model), batch, Subnet.full(BLOCKS))
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("family", FAMILIES)
def test_law_1_holds_for_lengths_that_drop_nothing(family):
    model = tiny_model(family, blocks=BLOCKS)
    batch = padded_batch([6, 4])
    ours = inference(Supernet(model), batch, Subnet.of_encoder(range(BLOCKS), [9, 8, 7, 6], 9, "absolute"))
    with torch.inference_mode():
        assert torch.equal(ours, model(**batch).logits)


RELOAD = """
import json, sys, torch
from safetensors.torch import load_file, save_file
import ldsearch
from transformers import AutoModelForSequenceClassification
batch = load_file(sys.argv[1])
for folder, stock in json.loads(sys.argv[3]):
    load = AutoModelForSequenceClassification.from_pretrained if stock else ldsearch.load
    with torch.inference_mode():
        save_file({"logits": load(folder).eval()(**batch).logits}, f"{sys.argv[2]}/{folder.split('/')[-1]}")
"""
BY_HAND = [Subnet.of_encoder([1, 3]), Subnet.of_encoder([0, 2, 3], [18, 9, 4], REFERENCE)]  # block 0 removed


@pytest.mark.parametrize("family", FAMILIES)
def test_law_2_an_exported_subnetwork_is_the_subnetwork_in_a_fresh_process(tmp_path, family):
    supernet = Supernet(tiny_model(family, blocks=BLOCKS))
    tokenizer = BertTokenizer(vocab={"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4})
    provenance = Provenance("s", "t", "d", "c", "m")
    subnets = [*BY_HAND, *(subnet for name in SPACES for subnet in samples(scaled(name), count=1))]
    batch = padded_batch(LENGTHS)
    save_file(batch, tmp_path / "batch.safetensors")
    (tmp_path / "logits").mkdir()
    listed = []
    for index, subnet in enumerate(subnets):
        folder = export_subnet(supernet, tokenizer, subnet, tmp_path / f"export-{index}", provenance)
        listed.append((str(folder), subnet.encoder.lengths is None))
    assert {stock for _, stock in listed} == {True, False}
    arguments = [tmp_path / "batch.safetensors", tmp_path / "logits", json.dumps(listed)]
    subprocess.run([sys.executable, "-c", RELOAD, *arguments], check=True, capture_output=True)
    for index, subnet in enumerate(subnets):
        theirs = load_file(tmp_path / "logits" / f"export-{index}")["logits"]
        torch.testing.assert_close(theirs, inference(supernet, batch, subnet), atol=1e-5, rtol=0)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", SPACES)
def test_law_3_closed_form_macs_equal_two_counters_on_the_eager_model(family, name):
    model = tiny_model(family, blocks=BLOCKS, attention="eager")
    supernet = Supernet(model)
    for index, subnet in enumerate(samples(scaled(name), count=4)):
        n = [24, 17, 9, 5, 24, 13][index]
        batch = padded_batch([n])
        closed = Macs(supernet.shape, Workload.padded(n))([subnet])[0]
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            supernet(batch, subnet)
        assert closed == counter.get_total_flops() / 2
        assert closed == fvcore_macs(supernet, batch, subnet)


def fvcore_macs(supernet: Supernet, batch: dict[str, torch.Tensor], subnet: Subnet) -> float:
    """Fvcore's count less its norm entries; it traces tensors, so the sub-network rides in a closure."""

    class Traced(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = supernet.model

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return supernet({"input_ids": ids}, subnet).logits

    analysis = FlopCountAnalysis(Traced(), (batch["input_ids"],))
    analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False)
    analysis.tracer_warnings("none")
    by_operator = analysis.by_operator()
    return sum(by_operator.values()) - by_operator.get("layer_norm", 0)


@pytest.mark.parametrize("name", SPACES)
def test_law_3_parts_sum_to_the_whole_and_nothing_removed_ever_costs_more(name):
    supernet = Supernet(tiny_model("bert", blocks=BLOCKS))
    workload = Workload.from_lengths(LENGTHS, REFERENCE)
    macs, parameters = Macs(supernet.shape, workload), supernet.parameters_cost
    for subnet in samples(scaled(name)):
        (whole,) = macs([subnet])
        assert whole == pytest.approx(sum(macs.by_stage(subnet).values()), rel=1e-12)
        materialised = supernet.materialise(subnet)
        assert parameters([subnet])[0] == sum(p.numel() for p in materialised.parameters())
        less = [Subnet.of_encoder(subnet.encoder.blocks[1:])] if subnet.encoder.lengths is None else []
        if subnet.encoder.lengths is not None:
            tokens = list(subnet.encoder.lengths.tokens)
            less = [
                Subnet.of_encoder(
                    subnet.encoder.blocks,
                    [*tokens[:i], *(min(t, tokens[i] - 1) for t in tokens[i:])],
                    REFERENCE,
                    subnet.encoder.lengths.mode,
                )
                for i in range(len(tokens))
                if tokens[i] > 1
            ]
        assert less
        assert (macs(less) <= whole).all()
        assert (parameters(less) <= parameters([subnet])).all()


@pytest.mark.parametrize("score", ["column", "power"])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", SPACES)
def test_law_4_batching_and_padding_do_not_change_a_score(family, name, score):
    supernet = Supernet(tiny_model(family, blocks=BLOCKS), score)
    batch = padded_batch(LENGTHS)
    for subnet in samples(scaled(name), count=6):
        together = inference(supernet, batch, subnet)
        alone = torch.cat([inference(supernet, row(batch, i), subnet) for i in range(len(LENGTHS))])
        torch.testing.assert_close(together, alone, atol=1e-5, rtol=0)
        margin = alone.topk(2).values.diff().abs().squeeze(-1)
        sure = margin > 1e-4
        assert torch.equal(together.argmax(-1)[sure], alone.argmax(-1)[sure])


def test_law_4_the_reference_codes_pad_counting_score_breaks_it_which_is_why_it_is_parity_only():
    supernet = Supernet(tiny_model("bert", blocks=BLOCKS), "column-with-pads")
    batch = padded_batch([24, *range(6, 12)])
    subnet = Subnet.of_encoder(range(BLOCKS), [12, 6, 4, 3], REFERENCE)
    together = inference(supernet, batch, subnet)
    alone = torch.cat([inference(supernet, row(batch, i), subnet) for i in range(7)])
    assert not torch.allclose(together, alone, atol=1e-5)


def fake_trials(space: LengthSpace, macs: Macs):
    """A score that depends on the lengths in a bumpy way, so that neighbours differ and ties occur."""

    def evaluate(subnets, generation):
        trials = []
        for subnet, cost in zip(subnets, macs(subnets), strict=True):
            lengths = subnet.encoder.lengths
            tokens = lengths.tokens if lengths else (REFERENCE,) * BLOCKS
            value = round(sum((i + 1) * (t % 7) + t for i, t in enumerate(tokens)) / 200, 2)
            trials.append(
                Trial(subnet, "accuracy", Score(value), {"macs": cost}, 1, "search", 0.0, "f", generation)
            )
        return trials

    return evaluate


def length_space(name: str) -> LengthSpace | None:
    space = scaled(name)
    return space if isinstance(space, LengthSpace) else None


@pytest.mark.parametrize("name", [name for name in SPACES if length_space(name)])
def test_law_5_evolution_stays_in_its_space_repeats_nothing_and_ends(name):
    space = length_space(name)
    macs = Macs(Supernet(tiny_model("bert", blocks=BLOCKS)).shape, Workload.padded(REFERENCE))
    evaluate = fake_trials(space, macs)
    result = search(Evolve(space, macs, seed=3), evaluate, space.full(), evaluations=150)
    asked = [trial.subnet for trial in result.trials]
    assert asked[0] == space.full()
    assert all(space.contains(subnet) for subnet in asked[1:])
    assert len(set(asked)) == len(asked) <= 150
    again = search(Evolve(space, macs, seed=3), evaluate, space.full(), evaluations=150)
    assert [trial.subnet for trial in again.trials] == asked
    other = search(Evolve(space, macs, seed=4), evaluate, space.full(), evaluations=150)
    assert [trial.subnet for trial in other.trials] != asked


PROPOSALS = """
import sys
sys.path.insert(0, sys.argv[1])
from tests.test_laws import *
space = length_space("demo")
macs = Macs(Supernet(tiny_model("bert", blocks=BLOCKS)).shape, Workload.padded(REFERENCE))
result = search(Evolve(space, macs, seed=3), fake_trials(space, macs), space.full(), evaluations=100)
print("|".join(trial.subnet.to_json() for trial in result.trials))
"""


@pytest.mark.filterwarnings("ignore")
def test_law_5_one_seed_asks_the_same_in_another_process():
    space = length_space("demo")
    macs = Macs(Supernet(tiny_model("bert", blocks=BLOCKS)).shape, Workload.padded(REFERENCE))
    here = search(Evolve(space, macs, seed=3), fake_trials(space, macs), space.full(), evaluations=100)
    root = Path(__file__).parent.parent
    command = [sys.executable, "-W", "ignore", "-c", PROPOSALS, str(root)]
    there = subprocess.run(command, check=True, capture_output=True, text=True, cwd=root).stdout
    assert there.strip().splitlines()[-1].split("|") == [trial.subnet.to_json() for trial in here.trials]


@pytest.mark.parametrize("pin_last", [True, False])
def test_law_6_evolution_run_until_a_small_space_is_exhausted_equals_brute_force(pin_last, monkeypatch):
    monkeypatch.setattr("ldsearch.search.loop.PATIENCE", 10**6)
    space = LengthSpace.build(BLOCKS, REFERENCE, 0.5, levels=6, pin_last=pin_last)
    macs = Macs(Supernet(tiny_model("bert", blocks=BLOCKS)).shape, Workload.padded(REFERENCE))
    evaluate = fake_trials(space, macs)
    result = search(Evolve(space, macs, seed=0), evaluate, space.full(), evaluations=10**6)
    everything = evaluate([space.full(), *(s for s in space.enumerate() if s != space.full())], 0)
    assert result.stopped == "exhausted"
    assert {t.subnet for t in result.trials} == {t.subnet for t in everything}

    def points(trials):
        return {(t.costs["macs"], t.score.value) for t in trials}

    brute = {
        (cost, value)
        for cost, value in points(everything)
        if not any((c <= cost and v >= value) and (c, v) != (cost, value) for c, v in points(everything))
    }
    assert points(result.frontier) == brute
    assert all(b >= a for a, b in itertools.pairwise(result.areas))


def test_the_vocabulary_of_the_tiny_models_covers_their_batches():
    assert int(padded_batch(LENGTHS)["input_ids"].max()) < VOCABULARY
