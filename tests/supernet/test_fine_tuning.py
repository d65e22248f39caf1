"""A fixed sub-network is fine-tuned by the stock Trainer, saves itself and is loaded again."""

import pytest
import torch
from transformers import Trainer, TrainingArguments

import ldsearch
from ldsearch.errors import SupernetError
from ldsearch.subnet import Stack, Subnet
from ldsearch.supernet import Supernet
from ldsearch.testing.inputs import stock_output
from tests.export.test_export import TOKENIZER
from tests.tiny import padded_batch, tiny_encoder_decoder, tiny_model

BATCH = padded_batch([12, 7, 5, 9])
STARTS, ENDS = torch.tensor([[0, 1, 2, 1], [3, 2, 4, 1]])
LENGTHS = Subnet.of_encoder([0, 2, 3], [9, 4, 4], 12)
KINDS = {
    "SequenceClassification": {"labels": STARTS},
    "QuestionAnswering": {"start_positions": STARTS, "end_positions": ENDS},
    "bart": {"labels": padded_batch([6, 6, 6, 6], seed=1)["input_ids"]},
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_stock_trainer_fine_tunes_it_and_it_is_loaded_as_it_was_saved(tmp_path, kind):
    if kind == "bart":
        model = tiny_encoder_decoder("bart")
        subnet = Subnet(Subnet.of_encoder([0, 2], [9, 4], 12).encoder, Stack((0, 1, 3)))
    else:
        model, subnet = tiny_model("bert", head=kind), LENGTHS
    own = Supernet(model).materialise(subnet)
    before = [parameter.detach().clone() for parameter in own.parameters()]
    options = {"max_steps": 2, "learning_rate": 1e-3, "save_strategy": "no", "report_to": [], "use_cpu": True}
    inputs = {**BATCH, **KINDS[kind]}
    rows = [{name: tensor[index] for name, tensor in inputs.items()} for index in range(4)]
    trainer = Trainer(own, TrainingArguments(str(tmp_path / "trainer"), **options), train_dataset=rows)
    assert trainer.train().training_loss > 0
    assert any(not torch.equal(new, old) for new, old in zip(own.parameters(), before, strict=True))
    own.save_pretrained(tmp_path / "saved")
    TOKENIZER.save_pretrained(tmp_path / "saved")
    read = {**BATCH, **({"decoder_input_ids": inputs["labels"]} if kind == "bart" else {})}
    assert torch.equal(stock_output(ldsearch.load(tmp_path / "saved"), read), stock_output(own.eval(), read))


def test_the_loss_is_that_of_the_stock_class():
    model, inputs = tiny_model("bert"), {**padded_batch([12, 7]), "labels": torch.tensor([0, 2])}
    # The last length cannot change what a head reads at position 0.
    own = Supernet(model).materialise(Subnet.of_encoder(range(4), [12, 12, 12, 6], 12)).eval()
    torch.testing.assert_close(own(**inputs).loss, model(**inputs).loss)


def test_cut_weights_are_not_saved_as_if_they_were_whole(tmp_path):
    narrow = Supernet(tiny_model("bert")).materialise(Subnet(encoder=Stack((0, 1), heads_off=((0, 1),))))
    with pytest.raises(SupernetError):
        narrow.save_pretrained(tmp_path / "saved")
    assert not (tmp_path / "saved").exists()
