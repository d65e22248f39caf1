"""Times sub-networks in turn with the full model on one cell of a workload; their memory."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import GenerationConfig

from ldsearch.costs.workload import Workload
from ldsearch.errors import DataError, LdsearchError
from ldsearch.latency.clock import Clock, Noise, Run, Timing
from ldsearch.latency.runtimes import RUNTIMES, Inputs, require_runtime, title_of
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.heads import ended
from ldsearch.supernet.stages import pinned_until
from ldsearch.work.progress import NO_PROGRESS, Progress

# Batches of a split that stand for it: evenly spread over its lengths.
DATA_BATCHES = 8


# Of what is pinned: a query is so much of an input that is drawn.
_FIRST_TEXT = 8


@dataclass(frozen=True)
class Cell:
    """Inputs of one batch size.

    Args:
        batch: Rows of each batch.
        length: Tokens of each row, or ``"data"`` for rows of a split.
        batches: The inputs; a latency is their mean.
        lengths: True length of every row.
    """

    batch: int
    length: int | str
    batches: tuple[Inputs, ...]
    lengths: tuple[int, ...]

    def workload(self, written: int, *, causal: bool) -> Workload:
        """The lengths that MACs count: what is read, and so many tokens written; 0 where nothing is.

        A causal model reads what it writes, but for the last token.
        """
        if causal:
            grown = [n + max(written - 1, 0) for n in self.lengths]
            return Workload.from_lengths(grown, max(grown))
        texts = [written] * len(self.lengths) if written else None
        return Workload.from_lengths(self.lengths, max(self.lengths), texts)


def random_cell(supernet: Supernet, batch: int, length: int, written: int = 0) -> Cell:
    """Rows of random tokens, none of them padding; the same ones every time.

    Args:
        supernet: Whose vocabulary and device.
        batch: Rows.
        length: Tokens of each.
        written: Tokens that will be generated.

    Raises:
        LdsearchError: If the model has no positions for so many tokens.
    """
    both = len(supernet.stacks) > 1
    longest = max(length, written) if both else length + written
    if batch < 1 or length < 1:
        raise LdsearchError(f"a batch has 1 row or more of 1 token or more, not {batch} of {length}")
    if longest > supernet.longest:
        raise LdsearchError(f"the model has {supernet.longest} positions, too few for {longest} tokens")
    ids = random_tokens(supernet, batch, length)
    if (end := pinned_until(supernet.model.config)) is not None:
        ids[ids == end] = 1
        ids[:, length // _FIRST_TEXT] = end
    # As a tokenizer gives it: stock code looks for padding too.
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    return Cell(batch, length, (inputs,), (length,))


def random_tokens(supernet: Supernet, batch: int, length: int) -> Tensor:
    """Shape (batch, length), on the supernet's device, without the padding token."""
    config: Any = supernet.model.config
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(1, config.vocab_size, (batch, length), generator=generator)
    if config.pad_token_id is not None:
        # Never the id itself: some models count positions by what is not padding.
        ids = (ids + config.pad_token_id) % config.vocab_size
    return ended(supernet.model, ids, torch.ones_like(ids)).to(supernet.model.device)


def data_cell(
    supernet: Supernet,
    features: Sequence[dict[str, Any]],
    collate: Callable[[Sequence[dict[str, Any]]], dict[str, Tensor]],
    batch: int,
) -> Cell:
    """Batches of a split's rows, sorted by length and padded within a batch.

    Args:
        supernet: What will read them.
        features: The split's, each with ``input_ids``.
        collate: Pads some of them to one batch.
        batch: Rows of each batch.

    Raises:
        DataError: If the split is smaller than a batch.
        LdsearchError: If the model is a decoder on its own, whose data are one text cut evenly.
    """
    if supernet.head.causal:
        raise LdsearchError("--length data: a causal model's rows are one running text; name lengths instead")
    if len(features) < batch:
        raise DataError(f"a batch of {batch} needs as many rows; the split has {len(features)}")
    order = np.argsort([len(feature["input_ids"]) for feature in features], kind="stable")
    whole = len(order) // batch
    chosen = np.unique(np.linspace(0, whole - 1, min(whole, DATA_BATCHES)).round().astype(int))
    rows = [[features[row] for row in order[at * batch : (at + 1) * batch]] for at in chosen]
    device = supernet.model.device
    batches = tuple(
        {name: tensor.to(device) for name, tensor in collate(own).items() if name != "labels"} for own in rows
    )
    return Cell(batch, "data", batches, tuple(len(f["input_ids"]) for own in rows for f in own))


@dataclass(frozen=True)
class Probe:
    """The runs that a latency is made of.

    Args:
        written: Tokens that each run writes; 0: a forward.
        phases: Name to the weights of the runs, whose weighted sum of seconds (or MACs) is the phase's.
    """

    written: tuple[int, ...]
    phases: Mapping[str, tuple[float, ...]]


FORWARD = Probe((0,), MappingProxyType({"forward": (1.0,)}))


def generating(tokens: int) -> Probe:
    """Prefill is all it takes to the first token; per token is the mean of those that follow.

    Raises:
        LdsearchError: If none follows.
    """
    if tokens < 1:
        raise LdsearchError(f"the latency of a token needs 1 token or more, not {tokens}")
    phases = {"prefill": (1.0, 0.0), "per token": (-1 / tokens, 1 / tokens)}
    return Probe((1, 1 + tokens), MappingProxyType(phases))


def runs_of(probe: Probe, supernet: Supernet, entry: "Entry", cell: Cell) -> list[Run]:
    """The probe's runs over all batches of a cell.

    Raises:
        LdsearchError: If the runtime cannot run the sub-network, or not write with it.
    """
    if not supernet.head.generates:
        return [forward_run(RUNTIMES[entry.runtime](supernet, entry.subnet), cell)]
    if entry.runtime != "eager":
        raise LdsearchError("prefill and per-token latency are those of the eager model: use --runtime eager")
    return [generate_run(supernet.materialise(entry.subnet), cell, written) for written in probe.written]


def forward_run(forward: Callable[[Any], object], cell: Cell) -> Run:
    """A forward over all batches of a cell, without gradients."""

    def run() -> None:
        with torch.inference_mode():
            for inputs in cell.batches:
                forward(inputs)

    return run


def generate_run(model: nn.Module, cell: Cell, written: int) -> Run:
    """Greedy generation over all batches of a cell: cached, and exactly ``written`` tokens.

    Args:
        model: Its generation configuration is replaced, so it must not be shared.
        cell: The inputs.
        written: Tokens to generate.
    """
    model.eval()
    writes: Any = model
    for part in model.modules():
        # Materialised: the stock model keeps its own. generate() fills in what is left open from this one.
        saved = getattr(part, "generation_config", None)
        if saved is not None:
            part.generation_config = GenerationConfig(  # type: ignore[assignment]
                max_new_tokens=written,
                do_sample=False,
                num_beams=1,
                use_cache=saved.use_cache,
                bos_token_id=saved.bos_token_id,
                pad_token_id=saved.pad_token_id,
                decoder_start_token_id=saved.decoder_start_token_id,
            )

    def run() -> None:
        # Not inference_mode: position tables grown inside it could not be trained through afterwards.
        with torch.no_grad():
            for inputs in cell.batches:
                ids, mask = inputs["input_ids"], inputs["attention_mask"]
                found = writes.generate(input_ids=ids, attention_mask=mask)
                start = 1 if writes.config.is_encoder_decoder else ids.shape[1]
                if found.shape[1] != start + written:  # it would pass for a fast one
                    raise LdsearchError(f"{type(model).__name__} does not write {written} tokens when asked")

    return run


# MACs that fell by more than a tenth should be seen in time: 0.97 is the smallest gain that is one.
FEWER_MACS = 0.9
FASTER = 0.97


@dataclass(frozen=True)
class Entry:
    """A sub-network in a runtime; or its export, as the file lies there."""

    subnet: Subnet
    runtime: str
    exported: bool = False


@dataclass(frozen=True)
class MeasuredLatency:
    """Latency of a batch: one phase of a sub-network in a runtime, beside the full model.

    Args:
        subnet: What ran.
        runtime: In which runtime.
        phase: ``forward``, ``prefill`` or ``per token``.
        batch: Inputs at once.
        length: Tokens of each, or ``"data"``.
        median_ms: Median of the repeats.
        low_ms: First quartile.
        high_ms: Third quartile.
        p95_ms: 95th percentile.
        repeats: How many.
        full_ms: The full model's median in the fastest runtime that it was timed in.
        full_runtime: That runtime.
        ratio: ``median_ms`` over ``full_ms``.
        runtime_ratio: ``median_ms`` over the full model's in the same runtime.
        macs: Per example.
        macs_ratio: ``macs`` over the full model's.
        noisy: Whether the machine was.
        peak_activation_bytes: The most that a call allocates; None where that is not measured.
    """

    subnet: Subnet
    runtime: str
    phase: str
    batch: int
    length: int | str
    median_ms: float
    low_ms: float
    high_ms: float
    p95_ms: float
    repeats: int
    full_ms: float
    full_runtime: str
    ratio: float
    runtime_ratio: float
    macs: float
    macs_ratio: float
    noisy: bool
    peak_activation_bytes: int | None = None

    @property
    def not_faster(self) -> bool:
        """Whether MACs fell by more than 10% and latency did not, in its runtime or relative to the best."""
        return self.macs_ratio < FEWER_MACS and max(self.ratio, self.runtime_ratio) > FASTER

    def to_dict(self) -> dict[str, Any]:
        """Row of a table, ready for JSON."""
        return {**vars(self), "subnet": self.subnet.to_json(), "not_faster": self.not_faster}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> "MeasuredLatency":
        """The inverse."""
        kept = {name: value for name, value in fields.items() if name != "not_faster"}
        return cls(**{**kept, "subnet": Subnet.from_json(fields["subnet"])})

    def describe(self) -> str:
        """Describe the latency in a sentence."""
        phase = "" if self.phase == "forward" else f"{self.phase} "
        slow = ", not faster though its MACs are fewer" if self.not_faster else ""
        own = f", {self.runtime_ratio:.2f} of its time here" if self.runtime_ratio != self.ratio else ""
        return (
            f"{phase}{self.median_ms:.3g} ms at batch {self.batch} of {self.length} tokens, {self.ratio:.2f} "
            f"of the full model's {self.full_ms:.3g} ({title_of(self.full_runtime)}){own}{slow}"
        )


def entries_of(
    supernet: Supernet, subnets: Sequence[Subnet], runtime: str, rival: str | None = None
) -> list[Entry]:
    """The full model's first, in every runtime that latency is compared with, then the sub-networks'.

    Args:
        supernet: Whose sub-networks they are.
        subnets: What is timed.
        runtime: Where.
        rival: Where the full model is fastest, as far as is known.

    Raises:
        LdsearchError: If there is no such runtime.
    """
    require_runtime(runtime)
    compared = ("eager",) if supernet.head.generates else ("eager", "own")
    full = [Entry(supernet.full, name) for name in (*compared, *([rival] if rival else []), runtime)]
    return list(dict.fromkeys([*full, *(Entry(subnet, runtime) for subnet in subnets)]))


def measure(
    supernet: Supernet,
    entries: Sequence[Entry],
    cell: Cell,
    probe: Probe,
    clock: Clock,
    progress: Progress = NO_PROGRESS,
    runs: Callable[[Entry], Sequence[Run]] | None = None,
) -> tuple[list[MeasuredLatency], Noise]:
    """Time every entry on a cell, in turn.

    Args:
        supernet: In eval mode, on its device.
        entries: Of ``entries_of``: the first is of the full model.
        cell: The inputs.
        probe: What is timed of each.
        clock: How.
        progress: A step after every timed call.
        runs: Gives an entry's runs, as many as the probe has; None: ``runs_of``.

    Raises:
        LdsearchError: If a runtime cannot run a sub-network.
    """
    runs = runs or (lambda entry: runs_of(probe, supernet, entry, cell))
    timed = [runs(entry) for entry in entries]
    rounds = clock([run for own in timed for run in own], progress)
    seconds = rounds.seconds.reshape(len(entries), len(probe.written), -1) / len(cell.batches)
    workloads = [cell.workload(written, causal=supernet.head.causal) for written in probe.written]
    macs = np.stack([supernet.macs(each)([entry.subnet for entry in entries]) for each in workloads])
    peaks = [peak_activation_bytes(own[0], supernet.model.device) for own in timed]
    latencies = []
    for phase, weights in probe.phases.items():
        timings = [Timing.of(1e3 * np.array(weights) @ own) for own in seconds]
        counts = np.array(weights) @ macs
        full = {
            entry.runtime: timing.median
            for entry, timing in zip(entries, timings, strict=True)
            if entry.subnet == supernet.full and not entry.exported
        }
        full_ms, best = min((milliseconds, name) for name, milliseconds in full.items())
        latencies += [
            MeasuredLatency(
                subnet=entry.subnet,
                runtime=entry.runtime,
                phase=phase,
                batch=cell.batch,
                length=cell.length,
                median_ms=timing.median,
                low_ms=timing.low,
                high_ms=timing.high,
                p95_ms=timing.p95,
                repeats=timing.repeats,
                full_ms=full_ms,
                full_runtime=best,
                ratio=timing.median / full_ms,
                runtime_ratio=timing.median / full.get(entry.runtime, full_ms),
                macs=float(count),
                macs_ratio=float(count / counts[0]),
                noisy=rounds.noise.noisy,
                peak_activation_bytes=peak,
            )
            for entry, timing, count, peak in zip(entries, timings, counts, peaks, strict=True)
        ]
    return latencies, rounds.noise


def memory_of(supernet: Supernet, subnet: Subnet) -> dict[str, int | None]:
    """Bytes of a materialised sub-network, measured on its tensors; one that generates writes two tokens.

    Returns:
        ``weight_bytes`` of parameters and buffers, tied ones once; the keys and values that each token of a
        text adds (``cache_bytes_per_token``), and each token of an encoder-decoder's input
        (``cache_bytes_per_source_token``); None where none are kept.
    """
    model = supernet.materialise(subnet).eval()
    cache = None
    if supernet.head.generates:
        ids = random_tokens(supernet, 1, 4)
        writes: Any = model
        with torch.no_grad():
            cache = writes.generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=2,
                num_beams=1,
                do_sample=False,
                return_dict_in_generate=True,
            ).past_key_values
    source = None
    if cache is not None and not supernet.head.causal:
        cache, source = cache.self_attention_cache, cache.cross_attention_cache
    return {
        "weight_bytes": weight_bytes(model),
        "cache_bytes_per_token": None if cache is None else _per_token(cache),
        "cache_bytes_per_source_token": None if source is None else _per_token(source),
    }


def weight_bytes(model: nn.Module) -> int:
    """Bytes of distinct parameters and buffers."""
    return sum(tensor.nbytes for tensor in (*model.parameters(), *model.buffers()))


def peak_activation_bytes(run: Callable[[], object], device: torch.device) -> int | None:
    """The most a call allocates in addition to what is allocated already; None on a CPU."""
    if device.type != "cuda":
        return None
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    run()
    return torch.cuda.max_memory_allocated(device) - before


def _per_token(cache: Any) -> int:
    """Heads x width x bytes of keys and values, over the layers; each of shape (B, H, n, width)."""
    tensors: list[Tensor] = [tensor for layer in cache.layers for tensor in (layer.keys, layer.values)]
    return sum(tensor.shape[1] * tensor.shape[3] * tensor.element_size() for tensor in tensors)
