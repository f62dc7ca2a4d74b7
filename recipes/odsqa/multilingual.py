"""Make a small multilingual text encoder: a text-pre-trained encoder goes on to predict masked
characters and words of several corpora.

python recipes/odsqa/multilingual.py OUT CORPUS [CORPUS ...] --config CONFIG --stage multilingual

Its vocabulary is the encoder's own and, behind it, the Chinese characters that occur; the embedding
of each begins as a copy of that of a frequent word, which is assigned at random. No translation is
seen: sentences of the languages come in one stream (mBERT, 1909.09587). The objective is BERT's:
15 % of the tokens are predicted; of these 80 % are masked, 10 % replaced, 10 % left as they are.
Passages and questions of the training splits are read, answers are not. A killed run goes on where
it was.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from tokenizers import AddedToken
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from speechssl.artifacts import begin_stage, write_json
from speechssl.cli import script
from speechssl.data.records import Passage, Question, hash_data, load_corpus
from speechssl.options import BERT, Count, TrainingOptions, argument, group, option
from speechssl.text import split_pieces
from speechssl.textlm.encoders import load_text_encoder, remove_dropout
from speechssl.textlm.symbols import assign_tokens
from speechssl.textlm.tokenizers import TextCodec, find_special_tokens, make_character_tokenizer
from speechssl.training import Batch, fit

MASKED = 0.15  # share of the tokens that are predicted
IGNORED = -100  # target where nothing is predicted


class MaskedModel(nn.Module):
    """The encoder predicts masked tokens, through the transpose of its embedding table."""

    def __init__(self, encoder: PreTrainedModel) -> None:
        super().__init__()
        self.encoder = encoder
        self.bias = nn.Parameter(torch.zeros(encoder.config.vocab_size))

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, targets: torch.Tensor) -> Batch:
        """Return the loss and the share of right predictions. ids, mask, targets: (B, S)."""
        hidden = self.encoder(input_ids=ids, attention_mask=mask).last_hidden_state
        predicted = targets != IGNORED
        logits = hidden[predicted] @ self.encoder.get_input_embeddings().weight.T + self.bias
        right = (logits.argmax(-1) == targets[predicted]).float().mean()
        return {"loss": cross_entropy(logits.float(), targets[predicted]), "right": right.detach()}


class MaskedBatches:
    """Batches of texts of every corpus in turn are a function of (seed, step) only."""

    def __init__(
        self,
        texts: list[list[np.ndarray]],
        tokenizer: PreTrainedTokenizerBase,
        size: int,
        seed: int,
    ) -> None:
        """texts: by corpus, ids (S,) of each. size: texts of a batch."""
        self.texts, self.size, self.seed = texts, size, seed
        self.cls, self.sep, self.pad = find_special_tokens(tokenizer)
        self.mask, self.symbols = tokenizer.mask_token_id, len(tokenizer)

    def __call__(self, step: int) -> Batch:
        rng = np.random.default_rng([self.seed, step])
        rows, targets = [], []
        for i in range(self.size):
            texts = self.texts[i % len(self.texts)]
            row, target = self._mask(rng, texts[rng.integers(len(texts))])
            rows.append(torch.from_numpy(row))
            targets.append(torch.from_numpy(target))
        ids = pad_sequence(rows, True, self.pad)
        mask = (ids != self.pad).long()
        return {"ids": ids, "mask": mask, "targets": pad_sequence(targets, True, IGNORED)}

    def _mask(self, rng: np.random.Generator, text: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids that the encoder sees, and the targets, (S,) each."""
        ids = np.concatenate([[self.cls], text, [self.sep]])
        predicted = rng.random(len(ids)) < MASKED
        predicted[[0, -1]] = False  # [CLS] and [SEP]
        predicted[rng.integers(1, len(ids) - 1)] = True  # one at least
        draw = rng.random(len(ids))
        replaced = np.where(draw < 0.9, rng.integers(self.symbols, size=len(ids)), ids)
        shown = np.where(draw < 0.8, self.mask, replaced)
        return np.where(predicted, shown, ids), np.where(predicted, ids, IGNORED)


def add_characters(
    name: str, texts: list[str], seed: int
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Return the encoder with rows for the characters that it lacks, and its tokeniser."""
    model, tokenizer = load_text_encoder(name)
    known = tokenizer.get_vocab()
    characters = [c for c in make_character_tokenizer(texts).get_vocab() if len(c) == 1]
    # CJK ideographs: the basic block and extension A
    new = [c for c in characters if "\u3400" <= c <= "\u9fff" and c not in known]
    rows = assign_tokens(tokenizer, len(new), "most-frequent", seed)
    # normalized=False: else BERT's normaliser would put blanks around them
    tokenizer.add_tokens([AddedToken(c, normalized=False) for c in sorted(new)])
    model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    table = model.get_input_embeddings().weight
    with torch.no_grad():
        table[-len(new) :] = table[torch.tensor(rows)]
    return model, tokenizer


@dataclass(frozen=True, kw_only=True)
class Multilingual:
    __doc__ = __doc__

    out: Path = argument("folder for the encoder and its tokeniser")
    corpora: tuple[Path, ...] = argument("prepared corpora, one a language")
    text_encoder: str = option("minilm", "text encoder to start from")
    batch: Count = option(16, "passages or questions a step")
    training: TrainingOptions = group(
        TrainingOptions(steps=400, learning_rate=5e-4, warmup_steps=40, **vars(BERT)), "training"
    )


def encode_record(codec: TextCodec, record: Passage | Question) -> np.ndarray:
    """Return the ids (S,) of a record's text."""
    return codec.encode([word for word, _ in split_pieces(record.written, record.language)])[0]


def make_encoder(o: Multilingual) -> None:
    """Train (once) on the corpora, and write the encoder and its tokeniser to `o.out`."""
    options, out = o.training, o.out
    made_from = {
        "data": [hash_data(corpus, "train") for corpus in o.corpora],
        "from": o.text_encoder,
        "batch": o.batch,
        "training": vars(options),
    }
    with begin_stage(out, made_from):
        if (out / "card.json").is_file():
            return
        corpora: list[list[Passage | Question]] = []
        written = []
        for folder in o.corpora:
            split = load_corpus(folder, "train")
            corpora.append([*split.passages.values(), *split.questions])
            written += [record.written for record in corpora[-1]]
        torch.manual_seed(options.seed)
        model, tokenizer = add_characters(o.text_encoder, written, options.seed)
        codec = TextCodec(tokenizer)
        texts = []
        for records in corpora:
            encoded = (encode_record(codec, record) for record in records)
            texts.append([ids for ids in encoded if len(ids)])
        batches = MaskedBatches(texts, tokenizer, o.batch, options.seed)
        result = fit(MaskedModel(remove_dropout(model)), batches, options, out / "checkpoints")
        model.save_pretrained(out)
        tokenizer.save_pretrained(out)
        card = {"what": "multilingual text encoder", "made_from": made_from, "training": result}
        write_json(out / "card.json", card)


if __name__ == "__main__":
    sys.exit(script(make_encoder, Multilingual))
