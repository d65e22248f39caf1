"""Tiny random encoder-decoders whose answers differ in words and length, and a tokenizer of real words."""

import random

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
from transformers import AutoConfig, AutoModelForSeq2SeqLM, PreTrainedModel, PreTrainedTokenizerFast

WORDS = (
    *("the", "a", "dog", "cat", "bird", "house", "tree", "sees", "likes", "finds"),
    *("big", "small", "red", "blue", "and", "or", "under", "over", "today", "never"),
)
EOS, PAD, UNK = 0, 1, 2
# Seeds of models whose answers differ most.
_TALKATIVE = {"marian": 3, "bart": 9}


def sentences(count: int, seed: int = 0) -> list[str]:
    """Random ones of 1 to 12 words."""
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(1, 12))) for _ in range(count)]


def word_tokenizer() -> PreTrainedTokenizerFast:
    """One token a word, then the end, as Marian's and T5's tokenizers have it."""
    tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    specials = ["</s>", "<pad>", "<unk>"]
    tokenizer.train_from_iterator(sentences(50), trainers.WordLevelTrainer(special_tokens=specials))
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", EOS)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="</s>", pad_token="<pad>", unk_token="<unk>"
    )


def tiny_translator(family: str, seed: int | None = None, positions: int = 64) -> PreTrainedModel:
    """Width 16, two blocks a side; wide random weights, so that what it says depends on what it reads."""
    torch.manual_seed(_TALKATIVE[family] if seed is None else seed)
    config = AutoConfig.for_model(
        family,
        vocab_size=len(word_tokenizer()),
        d_model=16,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        max_position_embeddings=positions,
        bos_token_id=EOS,
        eos_token_id=EOS,
        forced_eos_token_id=EOS,
        pad_token_id=PAD,
        decoder_start_token_id=PAD if family == "marian" else EOS,
        init_std=1.0,
    )
    model = AutoModelForSeq2SeqLM.from_config(config)
    # An end once in a while, and nothing that is left out of a text.
    model.final_logits_bias[0, EOS] = 2.0
    model.final_logits_bias[0, UNK] = -100.0
    return model.eval()
