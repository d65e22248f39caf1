"""Model cards: how the sub-network was trained, searched and measured, and how to load it."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from huggingface_hub import ModelCardData
from jinja2 import Environment, PackageLoader, StrictUndefined

from ldsearch.disk.hub import Origin
from ldsearch.latency.measure import MeasuredLatency
from ldsearch.latency.runtimes import graph_runtime, title_of
from ldsearch.subnet import Subnet
from ldsearch.supernet.graph import OPSET, Graph

# The pipeline's name of a kind of task, else of a head, as the Hub tags models.
_PIPELINES = {
    "ranking": "text-ranking",
    "SequenceClassification": "text-classification",
    "TokenClassification": "token-classification",
    "QuestionAnswering": "question-answering",
    "MaskedLM": "fill-mask",
    "SentenceEmbedding": "sentence-similarity",
    "CausalLM": "text-generation",
    "Seq2SeqLM": "text2text-generation",
}


class Alone(Enum):
    """Behaviour of the folder in stock classes without ldsearch, as the card says it."""

    SAME = ""
    SLOWER = "Without trust_remote_code, stock classes give the same outputs, not faster, and warn."
    LONGER = "Without trust_remote_code, stock classes run this folder at full length, and warn."
    OTHER = "Without trust_remote_code, stock classes compute something else, and warn: do not use it."


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
        origin: What is known of the model that training started from, and of its data.
        metric: Name of the score; empty: it was not measured.
        task: Kind of the task that it was trained or measured for; empty: none is known.
        pairs: Whether an input is two texts.
    """

    supernet: str
    training: str
    data: str
    search: str
    score: str
    costs: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    fingerprint: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    origin: Origin = field(default_factory=Origin)
    metric: str = ""
    task: str = ""
    pairs: bool = False


@dataclass(frozen=True)
class Written:
    """An export that waits for its check.

    Args:
        folder: Where it lies.
        subnet: What it is, in the supernet's ids.
        readers: Who must be able to run it (names of ``ldsearch.export.reader.READERS``).
        tolerance: The most its logits may differ from the supernet's, as a share of the largest or of 1;
            None: of a runtime that rounds, whose predictions are compared instead.
        card: ``model_card``, given what the checks found; None: another export of the folder has it.
        runtime: What runs its graph (a name of ``RUNTIMES``); empty: of a Hugging Face folder.
        keep: Of a row of an elastic graph, what is fed as its lengths; empty: its default.
    """

    folder: Path
    subnet: Subnet
    readers: tuple[str, ...]
    tolerance: float | None
    card: Callable[..., str] | None
    runtime: str = ""
    keep: tuple[int, ...] = ()


def model_card(
    subnet: Subnet,
    provenance: Provenance,
    head: str,
    alone: Alone = Alone.SAME,
    graph: Graph | None = None,
    runtime: str = "",
    *,
    verified: str,
    latency: Sequence[MeasuredLatency] = (),
    machine: str = "",
) -> str:
    """``card.md.j2`` filled in: Markdown with the Hub's front matter.

    Args:
        subnet: What was exported, in the supernet's ids.
        provenance: Where it comes from.
        head: Name of the model's head.
        alone: Behaviour of a Hugging Face folder in stock classes.
        graph: Of an ONNX folder.
        runtime: In which it was checked.
        verified: What was checked, in words.
        latency: What was timed.
        machine: What it was timed on, in words.
    """
    dtype = file_dtype(runtime)
    environment = Environment(
        loader=PackageLoader("ldsearch", "export"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["cost"] = lambda cost: (
        f"{cost:,.0f}" if cost == round(cost) or cost >= 1000 else f"{cost:.3g}"
    )
    environment.filters["title"] = title_of
    environment.filters["name"] = lambda text: re.sub(r"([\\`*\[\]<>|&])", r"\\\1", " ".join(text.split()))
    return environment.get_template("card.md.j2").render(
        subnet=subnet,
        provenance=provenance,
        head=head,
        matter=_front_matter(provenance, head, graph, dtype),
        alone=alone.value,
        graph=graph,
        dtype=dtype,
        runtime=runtime,
        settings=dict(graph_runtime(runtime).settings) if runtime else {},
        opset=OPSET,
        verified=verified,
        latency=latency,
        machine=machine,
    )


def file_dtype(runtime: str) -> str:
    """Precision of the weights in a runtime's file."""
    return "int8" if runtime and graph_runtime(runtime).quantised else "float32"


def _front_matter(provenance: Provenance, head: str, graph: Graph | None, dtype: str) -> str:
    """The Hub's fields as YAML; what is not known is left out."""
    origin = provenance.origin
    data = ModelCardData(
        base_model=list(origin.base_model) or None,
        datasets=list(origin.datasets) or None,
        license=origin.licence or None,
        library_name="onnx" if graph else "transformers",
        pipeline_tag=_PIPELINES.get(provenance.task, _PIPELINES[head]),
        metrics=[provenance.metric] if provenance.metric else None,
        tags=["ldsearch", *(["onnx", dtype] if graph else [])],
    )
    return data.to_yaml()
