"""A fixed sub-network is fine-tuned by the stock Trainer, saves itself and is loaded again."""

import pytest
import torch
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments

import ldsearch
from ldsearch.errors import SupernetError
from ldsearch.subnet import Stack, Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.heads import logits_of
from tests.export.test_export import TOKENIZER
from tests.tiny import padded_batch, tiny_encoder_decoder, tiny_model

LENGTHS = Subnet.of_encoder([0, 2, 3], [9, 4, 4], 12).encoder


class Rows(Dataset):
    def __init__(self, batch: dict[str, torch.Tensor]) -> None:
        self.batch = batch

    def __len__(self) -> int:
        return len(self.batch["input_ids"])

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {name: tensor[index] for name, tensor in self.batch.items()}


@pytest.mark.parametrize("kind", ["SequenceClassification", "QuestionAnswering", "bart"])
def test_the_stock_trainer_fine_tunes_it_and_it_is_loaded_as_it_was_saved(tmp_path, kind):
    batch = padded_batch([12, 7, 5, 9])
    if kind == "bart":
        model = tiny_encoder_decoder("bart")
        subnet = Subnet(encoder=Subnet.of_encoder([0, 2], [9, 4], 12).encoder, decoder=Stack((0, 1, 3)))
        targets = {"labels": padded_batch([6, 6, 6, 6], seed=1)["input_ids"]}
    else:
        model, subnet = tiny_model("bert", head=kind), Subnet(encoder=LENGTHS)
        targets = {"labels": torch.tensor([0, 1, 2, 1])}
        if kind == "QuestionAnswering":
            targets = {
                "start_positions": torch.tensor([0, 1, 2, 1]),
                "end_positions": torch.tensor([3, 2, 4, 1]),
            }
    own = Supernet(model).materialise(subnet)
    before = [parameter.detach().clone() for parameter in own.parameters()]
    arguments = TrainingArguments(
        str(tmp_path / "trainer"),
        max_steps=2,
        learning_rate=1e-3,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
    )
    trainer = Trainer(own, arguments, train_dataset=Rows({**batch, **targets}))
    assert trainer.train().training_loss > 0
    assert any(not torch.equal(new, old) for new, old in zip(own.parameters(), before, strict=True))
    own.save_pretrained(tmp_path / "saved")
    TOKENIZER.save_pretrained(tmp_path / "saved")
    loaded, own = ldsearch.load(tmp_path / "saved"), own.eval()
    read = {**batch, **({"decoder_input_ids": targets["labels"]} if kind == "bart" else {})}
    with torch.inference_mode():
        assert torch.equal(logits_of(loaded(**read)), logits_of(own(**read)))


def test_the_loss_is_that_of_the_stock_class():
    model, batch = tiny_model("bert"), padded_batch([12, 7])
    labels = torch.tensor([0, 2])
    # The last length cannot change what a head reads at position 0.
    own = Supernet(model).materialise(Subnet.of_encoder(range(4), [12, 12, 12, 6], 12)).eval()
    with torch.inference_mode():
        torch.testing.assert_close(own(**batch, labels=labels).loss, model(**batch, labels=labels).loss)


def test_cut_weights_are_not_saved_as_if_they_were_whole(tmp_path):
    narrow = Supernet(tiny_model("bert")).materialise(Subnet(encoder=Stack((0, 1), heads_off=((0, 1),))))
    with pytest.raises(SupernetError):
        narrow.save_pretrained(tmp_path / "saved")
    assert not (tmp_path / "saved").exists()
