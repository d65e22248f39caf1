"""Label texts with an exported ONNX file: onnxruntime and tokenizers, no torch.

ldsearch export runs/reviews-0.4 exported/reviews --format onnx --runtime onnx-int8
python examples/serve_onnx.py exported/reviews "Arrived late, and broken." "What I had hoped for."
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
from onnxruntime import InferenceSession, SessionOptions
from tokenizers import Tokenizer


class Classifier:
    """An exported folder as a function of texts.

    Args:
        folder: What ``ldsearch export --format onnx`` wrote.
        threads: Of ONNX Runtime; 0: its own choice.
    """

    def __init__(self, folder: Path, threads: int = 0):
        options = SessionOptions()
        options.intra_op_num_threads = threads
        self.session = InferenceSession(folder / "onnx/model.onnx", options)
        self.inputs = [entry.name for entry in self.session.get_inputs()]
        config = json.loads((folder / "config.json").read_text())
        self.labels = {int(number): label for number, label in config["id2label"].items()}
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        settings = json.loads((folder / "tokenizer_config.json").read_text())
        self.tokenizer.enable_truncation(min(settings["model_max_length"], 512))
        self.tokenizer.enable_padding(pad_id=config["pad_token_id"], pad_token=settings["pad_token"])

    def __call__(self, texts: list[str]) -> list[tuple[str, float]]:
        """Label and probability of each text."""
        rows = self.tokenizer.encode_batch(texts)
        columns = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
        arrays = {name: np.array([getattr(row, columns[name]) for row in rows]) for name in self.inputs}
        (logits,) = self.session.run(None, arrays)
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        best = odds.argmax(axis=1)
        share = odds.max(axis=1) / odds.sum(axis=1)
        return [(self.labels[int(i)], float(p)) for i, p in zip(best, share, strict=True)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("texts", nargs="+")
    args = parser.parse_args()
    classify = Classifier(args.folder)
    start = time.perf_counter()
    for text, (label, probability) in zip(args.texts, classify(args.texts), strict=True):
        print(f"{label} {probability:.2f}  {text}")
    print(f"{1000 * (time.perf_counter() - start):.1f} ms")
