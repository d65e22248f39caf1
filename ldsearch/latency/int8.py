"""int8 graphs: ONNX Runtime's dynamic quantisation of the ones that ``graph`` writes.

Weights are integers with a scale for each output channel, activations uint8 with a scale found at run time.
With one scale for a whole matrix, ONNX Runtime's default, more rows change their label (results/imdb).
Weights lie in -64..64: x86 without VNNI sums pairs of products in 16 bits, which 8-bit weights overflow,
silently, and a file does not know where it will be served. The eighth bit is lost in the noise of the
activations (docs/exporting.md).
"""

import contextlib
import io
import logging
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

# Products of int8 in one instruction, as Linux calls them on x86 and ARM. Without one int8 gains less.
INSTRUCTIONS = ("amx_int8", "avx512_vnni", "avx_vnni", "i8mm", "asimddp")
_FACTS = Path("/proc/cpuinfo")


def quantise(fp32: Path, int8: Path, *, per_channel: bool = True) -> None:
    """Write the int8 graph of a graph; both may be the same path.

    Args:
        fp32: The graph.
        int8: Where its int8 graph goes.
        per_channel: A scale for each output channel of a weight, or one for all of it.
    """
    library = import_module("onnxruntime.quantization")
    made = int8.with_name(f".{int8.name}.int8")
    with _quiet():
        library.quantize_dynamic(
            fp32, made, weight_type=library.QuantType.QInt8, per_channel=per_channel, reduce_range=True
        )
    _forget_shapes(made)
    made.replace(int8)


def _forget_shapes(path: Path) -> None:
    """Leave out the shapes of intermediate tensors, which the quantiser wrote down.

    With them ONNX Runtime fuses residuals and norms (SkipLayerNormalization), which on CPUs takes thrice as
    long as an addition and a norm do: up to a quarter of the int8 graph's time (docs/exporting.md).
    """
    onnx = import_module("onnx")
    model = onnx.load(path)
    del model.graph.value_info[:]
    onnx.save(model, path)


def int8_instructions(facts: Path = _FACTS) -> tuple[str, ...] | None:
    """Those of ``INSTRUCTIONS`` that this processor has; None where the system does not say."""
    try:
        text = facts.read_text(encoding="utf-8")
    except OSError:
        return None
    lines = (line.partition(":") for line in text.splitlines())
    flags = {
        flag for name, _, values in lines if name.strip() in ("flags", "Features") for flag in values.split()
    }
    return tuple(name for name in INSTRUCTIONS if name in flags) if flags else None


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """The quantiser recommends a pre-processing that changes nothing here, on a logger and on stdout."""
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        root.setLevel(level)
