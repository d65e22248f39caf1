"""Every family, head and gene: an export that another process reloads as it was, or a refusal; no third."""

import json
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForSequenceClassification

import ldsearch
from ldsearch.errors import LdsearchError, SubnetError
from ldsearch.export import reader
from ldsearch.export.folder import write_huggingface
from ldsearch.subnet import Lengths, Stack, Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.supernet import inference
from ldsearch.testing import randomised
from tests import fresh
from tests.export.test_export import PROVENANCE, TOKENIZER
from tests.tiny import (
    DECODERS,
    ENCODER_DECODERS,
    FAMILIES,
    HEADED,
    VOCABULARY,
    padded_batch,
    tiny_decoder,
    tiny_encoder_decoder,
    tiny_model,
)

STOCK, OWN, BOTH = ("stock AutoModel",), ("ldsearch.load",), ("ldsearch.load", "stock AutoModel")
LENGTHS = [12, 5, 9, 1]
# What happens to a stack of three blocks or four, block 0 always among what changes.
GENES: Mapping[str, Stack] = {
    "depth": Stack((1, 2)),
    "lengths": Stack((0, 1, 2), Lengths((9, 4, 2), 12)),
    "ffn": Stack((1, 2), ffn_share=((1, 0.5), (2, 0.5))),
    "one ffn": Stack((1, 2), ffn_share=((1, 0.5),)),
    "heads": Stack((1, 2), heads_off=((1, (0)),)),
    "sub-layer": Stack((0, 1, 2), sublayers_off=((1, "attention"), (2, "feed_forward"))),
}
# Who must be able to read it; ModernBERT keeps its block 0 in every folder, and is pre-norm.
READERS: Mapping[str, tuple[str, ...]] = {
    "depth": STOCK,
    "lengths": OWN,
    "ffn": STOCK,
    "one ffn": BOTH,
    "heads": BOTH,
    "sub-layer": OWN,
}
PINNED = {"lengths": OWN, "sub-layer": BOTH}
# Norms stand before the sub-layers, so that a zeroed one is left out.
PRE_NORM = ("mbart", "pegasus", "megatron-bert", "roberta-prelayernorm", "xlm-roberta-xl", "t5", "t5-gated")


def readers_of(family: str, gene: str) -> tuple[str, ...]:
    return BOTH if family in PRE_NORM and gene == "sub-layer" else READERS[gene]


class Case(NamedTuple):
    """One cell of the matrix; no readers: its export is refused."""

    name: str
    supernet: Supernet
    subnet: Subnet
    readers: tuple[str, ...]


def encoders() -> Iterator[Case]:
    # One family has every head: no head sees what its blocks are made of.
    heads = [("bert", head) for head in HEADED if head != "SequenceClassification"]
    for family, head in [*((family, "SequenceClassification") for family in FAMILIES), *heads]:
        supernet = Supernet(tiny_model(family, blocks=3, head=head))
        for gene, stack in GENES.items():
            if (family, head) in heads and gene not in ("depth", "lengths"):
                continue
            readers = PINNED.get(gene, OWN) if supernet.pinned_of("encoder") else readers_of(family, gene)
            yield Case(f"{family} {head} {gene}", supernet, Subnet(encoder=stack), readers)


def unregistered() -> Iterator[Case]:
    sizes = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 32}
    config = AutoConfig.for_model("layoutlm", vocab_size=VOCABULARY, pad_token_id=0, **sizes)
    supernet = Supernet(randomised(AutoModelForSequenceClassification.from_config(config)))
    for gene, stack in GENES.items():
        yield Case(f"layoutlm {gene}", supernet, Subnet(encoder=stack), STOCK if gene == "depth" else ())


def decoders() -> Iterator[Case]:
    for family in DECODERS:
        supernet = Supernet(tiny_decoder(family))
        for gene, stack in GENES.items():
            yield Case(f"{family} {gene}", supernet, Subnet(decoder=stack), STOCK if gene == "depth" else ())


def encoder_decoders() -> Iterator[Case]:
    for family in ENCODER_DECODERS:
        supernet = Supernet(tiny_encoder_decoder(family))
        whole = supernet.full.stacks()
        for gene, stack in GENES.items():
            # T5's decoder would be as narrow as its encoder.
            t5 = family.startswith("t5") and gene == "ffn"
            readers = BOTH if t5 else readers_of(family, gene)
            yield Case(
                f"{family} encoder {gene}", supernet, Subnet(encoder=stack, decoder=whole["decoder"]), readers
            )
            readers = STOCK if gene == "depth" else ()
            yield Case(
                f"{family} decoder {gene}", supernet, Subnet(encoder=whole["encoder"], decoder=stack), readers
            )
        yield Case(f"{family} both depth", supernet, Subnet(GENES["depth"], GENES["depth"]), STOCK)


def read_by(supernet: Supernet) -> dict[str, torch.Tensor]:
    batch = padded_batch(LENGTHS)
    if len(supernet.stacks) > 1:
        batch["decoder_input_ids"] = padded_batch([7, 7, 7, 7], seed=1)["input_ids"]
    return batch


def reload(place: Path) -> None:
    """What the other process writes: logits, and texts with and without a cache."""
    found, cached = {}, {}
    for index, (folder, readers, writes) in enumerate(json.loads((place / "jobs.json").read_text())):
        with np.load(place / f"inputs-{writes}.npz") as file:
            batch = dict(file)
        (answers,) = reader.answers([(Path(folder), readers, ())], [batch])
        for name, answer in zip(readers, answers, strict=True):
            found[f"{index}.{name}"] = answer.logits[0]
        if writes != "nothing":
            model = ldsearch.load(folder)
            ids = torch.from_numpy(batch["input_ids"])[:1]
            write = partial(
                model.generate, input_ids=ids, do_sample=False, max_new_tokens=6, min_new_tokens=6
            )
            asked = [write()] * 2 if "t5" in folder else [write(use_cache=use) for use in (True, False)]
            cached[index] = [own.tolist() for own in asked]
    np.savez(place / "found.npz", **found)
    (place / "cached.json").write_text(json.dumps(cached))


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return [*encoders(), *unregistered(), *decoders(), *encoder_decoders()]


def writes(case: Case) -> str:
    return ("both" if len(case.supernet.stacks) > 1 else "one") if case.supernet.head.generates else "nothing"


@pytest.mark.slow
def test_what_is_exported_reloads_in_another_process_and_caches_are_right(tmp_path: Path, cases: list[Case]):
    exported = [case for case in cases if case.readers]
    jobs = []
    for case in exported:
        np.savez(
            tmp_path / f"inputs-{writes(case)}.npz",
            **{k: t.numpy() for k, t in read_by(case.supernet).items()},
        )
        folder = tmp_path / case.name.replace(" ", "-")
        written = write_huggingface(case.supernet, TOKENIZER, case.subnet, folder, PROVENANCE)
        assert written.readers == case.readers, case.name
        jobs.append([str(folder), list(written.readers), writes(case)])
    (tmp_path / "jobs.json").write_text(json.dumps(jobs))
    done = fresh.run(reload, tmp_path)
    assert done.returncode == 0, done.stderr
    with np.load(tmp_path / "found.npz") as file:
        found = {name: torch.from_numpy(array) for name, array in file.items()}
    real = padded_batch(LENGTHS)["attention_mask"].bool()
    for index, case in enumerate(exported):
        wanted = inference(case.supernet, read_by(case.supernet), case.subnet)
        for name in case.readers:
            theirs = found.pop(f"{index}.{name}")
            pairs = (wanted, theirs)
            if wanted.ndim == 3 and len(case.supernet.stacks) == 1:
                pairs = (wanted[real], theirs[real])
            difference = float((pairs[0] - pairs[1]).abs().max() / pairs[0].abs().max().clamp(min=1))
            assert difference <= 1e-5, f"{case.name} {name}: {difference:.2g}"
    assert not found
    cached = json.loads((tmp_path / "cached.json").read_text())
    generating = [index for index, case in enumerate(exported) if case.supernet.head.generates]
    assert sorted(map(int, cached)) == generating
    for index, (with_cache, without) in cached.items():
        assert with_cache == without, exported[int(index)].name


def test_what_is_not_exported_is_refused_in_one_line(tmp_path: Path, cases: list[Case]):
    refused = [case for case in cases if not case.readers]
    for case in refused:
        with pytest.raises(LdsearchError) as error:
            write_huggingface(case.supernet, TOKENIZER, case.subnet, tmp_path / "out", PROVENANCE)
        assert isinstance(error.value, SubnetError), case.name
        assert "depth-only" in str(error.value), case.name
        assert "\n" not in str(error.value), case.name
        assert not (tmp_path / "out").exists()
