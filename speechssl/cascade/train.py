"""Train the cascade: a CTC head on a frozen encoder, from features that are computed
once, and text QA on words."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from tqdm import tqdm
from transformers import PreTrainedTokenizerBase

from speechssl.artifacts import hash_files, hash_json, stage
from speechssl.audio import read_audio
from speechssl.cascade.data import Record
from speechssl.cascade.decode import (
    NGRAM_FILE,
    NGRAM_FOLDER,
    NGRAM_THRESHOLD,
    BeamDecoder,
    BeamOptions,
)
from speechssl.cascade.model import CtcHead, CtcRecogniser, CtcVocabulary, HeadShape, greedy_decode
from speechssl.cascade.ngrams import NgramModel, load_ngrams, save_ngrams, train_ngram
from speechssl.cascade.options import CtcOptions, TrainCtc, TrainNgram, TrainTextQa
from speechssl.cascade.readers import TextQa, TrainedReader
from speechssl.cascade.system import given_words, load_text
from speechssl.data.records import (
    Corpus,
    Passage,
    Question,
    Span,
    corpus_card,
    data_facts,
    data_hash,
    first_passages,
    load_corpus,
)
from speechssl.dual.data import Example, Layout, answer_times
from speechssl.dual.model import SpanModel, load_reader
from speechssl.dual.options import QaOptions
from speechssl.dual.system import Reader
from speechssl.dual.train import (
    STEPS,
    answer_in_batches,
    data_inputs,
    describe_best,
    fit_spans,
    hash_inputs,
    load_held_out,
    make_layout,
    mean_f1,
    reader_facts,
    sample_items,
    save_trained,
    select_questions,
    sweep_learning_rates,
)
from speechssl.encoders.load import SpeechEncoder, load_encoder
from speechssl.encoders.store import FeatureStore, store_features
from speechssl.errors import InputError, report_set_aside
from speechssl.metrics import word_error_rate
from speechssl.options import EvalOptions, find_shipped, settings
from speechssl.processes import is_main, main_first
from speechssl.text import error_metric, language_of, pieces
from speechssl.textlm.encoders import licences, load_text_encoder
from speechssl.textlm.layers import SHIFT, load_shift
from speechssl.textlm.symbols import character_encoder, subword_units
from speechssl.textlm.tokenizers import TextCodec, load_tokenizer, special_tokens
from speechssl.timing import FrameGrid
from speechssl.training import Batch, Evaluation, check_share, fit

MARGIN = 0.1  # seconds of context left around a crop


def train_ctc(o: TrainCtc) -> None:
    """Train a CTC head on an encoder, by its name."""
    fit_ctc(o, load_encoder(o.encoder))
    print(f"{o.out}: CTC head{describe_best(o.out)}")


def fit_ctc(o: TrainCtc, encoder: SpeechEncoder) -> CtcRecogniser:
    """Train a CTC head on an encoder that is loaded, and save the recogniser in OUT; once. Features
    are kept in OUT/features until it is done.

    Recordings that cannot be read are set aside and listed. Raises InputError where OUT was made
    from other inputs, or no word has times.
    """
    check_share(o.head.batch)
    inputs = data_inputs(o.corpus, o.split, o.head.evaluation) | {"encoder": encoder.hash}
    with stage(o.out, inputs, settings(o.head), grows=STEPS) as step:
        if step.done:
            return CtcRecogniser.load(o.out, encoder)
        dev = load_held_out(o.corpus, o.head.evaluation)
        data = first_passages(load_corpus(o.corpus, o.split), o.head.passages)
        records = find_timed_records(data)
        layer = None if o.head.layer == "all" else int(o.head.layer)
        folder = o.out / "features"
        features = layer_features(encoder, layer, data, records, folder, "features for CTC")
        words = spell_words({name: records[name] for name in features.places}, data.language)
        vocabulary = make_vocabulary(words, data.language)

        torch.manual_seed(o.head.training.seed)
        states = encoder.layers + 1 if layer is None else 1
        shape = HeadShape(
            encoder.width, len(vocabulary), states, o.head.projection, o.head.lstm_width
        )
        recogniser = CtcRecogniser(encoder, CtcHead(shape), vocabulary, "ctc", layer=layer)
        batches = CropBatches(features, words, vocabulary, encoder.grid, o.head)
        evaluation = None
        if dev is not None:
            evaluation = evaluate_recognition(
                recogniser, dev, o.head.evaluation, folder / dev.split
            )
        result = fit(
            _HeadTraining(recogniser.head.train()),
            batches,
            o.head.training,
            o.out / "checkpoints",
            evaluation=evaluation,
        )
        recogniser.head.eval()
        with main_first():
            if is_main():
                facts = {
                    "options": settings(o.head),
                    "training": result,
                    "corpus": corpus_card(o.corpus),
                }
                recogniser.save(o.out, facts | licences(o.corpus) | data_facts(inputs))
                shutil.rmtree(folder)
        return recogniser


def find_timed_records(data: Corpus) -> dict[str, Record]:
    """Find the recordings whose words have times, by id. Raises InputError where there are none."""
    records = {r.id: r for r in data.records if r.words}
    if not records:
        raise InputError(
            f"no training recording of {data.root / data.split} has words with times, which a CTC "
            "head learns from; `speechssl align` finds those of texts"
        )
    return records


def spell_words(records: Mapping[str, Record], language: str) -> dict[str, tuple[Span, ...]]:
    """Spell the words of recordings with what a vocabulary of the language has: English with the
    letters a to z and the apostrophe, others with letters and digits."""
    left_out = re.compile("[^a-z']" if language_of(language) == "en" else r"[\W_]")
    spelt = {}
    for name, record in records.items():
        words = [w._replace(text=left_out.sub("", w.text.lower())) for w in record.words]
        spelt[name] = tuple(w for w in words if w.text.strip("'"))
    return spelt


def make_vocabulary(words: Mapping[str, tuple[Span, ...]], language: str) -> CtcVocabulary:
    if language_of(language) == "en":
        return CtcVocabulary.english()
    return CtcVocabulary.from_symbols(w.text for timed in words.values() for w in timed)


def layer_features(
    encoder: SpeechEncoder,
    layer: int | None,
    data: Corpus,
    records: Mapping[str, Record],
    folder: Path,
    what: str,
) -> FeatureStore:
    """Compute the features of records of a corpus, (T, D) of one layer, or (T, L, D) of all, in
    float16."""

    def encode(record: Record) -> tuple[torch.Tensor, None]:
        samples = read_audio(data.path(record))
        if layer is None:
            rows = encoder.hidden_states(samples).transpose(0, 1)
        else:
            rows = encoder.features(samples, layer)
        return rows.cpu().half(), None

    grid = encoder.grid
    width = encoder.width * (encoder.layers + 1 if layer is None else 1)
    sizes = {}
    for name, record in records.items():
        sizes[name] = 2 * width * grid.frames(grid.sample(record.seconds))
    made_from = {"encoder": encoder.hash, "layer": layer, "recordings": hash_json(list(records))}
    return store_features(folder, records, encode, sizes, made_from, what)


def evaluate_recognition(
    recogniser: CtcRecogniser, data: Corpus, options: EvalOptions, folder: Path
) -> Evaluation:
    """Make the evaluation by WER (CER in Chinese) on held-out recordings. folder: of their
    features.

    What cannot be read is recognised as nothing, as in evaluation. Raises InputError where no
    recording has a text.
    """
    records = sample_items(recorded_texts(data), options)
    by_id, what = {r.id: r for r in records}, "features for evaluation"
    features = layer_features(recogniser.encoder, recogniser.layer, data, by_id, folder, what)
    texts = [r.text for r in records]

    def transcribe(record: Record) -> str:
        if record.id not in features:
            return ""
        rows = features[record.id].float()  # (T, D), or (T, L, D)
        states = rows.transpose(0, 1) if rows.ndim == 3 else rows[None]
        return recogniser.transcript(recogniser.log_probs_of(states)).text

    def score() -> float:
        return word_error_rate(texts, [transcribe(r) for r in records], data.language).rate

    return Evaluation(options, error_metric(data.language), len(records), score, lower=True)


def recorded_texts(data: Corpus) -> list[Record]:
    """Return the recordings with a text. Raises InputError where there are none."""
    records = [r for r in data.records if r.audio and r.text.strip()]
    if not records:
        raise InputError(
            f"{data.root / data.split} has no recording with a text to evaluate on; name another "
            "split with --eval-split, or another --dev"
        )
    return records


def train_ctc_ngram(o: TrainNgram) -> None:
    """Train the n-gram that a CTC head decodes with, and choose its weight."""
    card = choose_ngram(o, load_encoder(o.encoder))
    decoding, dev = card["decoding"], card["dev"]
    print(
        f"{o.ctc}/ngram: {o.order}-gram, weight {decoding['lm_weight']:g}, word score "
        f"{decoding['word_score']:g}; WER {card['wer']:.1f} % on {card['recordings']} recordings "
        f"of {dev['split']}, {card['wer_greedy']:.1f} % without it"
    )


def choose_ngram(o: TrainNgram, encoder: SpeechEncoder) -> dict[str, Any]:
    """Train (once) an n-gram on the texts of a split, and choose its weights on recordings of dev;
    returns its card. encoder: `o.encoder`, loaded.

    Raises InputError where no text can be spelt by the head, or dev has no recordings with texts.
    """
    recogniser, dev_corpus = CtcRecogniser.load(o.ctc, encoder), o.dev or o.corpus
    inputs = {
        "data": data_hash(o.corpus, o.split),
        "eval_data": data_hash(dev_corpus, o.dev_split),
        **recogniser.card,
    }
    choices: dict[str, Any] = {
        "order": o.order,
        "passages": o.passages,
        "dev_passages": o.dev_passages,
        "beam": o.beam,
        "lm_weights": o.lm_weights,
        "word_scores": o.word_scores,
    }
    with stage(o.ctc / NGRAM_FOLDER, inputs, choices) as step:
        if step.done:
            return dict(step.card)
        vocabulary, path = recogniser.vocabulary, o.ctc / NGRAM_FOLDER / NGRAM_FILE
        data = first_passages(load_corpus(o.corpus, o.split), o.passages)
        texts = [spell(r.text, vocabulary) for r in data.records]
        save_ngrams(train_ngram(texts, o.order), path)
        model = load_ngrams(path)  # rounded, as it will decode
        dev = first_passages(load_corpus(dev_corpus, o.dev_split), o.dev_passages)
        card = {
            "what": "n-gram",
            "corpus": corpus_card(o.corpus),
            "words": len(model.words),
            "ngrams": [len(ngrams.keys) for ngrams in model.ngrams],
            "dev": {
                "corpus": corpus_card(dev_corpus),
                "split": o.dev_split,
                "passages": o.dev_passages,
            },
            "weights": hash_files([path]),
            **choose_weights(recogniser, model, dev, o),
        }
        return step.finish(card | inputs | licences(o.corpus))


def choose_weights(
    recogniser: CtcRecogniser, model: NgramModel, dev: Corpus, o: TrainNgram
) -> dict[str, Any]:
    """Return the weights with the lowest word error rate on dev, in %, and all that were tried."""
    records, vocabulary = recorded_texts(dev), recogniser.vocabulary
    texts = [record.text for record in records]
    outputs = []
    for record in tqdm(records, desc="recognising dev", unit="recording"):
        outputs.append(recogniser.log_probs(read_audio(dev.path(record))))

    def error_rate(decode: Callable[[torch.Tensor], str]) -> float:
        written = [decode(log_probs) for log_probs in outputs]
        return 100 * word_error_rate(texts, written, dev.language).rate

    tried = []
    for lm_weight in tqdm(o.lm_weights, desc="choosing weights", unit="weight"):
        for word_score in o.word_scores:
            beam = BeamOptions(o.beam, lm_weight, word_score, NGRAM_THRESHOLD)
            wer = error_rate(BeamDecoder(model, vocabulary, beam).decode)
            tried.append({"lm_weight": lm_weight, "word_score": word_score, "wer": wer})
    best = min(tried, key=lambda row: row["wer"])
    chosen = BeamOptions(o.beam, best["lm_weight"], best["word_score"], NGRAM_THRESHOLD)
    return {
        "decoding": asdict(chosen),
        "recordings": len(texts),
        "wer": best["wer"],
        "wer_greedy": error_rate(partial(greedy_decode, vocabulary=vocabulary)),
        "tried": tried,
    }


def spell(text: str, vocabulary: CtcVocabulary) -> str:
    """Write a text in the symbols of a head: small letters where it has no capitals, without what
    it cannot write.

    Words stay separated by spaces; where the head separates none, every character is a word.
    """
    known = set(vocabulary.symbols) - {vocabulary.separator}
    if not any(symbol.lower() != symbol for symbol in known):
        text = text.lower()
    if not vocabulary.separator:
        return " ".join(character for character in text if character in known)
    words = ["".join(c for c in word if c in known) for word in text.split()]
    return " ".join(word for word in words if word.strip("'"))


class _HeadTraining(nn.Module):
    """This gives the head what the trainer wants: tensors in, a dict with the loss out."""

    def __init__(self, head: CtcHead) -> None:
        super().__init__()
        self.head = head

    def forward(
        self,
        features: torch.Tensor,
        lengths: torch.Tensor,
        targets: torch.Tensor,
        sizes: torch.Tensor,
    ) -> Batch:
        """Return loss and measures. features: (B, T, D), or (B, T, L, D) of L hidden states;
        lengths, sizes: (B,); targets: (B, symbols) padded."""
        features = features.transpose(1, 2) if features.ndim == 4 else features
        symbols = [t[:n].tolist() for t, n in zip(targets, sizes, strict=True)]
        return self.head.loss(features.float(), lengths, symbols)


@dataclass(frozen=True)
class CropBatches:
    """Calling this gives random crops of whole words, which depend on (seed, step) only. A
    recording is drawn by its length."""

    features: FeatureStore  # (T, D) or (T, L, D) float16 of a recording
    recordings: Mapping[str, tuple[Span, ...]]  # their words
    vocabulary: CtcVocabulary
    grid: FrameGrid
    options: CtcOptions

    def __call__(self, step: int) -> Batch:
        """Return features (B, T, D) or (B, T, L, D), lengths (B,), targets (B, symbols), sizes
        (B,)."""
        rng = np.random.default_rng([self.options.training.seed, step])
        names = list(self.recordings)
        frames = [self.features.places[name].length for name in names]
        weights = np.array(frames, float)
        rows, targets = [], []
        for chosen in rng.choice(len(names), size=self.options.batch, p=weights / weights.sum()):
            name, length = names[chosen], frames[chosen]
            words = self.recordings[name]
            first = last = int(rng.integers(len(words)))
            longest, start = self.options.crop_seconds, words[first].start
            while last + 1 < len(words) and words[last + 1].end - start <= longest:
                last += 1
            begin = self.grid.frame_at(self.grid.sample(start - MARGIN), length)
            end = self.grid.frame_at(self.grid.sample(words[last].end + MARGIN), length)
            rows.append(self.features.rows(name, begin, end + 1).float())
            text = " ".join(w.text for w in words[first : last + 1])
            targets.append(torch.tensor(self.vocabulary.encode(text)))
        return {
            "features": pad_sequence(rows, batch_first=True),
            "lengths": torch.tensor([len(f) for f in rows]),
            "targets": pad_sequence(targets, batch_first=True),
            "sizes": torch.tensor([len(t) for t in targets]),
        }


def train_text_qa(o: TrainTextQa) -> None:
    """Train text QA on the words of a split; once. The tokeniser is saved beside the model, and so
    is `o.shift`, which is added whenever the model reads.

    Questions whose answer has neither times nor an offset with words of the passage there are
    listed and left out. Raises InputError where OUT holds a reader that was made from other inputs,
    or `o.start` is no text QA.
    """
    if o.learning_rates:
        sweep_learning_rates(o, train_text_qa)
        return
    check_share(o.qa.batch, o.qa.short_batch)
    o = replace(o, start=find_shipped(o.start))
    added, shifted = load_shift(o.shift) if o.shift else (None, {})
    made_from = hash_inputs(o, o.qa.split) | {
        "passages": o.passages,
        "shift": shifted.get("hash"),
    }
    with stage(o.out, made_from, settings(o.qa), grows=STEPS) as step:
        if not step.done:
            data = first_passages(load_corpus(o.corpus, o.qa.split), o.passages)
            if o.start:
                model, tokenizer, qa = go_on_with_text(o.start, o.qa)
                o = replace(o, qa=qa)
            else:
                model, tokenizer = begin_text(data, o.qa)
            if added:
                added.attach(model.encoder)
            codec = TextCodec(tokenizer)
            examples, left_out = text_examples(data, codec)
            report_set_aside(left_out, "training of text QA", "question")

            layout = make_layout(o.qa, *special_tokens(tokenizer))
            evaluation = word_evaluation(o, model, layout, codec)
            results = fit_spans(model, examples, layout, o.qa, o.out, evaluation)

            if is_main():
                tokenizer.save_pretrained(o.out)
                if added:
                    added.save(o.out / SHIFT)
            card: dict[str, Any] = {
                "what": "text QA",
                "text_encoder": o.qa.text_encoder,
                "subwords": o.qa.subwords,
                "characters": o.qa.characters,
                "passages": len(data.passages),
                "left_out": len(left_out),
            }
            if shifted:
                card["shift"] = shifted
            card |= results | reader_facts(o, made_from, o.qa.text_encoder)
            save_trained(o.out, model, layout, card)
    print(f"{o.out}: text QA{describe_best(o.out)}")


def text_examples(data: Corpus, codec: TextCodec) -> tuple[list[Example], dict[str, str]]:
    """Make one example a question, from what is written of its passage; and say which questions are
    left out: id -> why."""
    examples, left_out = [], {}
    for question in data.answerable:
        passage = data.passages[question.passage]
        words, span = answer_words(passage, question)
        if span is None:
            left_out[question.id] = (
                f"no word of passage {passage.id} lies within the times, or "
                "at the offset, of its answer"
            )
            continue
        asked = [word for word, _ in pieces(question.written, question.language)]
        question_ids, _ = codec.encode(asked)
        ids, owners = codec.encode(words)
        inside = np.flatnonzero((owners >= span[0]) & (owners <= span[1]))
        if len(inside):
            examples.append(Example(question_ids, ids, int(inside[0]), int(inside[-1])))
        else:
            left_out[question.id] = "the tokeniser leaves nothing of its question or answer"
    return examples, left_out


def answer_words(passage: Passage, question: Question) -> tuple[list[str], tuple[int, int] | None]:
    """Find the passage's words, and the first and last of the answer: those within its times, where
    words have times; else those at its offset; None where there are none."""
    times = answer_times(question)
    if passage.words and times is not None:
        words = [w.text for w in passage.words]
        middles = [(w.start + w.end) / 2 for w in passage.words]
        inside = [i for i, middle in enumerate(middles) if times[0] <= middle < times[1]]
    else:
        placed = pieces(passage.written, passage.language)
        words = [word for word, _ in placed]
        start = end = 0
        for answer in question.answers:
            if answer.char_start is not None:
                start, end = answer.char_start, answer.char_start + len(answer.text)
                break
        inside = [i for i, (word, at) in enumerate(placed) if at < end and at + len(word) > start]
    return words, (inside[0], inside[-1]) if inside else None


def begin_text(data: Corpus, options: QaOptions) -> tuple[SpanModel, PreTrainedTokenizerBase]:
    """Make text QA before training, and its tokeniser: the text encoder of the options, and a head
    that their seed draws."""
    encoder, tokenizer = load_text_encoder(options.text_encoder)
    if options.characters:  # these get rows of the encoder's embedding table
        texts = [*(p.written for p in data.passages.values()), *(q.written for q in data.questions)]
        encoder, table, tokenizer = character_encoder(
            encoder, tokenizer, texts, options.training.seed
        )
    else:
        rows = encoder.get_input_embeddings().weight.detach()
        table = nn.Embedding.from_pretrained(rows.clone(), freeze=options.trained != "all")
    torch.manual_seed(options.training.seed)
    units = subword_units(tokenizer, options.subwords, table.num_embeddings, table.embedding_dim)
    return SpanModel(encoder, table, units), tokenizer


def go_on_with_text(
    start: Path, options: QaOptions
) -> tuple[SpanModel, PreTrainedTokenizerBase, QaOptions]:
    """Load text QA that is trained further, its tokeniser, and the options with its text encoder
    and vocabulary. Raises InputError where it is no text QA."""
    model, _, card = load_reader(start)
    if card.get("what") != "text QA":
        raise InputError(
            f"{start} is a {card.get('what')}, not text QA; give --start a folder of "
            "`speechssl train text-qa`"
        )
    options = replace(
        options,
        text_encoder=card["text_encoder"],
        subwords=card.get("subwords", "none"),
        characters=card.get("characters", False),
    )
    model.train().requires_grad_(True)
    model.embedding.requires_grad_(options.trained == "all" or options.characters)
    torch.manual_seed(options.training.seed)  # of dropout
    return model, load_tokenizer(start, model.embedding.num_embeddings), options


def word_evaluation(
    o: TrainTextQa, model: SpanModel, layout: Layout, codec: TextCodec
) -> Evaluation | None:
    """Make the evaluation by F1 on held-out questions, by what the system `text` reads. Raises
    InputError where there are none with a text."""
    data = load_held_out(o.corpus, o.qa.evaluation)
    if data is None:
        return None
    usable = []
    for q in data.answerable:
        if q.text.strip() and data.passages[q.passage].text.strip():
            usable.append(q)
    data = select_questions(data, usable, o.qa.evaluation, "a text")
    words = {r.id: given_words("text", r) for r in data.records}
    items = {q.id: (words[q.id], words[q.passage]) for q in data.questions}

    def score() -> float:
        reader = TrainedReader(codec, Reader(model, layout, device=str(model.head.weight.device)))
        answers = answer_in_batches(load_text(TextQa(reader), "text").answer_all, items)
        return mean_f1(data, {name: answer.text for name, answer in answers.items()})

    return Evaluation(o.qa.evaluation, "f1", len(items), score)
