"""Random questions about random contexts, tokenizers for them, and a model that knows the answers."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import processors
from transformers import PreTrainedTokenizerBase

from ldsearch.tasks.questions import Answer, EncodedQuestions, QuestionAnswering, QuestionExamples
from ldsearch.tasks.tokenizer import train_bpe, train_wordpiece

Rows = Sequence[dict[str, Any]]


def row(context: str, question: str, *answers: str) -> dict[str, Any]:
    """Answers stand where they are first found."""
    found = {"text": list(answers), "answer_start": [context.index(answer) for answer in answers]}
    return {"context": context, "question": question, "answers": found}


def words(rng: np.random.Generator, count: int) -> list[str]:
    """Made of ten letters, one to seven of them."""
    return ["".join(rng.choice(list("abcdefghij"), size=rng.integers(1, 8))) for _ in range(count)]


def rows_about(contexts: int, length: int = 60, each: int = 3, seed: int = 0) -> list[dict[str, Any]]:
    """Random contexts with a few questions each; an answer is one to four of the context's words."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(contexts):
        own = words(rng, length)
        context = ", ".join(own)
        for _ in range(each):
            first = int(rng.integers(length - 4))
            answer = ", ".join(own[first : first + int(rng.integers(1, 5))])
            start = len(", ".join([*own[:first], ""]))
            answers = {"text": [answer], "answer_start": [start]}
            rows.append({"context": context, "question": " ".join(words(rng, 5)), "answers": answers})
    return rows


def examples_of(rows: Rows) -> QuestionExamples:
    answers = [zip(row["answers"]["answer_start"], row["answers"]["text"], strict=True) for row in rows]
    return QuestionExamples(
        tuple(row["context"] for row in rows),
        tuple(row["question"] for row in rows),
        tuple(tuple(Answer(*pair) for pair in own) for own in answers),
    )


def task_of(rows: Rows, metric: str = "f1", stride: int = 128) -> QuestionAnswering:
    return QuestionAnswering({"stride": stride}, (), {"train": examples_of(rows)}, metric_name=metric)


def planted(encoded: EncodedQuestions) -> list[NDArray[np.float32]]:
    """Logits of a model that knows the labels, and where the answer is not in the window knows nothing."""
    outputs = []
    for feature in encoded:
        logits = np.zeros((len(feature["input_ids"]), 2), np.float32)
        start, end = feature["labels"]
        logits[0] = 20  # [CLS] is no answer, however likely
        if start > 0:
            logits[start, 0] = logits[end, 1] = 9
        outputs.append(logits)
    return outputs


def byte_level_tokenizer(texts: Sequence[str]) -> PreTrainedTokenizerBase:
    """As RoBERTa's: spaces belong to the tokens behind them, a letter may be several tokens, no segments."""
    tokenizer = train_bpe(texts, 400)
    # Around the texts, and between the two of a pair; the first stands for [CLS].
    processor = processors.RobertaProcessing(("</s>", 1), ("<pad>", 0), add_prefix_space=False)
    tokenizer.backend_tokenizer.post_processor = processor
    return tokenizer


@cache
def wordpiece_tokenizer() -> PreTrainedTokenizerBase:
    """Cuts the made-up words into several tokens each."""
    return train_wordpiece(examples_of(rows_about(40, seed=9)).texts, 120)
