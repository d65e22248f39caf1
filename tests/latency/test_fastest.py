"""The full model in every runtime: the fastest that keeps its answers is taken, and nothing else."""

import time

import pytest

from ldsearch.errors import ExportError
from ldsearch.export.agreement import share_of_full
from ldsearch.latency import fastest, runtimes
from ldsearch.latency.fastest import time_full_model
from ldsearch.latency.runtimes import GraphRuntime, Runtime
from ldsearch.latency.sessions import open_onnxruntime
from ldsearch.registry import Registry
from ldsearch.supernet import Supernet
from tests.tiny import padded_batch, tiny_model

SUPERNET = Supernet(tiny_model("bert", blocks=2)).eval()
FULL = SUPERNET.materialise(SUPERNET.full).eval()
BATCHES = [padded_batch([12, 7, 5, 9], seed=seed) for seed in range(8)]


class Planted(GraphRuntime):
    """A runtime of files that takes so long, and whose logits may be turned around."""

    def of_graph(self, fp32):
        assert fp32.exists()
        seconds, sign = self.settings["seconds"], self.settings["sign"]

        def forward(inputs):
            time.sleep(seconds)
            return [(sign * FULL(**inputs).logits).numpy()]

        return forward


def planted(seconds: float, *, wrong: bool = False) -> Planted:
    settings = {"seconds": seconds, "sign": -1.0 if wrong else 1.0}
    return Planted(f"planted {seconds}", open_onnxruntime, "torch", "none", settings)


def refused(supernet, subnet):
    raise ExportError("is not installed here")


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch):
    """These runtimes and no others."""

    def these(**named):
        registry = Registry("runtimes", named)
        for module in (fastest, runtimes):
            monkeypatch.setattr(module, "RUNTIMES", registry)
        monkeypatch.setattr("ldsearch.latency.clock.SECONDS", 0.0)

    return these


def timed(*cells):
    """In a cell of one row at least."""
    return time_full_model(SUPERNET, [(1, 8), *cells], share_of_full(SUPERNET, BATCHES), 0.98)


def test_the_fastest_that_keeps_the_answers_is_taken(only):
    only(
        slow=planted(0.03),
        wrong=planted(0.005, wrong=True),
        file=planted(0.015),
        missing=Runtime("missing", refused),
        own=lambda supernet, subnet: lambda inputs: "of one's own",
        never=Runtime("slow to start", refused, candidate=False),
    )
    full = timed((2, 8))
    assert list(full.milliseconds) == ["wrong", "file", "slow"]
    assert full.milliseconds["file"][0] == pytest.approx(15, rel=0.5)
    assert full.agreement == {"wrong": 0.0, "file": 1.0}  # "slow" need not be asked
    assert full.fastest() == full.fastest(files=True) == "file"
    assert full.left_out == {"missing": "is not installed here"}
    told = full.describe().splitlines()
    assert "0.0% of predictions the same, fewer than 98%: not taken" in told[1]
    assert told[-1] == "  missing: is not installed here"


def test_what_serves_no_file_may_be_the_rival_and_is_left_out_where_it_is_far_too_slow(only):
    only(
        torch=Runtime("stock", lambda supernet, subnet: lambda inputs: FULL(**inputs)),
        far=Runtime("far away", lambda supernet, subnet: lambda inputs: time.sleep(0.1)),
        file=planted(0.01),
        slow=planted(0.1),
    )
    full = timed()
    assert list(full.milliseconds) == ["torch", "file", "slow"]  # a runtime of files stays, however slow
    assert (full.fastest(), full.fastest(files=True)) == ("torch", "file")
    assert "times as long as the fastest" in full.left_out["far"]


def test_none_that_keeps_the_answers_is_one_line(only):
    only(wrong=planted(0.0, wrong=True), missing=Runtime("missing", refused))
    full = timed()
    with pytest.raises(ExportError, match="keeps this model's answers: is not installed here"):
        full.fastest()


def test_a_library_that_is_missing_is_named_with_its_extra():
    gone = GraphRuntime("OpenVINO 2050", open_onnxruntime, "openvino2050", "openvino")
    with pytest.raises(ExportError, match=r"needs openvino2050: pip install 'ldsearch\[openvino\]'"):
        gone.require()
