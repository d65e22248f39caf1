"""A model that cannot become a supernet is one line, from a configuration and from a folder."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import CONFIG, Ldsearch
from tests.cli.test_bad_input import expect_refusal, train

PARTS = ("layers", "attention_heads", "ffn_dim")
SIDES = {f"{side}_{part}": 2 for side in ("encoder", "decoder") for part in PARTS}


@pytest.mark.parametrize(
    ("config", "says"),
    [
        # Two stacks, and a head that classifies.
        ({"model_type": "bart", "d_model": 8, **SIDES}, "only those that generate text are supported"),
        # One block, again and again.
        ({**CONFIG, "model_type": "albert", "embedding_size": 8}, "its stack of blocks cannot be found"),
    ],
    ids=["bart", "albert"],
)
def test_a_stack_that_cannot_be_used(
    ldsearch: Ldsearch, place: Path, config: dict[str, object], says: str
) -> None:
    (place / "odd.json").write_text(json.dumps(config))
    for strategy in ("lengthdrop", "layerdrop"):
        message = expect_refusal(ldsearch, place, *train("--model", "odd.json", "--strategy", strategy))
        assert says in message


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"quantization_config": {"quant_method": "bitsandbytes"}}, "is quantised"),
        ({"num_experts": 8}, "is a mixture of experts"),
        ({"auto_map": {"AutoConfig": "own.Config"}}, "brings code of its own"),
    ],
)
def test_what_would_become_something_else(
    ldsearch: Ldsearch, place: Path, fields: dict[str, object], says: str
) -> None:
    (place / "odd.json").write_text(json.dumps({**CONFIG, **fields}))
    assert says in expect_refusal(ldsearch, place, *train("--model", "odd.json"))
    (place / "odd").mkdir()  # without weights: it is refused before any is missed
    (place / "odd.json").rename(place / "odd" / "config.json")
    assert says in expect_refusal(ldsearch, place, *train("--model", "odd"))
