"""Model cards: how the sub-network was trained, searched and measured, and how to load it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Protocol

from ldsearch.latency.measure import FASTER, FEWER_MACS
from ldsearch.subnet import Subnet


class Alone(Enum):
    """Behaviour of the folder in stock classes without ldsearch, as the card says it."""

    SAME = ""
    SLOWER = "Stock AutoModel and pipelines load this folder too: same outputs, not faster."
    LONGER = "Stock AutoModel and pipelines load this folder too, but run it at full length."
    OTHER = (
        "Stock AutoModel would load this folder, but compute something else: what is left out here cannot be."
    )


@dataclass(frozen=True)
class Timed:
    """Latency of an export and of the full model, in milliseconds of a batch.

    Args:
        phase: ``forward``, ``prefill`` or ``per token``.
        batch: Rows.
        length: Tokens of each.
        ms: Median.
        low_ms: First quartile.
        high_ms: Third quartile.
        full_ms: The full model's median, the faster of its own path and stock sdpa; of an ONNX file the
            full model's graph, where that can be written.
        full_path: Which it was.
        ratio: ``ms`` over ``full_ms``.
        macs_ratio: MACs over the full model's, at the workload's lengths.
        repeats: Of each.
        noisy: Whether the machine was.
        device: What ran it.
        threads: Inside an operation.
    """

    phase: str
    batch: int
    length: int
    ms: float
    low_ms: float
    high_ms: float
    full_ms: float
    full_path: str
    ratio: float
    macs_ratio: float
    repeats: int
    noisy: bool
    device: str
    threads: int

    @property
    def not_faster(self) -> bool:
        """Whether MACs fell by more than 10% and latency did not."""
        return self.macs_ratio < FEWER_MACS and self.ratio > FASTER

    def describe(self) -> str:
        """Describe the timing in a sentence."""
        phase = "" if self.phase == "forward" else f"{self.phase} "
        slow = ", not faster though its MACs are fewer" if self.not_faster else ""
        return (
            f"{phase}{self.ms:.3g} ms at batch {self.batch} of {self.length} tokens, {self.ratio:.2f} of the "
            f"full model's {self.full_ms:.3g} ({self.full_path}){slow}"
        )


@dataclass(frozen=True)
class Provenance:
    """Origin of a sub-network, for its model card.

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


class Card(Protocol):
    """Makes a model card."""

    def __call__(self, verified: str, latency: Sequence[Timed] = (), /) -> str:
        """Given what the checks found, in words, and what was timed."""


@dataclass(frozen=True)
class Written:
    """An export that waits for its check.

    Args:
        folder: Where it lies.
        subnet: What it is, in the supernet's ids.
        readers: Who must be able to run it (names of ``ldsearch.export.reader.READERS``).
        tolerance: The most its logits may differ from the supernet's, as a share of the largest or of 1.
        card: The model card, given what the checks found.
    """

    folder: Path
    subnet: Subnet
    readers: tuple[str, ...]
    tolerance: float
    card: Card


# The pipeline's name of a head, as the Hub tags models.
_PIPELINES = {
    "SequenceClassification": "text-classification",
    "TokenClassification": "token-classification",
    "QuestionAnswering": "question-answering",
    "MaskedLM": "fill-mask",
    "CausalLM": "text-generation",
    "Seq2SeqLM": "text2text-generation",
}


@dataclass(frozen=True)
class Usage:
    """Instructions for running a folder, for its model card.

    Args:
        library: The Hub's name of what loads it.
        code: Python lines.
        notes: What else a user must know, one sentence or more.
    """

    library: str
    code: str
    notes: str = ""


def model_card(
    subnet: Subnet,
    provenance: Provenance,
    head: str,
    usage: Usage,
    verified: str,
    latency: Sequence[Timed] = (),
) -> str:
    """Markdown with the Hub's front matter.

    Args:
        subnet: What was exported, in the supernet's ids.
        provenance: Where it comes from.
        head: Name of the model's head.
        usage: How the folder is run.
        verified: What was checked, in words.
        latency: What was timed.
    """
    costs = _table(
        ("cost", "this model", "full model", "ratio"),
        [
            (name, _number(own), _number(full), f"{own / full:.3f}")
            for name, (own, full) in provenance.costs.items()
        ],
    )
    versions = ", ".join(f"{name} {version}" for name, version in provenance.versions.items())
    return f"""---
library_name: {usage.library}
tags: [ldsearch, {_PIPELINES[head]}]
---

# A sub-network of {provenance.supernet}

{subnet.describe()} (ids of the supernet, 0-based; this folder numbers its blocks from 0).

- Trained: {provenance.training}
- Data: {provenance.data}
- Chosen: {provenance.search}
- Score: {provenance.score}
- Verified: {verified}
- Measurement fingerprint: `{provenance.fingerprint}`
- Versions: {versions}

{costs}
{_latency_section(latency)}
## Use

```python
{usage.code}
```
{usage.notes}"""


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) if rows else ""


def _number(cost: float) -> str:
    return f"{cost:,.0f}" if cost == round(cost) or cost >= 1000 else f"{cost:.3g}"


def _latency_section(latency: Sequence[Timed]) -> str:
    """Empty where nothing was timed."""
    if not latency:
        return ""
    headings = ("ms of a batch", "batch", "tokens", "this model", "quartiles", "full model", "ratio")
    rows = [
        (
            each.phase,
            str(each.batch),
            str(each.length),
            f"{each.ms:.3g}",
            f"{each.low_ms:.3g}-{each.high_ms:.3g}",
            f"{each.full_ms:.3g} ({each.full_path})",
            f"{each.ratio:.3f}" + (", not faster" if each.not_faster else ""),
        )
        for each in latency
    ]
    steadiness = "noisy" if any(each.noisy for each in latency) else "steady"
    return f"""
## Latency

{_table(headings, rows)}

Medians of {latency[0].repeats} on {latency[0].device}, {latency[0].threads} threads, in turn with the full
model, on random tokens; the machine was {steadiness}.
"""


def torch_usage(head: str, alone: Alone) -> Usage:
    """Usage of a Hugging Face folder."""
    load = _STOCK_LOAD.format(head=head) if alone is Alone.SAME else _OWN_LOAD.format(alone=alone.value)
    call = _CALLS.get(head, "logits = model(**inputs).logits")
    return Usage("transformers", f"{load}\n{_TOKENS}\n{call}")


def onnx_usage(inputs: Sequence[str], outputs: Sequence[str], opset: int) -> Usage:
    """Usage of an ONNX folder, without torch."""
    code = _ONNX.format(
        options=", return_token_type_ids=True" if "token_type_ids" in inputs else "",
        first=f"{outputs[0]}," if len(outputs) == 1 else ", ".join(outputs),
    )
    notes = (
        f"\nONNX opset {opset}, float32. Inputs {', '.join(inputs)}: int64, (batch, length), both dynamic, "
        f"padded on the right. Outputs {', '.join(outputs)}. Tokens are dropped inside the graph, each row's "
        "by its own length: a row of a batch gives what it gives alone.\n"
    )
    return Usage("onnx", code, notes)


_TOKENS = """tokenizer = AutoTokenizer.from_pretrained("this folder")
inputs = tokenizer("some text", return_tensors="pt")"""

_WRITE = """ids = model.generate(**inputs, max_new_tokens=50)
text = tokenizer.decode(ids[0], skip_special_tokens=True)"""

# What the card shows of a call, where it does not read logits.
_CALLS = {"QuestionAnswering": "output = model(**inputs)", "CausalLM": _WRITE, "Seq2SeqLM": _WRITE}

_STOCK_LOAD = """from transformers import AutoModelFor{head}, AutoTokenizer

model = AutoModelFor{head}.from_pretrained("this folder")"""

_OWN_LOAD = """import ldsearch
from transformers import AutoTokenizer

# {alone}
model = ldsearch.load("this folder")"""

_ONNX = """from onnxruntime import InferenceSession
from transformers import AutoTokenizer

session = InferenceSession("this folder/model.onnx")
tokenizer = AutoTokenizer.from_pretrained("this folder")
inputs = tokenizer(["some text", "some more of it"], padding=True, return_tensors="np"{options})
{first} = session.run(None, {{entry.name: inputs[entry.name] for entry in session.get_inputs()}})"""
