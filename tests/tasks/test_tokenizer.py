"""The WordPiece tokenizer trained on the spot: the same texts give the same ids, in every process."""

import subprocess
import sys
from pathlib import Path

from ldsearch.tasks.tokenizer import train_wordpiece

TEXTS = [
    f"{a}{b} {b}{a}ing Un{a} {b}, {a}!" for a in ("walk", "tree", "größe", "x1") for b in ("er", "ly", "zt")
]
PROGRAM = (
    "from ldsearch.tasks.tokenizer import train_wordpiece\n"
    "from tests.tasks.test_tokenizer import TEXTS\n"
    "print(sorted(train_wordpiece(TEXTS, 90).get_vocab().items()))\n"
)


def test_the_same_texts_give_the_same_ids_here_and_in_another_process() -> None:
    vocabulary = train_wordpiece(TEXTS, 90).get_vocab()
    assert all(train_wordpiece(TEXTS, 90).get_vocab() == vocabulary for _ in range(5))
    root = Path(__file__).parents[2]
    other = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=root, capture_output=True, text=True, check=True
    )
    assert other.stdout.strip() == str(sorted(vocabulary.items()))


def test_the_special_tokens_are_berts_and_come_first() -> None:
    tokenizer = train_wordpiece(TEXTS, 90)
    assert tokenizer.convert_ids_to_tokens(list(range(5))) == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert sorted(tokenizer.all_special_ids) == [0, 1, 2, 3, 4]
    assert tokenizer.pad_token_id == 0


def test_ids_are_dense_and_no_more_than_asked_for() -> None:
    vocabulary = train_wordpiece(TEXTS, 60).get_vocab()
    assert sorted(vocabulary.values()) == list(range(60))


def test_frequent_words_are_one_piece_and_lower_cased() -> None:
    tokenizer = train_wordpiece(["The Forest grows", "the forest sleeps"] * 5, 200)
    assert tokenizer.tokenize("FOREST the") == ["forest", "the"]
    assert tokenizer.decode(tokenizer("forest sleeps")["input_ids"]) == "[CLS] forest sleeps [SEP]"


def test_pieces_of_unseen_words_put_them_together_again() -> None:
    pieces = train_wordpiece(TEXTS, 90).tokenize("treewalkly")
    assert len(pieces) > 1
    assert all(piece.startswith("##") for piece in pieces[1:])
    assert "".join(piece.removeprefix("##") for piece in pieces) == "treewalkly"
