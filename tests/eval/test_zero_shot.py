"""A reader that has seen English questions only answers Chinese ones: nothing refuses it, and it is scored in characters."""

from pathlib import Path

import torch
from transformers import BertConfig, BertModel

from speechssl.cascade.train import train_text
from speechssl.config import TrainingOptions
from speechssl.data.records import Answer, Passage, Question, write_records
from speechssl.dual.train import QaOptions
from speechssl.eval.spoken_qa import run_evaluation
from speechssl.results import read_rows
from speechssl.textlm.symbols import character_tokenizer


def write(root: Path, split: str, language: str, passage: str, question: str, answer: str) -> Path:
    (root / split).mkdir(parents=True)
    answers = (Answer(answer, char_start=passage.index(answer)),)
    write_records(root / split / "passages.jsonl", [Passage("p", "", 0.0, passage, "", language)])
    write_records(root / split / "questions.jsonl", [Question("q", "p", "", 0.0, question, "", language, answers=answers)])
    (root / "card.json").write_text("{}")
    return root


def test_an_english_reader_answers_a_chinese_corpus(tmp_path):
    english = write(tmp_path / "en", "train", "en", "anna lost a silver lantern", "what did anna lose", "silver lantern")
    chinese = write(tmp_path / "zh", "test", "zh", "安娜丢了一個銀灯笼。", "安娜丢了什么？", "銀灯笼")
    tokenizer = character_tokenizer(["anna lost a silver lantern what did lose", "安娜丢了一個銀灯笼什么"])
    tokenizer.save_pretrained(tmp_path / "multilingual")
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    BertModel(BertConfig(vocab_size=len(tokenizer), max_position_embeddings=192, **sizes)).save_pretrained(
        tmp_path / "multilingual"
    )
    training = TrainingOptions(steps=2, learning_rate=1e-3, warmup_steps=1, save_every=2, bf16=False)
    options = QaOptions(training, str(tmp_path / "multilingual"), 2, window=32, stride=16, answer=4)
    train_text(english, tmp_path / "models/zero/text-qa", options)
    run_evaluation(chinese, tmp_path / "out", str(tmp_path / "models/zero"), ["text"], ["clean"])
    found = {r.metric: r.value for r in read_rows(tmp_path / "out/results.jsonl")}
    assert set(found) == {"em", "f1", "cer"} and found["cer"] == 0 and 0 <= found["f1"] <= 100
