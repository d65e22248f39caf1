"""Model cards: how the sub-network was trained, searched and measured, and how to load it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ldsearch.subnet import Subnet


@dataclass(frozen=True)
class Provenance:
    """What a model card tells of the origin of a sub-network.

    Args:
        supernet: Name of the supernet's folder.
        training: Strategy and options, in words.
        data: Where the data came from.
        search: How the sub-network was found.
        score: Measured score, in words.
        costs: Cost name to (this sub-network, full model).
        fingerprint: What the score belongs to.
        versions: Library versions.
    """

    supernet: str
    training: str
    data: str
    search: str
    score: str
    costs: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    fingerprint: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)


def model_card(subnet: Subnet, provenance: Provenance) -> str:
    """Markdown with the Hub's front matter."""
    has_lengths = subnet.encoder is not None and subnet.encoder.lengths is not None
    rows = [
        f"| {name} | {own:,.0f} | {full:,.0f} | {own / full:.3f} |"
        for name, (own, full) in provenance.costs.items()
    ]
    costs = (
        "\n".join(["| cost | this model | full model | ratio |", "|---|---|---|---|", *rows]) if rows else ""
    )
    versions = ", ".join(f"{name} {version}" for name, version in provenance.versions.items())
    return f"""---
library_name: transformers
tags: [ldsearch, text-classification]
---

# A sub-network of {provenance.supernet}

{subnet.describe()} (ids of the supernet, 0-based; this folder numbers its blocks from 0).

- Trained: {provenance.training}
- Data: {provenance.data}
- Chosen: {provenance.search}
- Score: {provenance.score}
- Measurement fingerprint: `{provenance.fingerprint}`
- Versions: {versions}

{costs}

## Use

```python
{_LENGTHS_USE if has_lengths else _STOCK_USE}
```
"""


_STOCK_USE = """from transformers import AutoModelForSequenceClassification, AutoTokenizer

model = AutoModelForSequenceClassification.from_pretrained("this folder")
tokenizer = AutoTokenizer.from_pretrained("this folder")
logits = model(**tokenizer("some text", return_tensors="pt")).logits"""

_LENGTHS_USE = """import ldsearch
from transformers import AutoTokenizer

# Drops tokens. Stock AutoModel and pipelines load this folder too, but run it at full length.
model = ldsearch.load("this folder")
tokenizer = AutoTokenizer.from_pretrained("this folder")
logits = model(**tokenizer("some text", return_tensors="pt")).logits"""
