"""Test NMSQA in every layout, and with every fault that the release has: which records are kept, at
which times answers are, and what the report counts.

The miniature is a passage of four sentences. Their recordings are faint noise, in which every answer
is a beep, so that a test can look for the answer in the joined recording.
"""

import csv
import json
import math
import shutil
import tarfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from speechssl.artifacts import read_json, write_json
from speechssl.audio import SAMPLE_RATE, read_audio, read_native, resample, write_clip
from speechssl.data import nmsqa, prepare
from speechssl.data.nmsqa import prepare_nmsqa, read_parquet_rows, read_words
from speechssl.data.options import Nmsqa
from speechssl.data.prepare import Joined, format_report
from speechssl.data.records import load_corpus
from speechssl.errors import InputError

from ..corpora.make import write_parquet as write_table
from ..files import count_remarks, refused

RATE = 22_050
SENTENCES = (
    "Anna found a lamp in the old mill.",
    "Later she gave the lamp to Boris.",
    "Boris sold it for nine coins.",
    "The end was near.",
)
LENGTHS = (31_111, 27_777, 40_003, 22_222)  # samples at 22,050 Hz: no whole numbers at 16 kHz
CONTEXT = " ".join(SENTENCES)
ANSWERS = {  # number of the sentence -> answer, its start and end in seconds in the sentence
    0: ("the old mill", 0.5, 0.9),
    1: ("Boris", 0.8, 1.1),
    2: ("nine coins", 1.2, 1.7),
    3: ("near", 0.4, 0.6),
}


def make_sentence(number):
    """Make the recording of a sentence: noise, with a beep where its answer is."""
    samples = 0.001 * np.random.default_rng(number).standard_normal(LENGTHS[number])
    _, start, end = ANSWERS[number]
    beep = slice(round(start * RATE), round(end * RATE))
    samples[beep] += 0.5 * np.sin(2 * np.pi * 600 * np.arange(beep.stop - beep.start) / RATE)
    return samples.astype(np.float32)


def start_of(number, missing=()):
    """Return the second at which a sentence begins in the passage. missing: numbers of sentences that
    are not in the recording."""
    return sum(LENGTHS[k] for k in range(number) if k not in missing) / RATE


def row(number, passage="0_0", question=None, **changes):
    """Make the row of a question about a sentence as dev has it: audio_full_* repeat
    audio_segment_*. question: number of the question, by default that of the sentence; changes:
    cells to replace, and entries of `answers`, or answers=None for no answers."""
    text, start, end = ANSWERS[number]
    question_number = number if question is None else question
    offset = CONTEXT.index(text, CONTEXT.index(SENTENCES[number]))
    answers = {"text": [text] * 3, "answer_start": [offset] * 3}
    answers |= times(full=[(start, end)], segment=[(start, end)])
    answers |= {"audio_full_neg_answer_start": [], "audio_full_neg_answer_end": []}
    changed_answers = changes.get("answers", {})
    cells = {
        "id": f"id-{passage}-{question_number}",
        "title": "T",
        "context": CONTEXT,
        "question": f"What is answer {question_number}?",
        "content_segment_audio_path": f"context-{passage}_{number}.mp3",
        "content_full_audio_path": f"context-{passage}.mp3",
        "content_audio_sampling_rate": 22050.0,
        "content_audio_speaker": "Ivy",
        "content_segment_text": SENTENCES[number],
        "content_segment_normalized_text": SENTENCES[number],
        "question_audio_path": f"question-{passage}_{question_number}.mp3",
        "question_audio_sampling_rate": 22050.0,
        "question_audio_speaker": "Joey",
        "question_normalized_text": f"What is answer {question_number}?",
    }
    merged = None if changed_answers is None else answers | changed_answers
    return cells | changes | {"answers": merged}


def silent_row(number, question):
    """Make a row that has SQuAD's texts and neither recordings nor times, as 77 rows of dev."""
    cells = row(number, question=question)
    texts = {name: cells["answers"][name] for name in ("text", "answer_start")}
    nothing = {name: None for name in cells if name.startswith(("content_", "question_"))}
    return cells | nothing | {"answers": {name: texts.get(name) for name in cells["answers"]}}


def write_sentences(folder, passage="context-0_0_{}", numbers=range(4)):
    """Write the recordings of sentences. passage: pattern of their names."""
    for number in numbers:
        write_clip(folder / f"{passage.format(number)}.wav", make_sentence(number), 0.0, 9.0, RATE)


def write_question(folder, *names):
    """Write a recording of a tone, 1 s, for each of these names."""
    tone = (0.1 * np.sin(np.arange(RATE) / 20)).astype(np.float32)
    for name in names:
        write_clip(folder / f"{name}.wav", tone, 0.0, 1.0, RATE)


def is_beep(path, start, end):
    """Return whether the recording has a beep from `start` to `end` (seconds), and none just before
    and after."""
    samples = np.abs(read_audio(path))
    low, high = round(start * SAMPLE_RATE), round(end * SAMPLE_RATE)
    inside = samples[low:high]
    edge = SAMPLE_RATE // 500  # 2 ms
    before = samples[max(low - 10 * edge, 0) : low - edge]
    after = samples[high + edge : high + 10 * edge]
    level = 0.1  # between the noise (0.001) and the beep (0.5)
    is_quiet_around = np.append(before, after).max() < level
    return inside[:edge].max() > level and inside[-edge:].max() > level and is_quiet_around


def pack(folder, archive):
    """Pack the files of a folder into an archive, and remove the folder."""
    with tarfile.open(archive, "w:gz") as tape:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            tape.add(path, path.relative_to(folder.parent).as_posix())
    shutil.rmtree(folder)


def write_csv(path, rows):
    """Write dicts as a CSV file with a header."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def write_grid(path, words, seconds):
    """Write a TextGrid of the Montreal Forced Aligner with a tier of words (word, start, end)."""
    times = [f'        xmin = {a}\n        xmax = {b}\n        text = "{w}"\n' for w, a, b in words]
    tier = (
        f'class = "IntervalTier"\nname = "words"\nxmin = 0\nxmax = {seconds}\nintervals: size '
        f"= {len(words)}\n"
    )
    head = f'File type = "ooTextFile"\nObject class = "TextGrid"\n\nxmin = 0\nxmax = {seconds}\n'
    head += "tiers? <exists>\nsize = 1\nitem []:\n"
    numbered = "".join(f"    intervals [{i}]:\n{time}" for i, time in enumerate(times, 1))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(head + tier + numbered, encoding="utf-8")


@pytest.fixture
def dev(tmp_path):
    """A Parquet table of dev: a passage of four sentences with a question each, and all
    recordings."""
    root = tmp_path / "nmsqa"
    write_table(root / "dev.parquet", [row(k) for k in range(4)])
    write_sentences(root / "dev_audios")
    write_question(root / "dev_audios", *(f"question-0_0_{k}" for k in range(4)))
    write_json(root / "dev_segment_id.json", {"0_0": ["0", "1", "2", "3"]})
    return root


def prepare_split(source, tmp_path, split="dev", out="out", **options):
    """Prepare the corpus. Returns the facts of a split in the report, the split, and the report."""
    report = prepare_nmsqa(Nmsqa(source=source, out=tmp_path / out, workers=1, **options))
    return report["splits"][split], load_corpus(tmp_path / out, split), report


def answers_are_beeps(corpus, question):
    """Return whether every answer time of a question is a beep in the passage's recording."""
    passage = corpus.path(corpus.passages[question.passage])
    times = [(a.start, a.end) for a in question.answers if a.start is not None]
    assert times
    return all(is_beep(passage, *time) for time in times)


def test_times_of_dev_are_moved_by_the_exact_lengths_before_them(dev, tmp_path):
    facts, corpus, _ = prepare_split(dev, tmp_path)
    assert [q.id for q in corpus.questions] == [f"id-0_0-{k}" for k in range(4)]
    assert all(answers_are_beeps(corpus, q) for q in corpus.questions)
    for k, question in enumerate(corpus.questions):
        text, start, end = ANSWERS[k]
        (answer,) = question.answers
        assert (answer.text, CONTEXT[answer.char_start :][: len(text)]) == (text, text)
        assert (answer.start, answer.end) == pytest.approx(
            (start_of(k) + start, start_of(k) + end), abs=1e-9
        )
    (passage,) = corpus.passages.values()
    assert passage.seconds == math.ceil(sum(LENGTHS) * SAMPLE_RATE / RATE) / SAMPLE_RATE
    assert passage.seconds == len(read_audio(corpus.path(passage))) / SAMPLE_RATE
    assert (passage.id, passage.audio) == ("context-0_0", "dev/audio/context-0_0.flac")
    assert (passage.speaker, passage.text) == ("Ivy", CONTEXT)
    # both times agree in the first sentence alone
    assert count_remarks(facts, nmsqa.ADDED) == 3
    assert count_remarks(facts, nmsqa.CONFIRMED) == 1
    assert facts["with_times"] == 4
    assert facts["answer_in_context"] == 1
    first = corpus.questions[0]
    assert Path(first.audio).is_absolute()
    assert (first.speaker, first.seconds) == ("Joey", 1.0)
    write_question(dev / "dev_audios", "question-0_0_9")  # changes the source
    refused("other inputs", prepare_nmsqa, Nmsqa(source=dev, out=tmp_path / "out", workers=1))


def test_questions_without_recording_answers_or_id_are_set_aside(dev, tmp_path):
    same_id = row(1, answers={"answer_start": [5, 5, 5]})  # 5 is a wrong offset
    unanswered = row(3, question=9, answers=None)
    nameless = [row(2, id=None), row(2, id="")]
    write_table(dev / "dev.parquet", [row(1), silent_row(2, 7), same_id, unanswered, *nameless])
    facts, corpus, _ = prepare_split(dev, tmp_path)
    assert facts["set_aside"] == {prepare.NOT_FOUND: 1, nmsqa.NO_ANSWERS: 1, nmsqa.NO_ID: 2}
    assert [q.id for q in corpus.questions] == ["id-0_0-1", "id-0_0-1#2"]
    assert corpus.questions[1].answers[0].char_start is None
    # files of the original release name the recording that the table does not name
    write_json(dev / "dev-hash2question.json", {"id-0_0-7": "question-0_0_7"})
    write_question(dev / "dev_audios", "question-0_0_7")
    facts, corpus, _ = prepare_split(dev, tmp_path, out="more")
    assert corpus.questions[1].answers[0].start is None
    assert corpus.questions[1].passage == "context-0_0"


def test_without_recordings_a_split_is_text_only(tmp_path):
    textless = row(3, answers={"text": [], "answer_start": []})  # its answers are times alone
    write_table(tmp_path / "alone" / "dev.parquet", [row(0), row(2), silent_row(1, 9), textless])
    facts, corpus, report = prepare_split(tmp_path / "alone", tmp_path)
    assert {record.audio for record in corpus.records} == {""}
    answers = [a for q in corpus.questions for a in q.answers]
    assert [(a.start, a.char_start is None) for a in answers] == [(None, False)] * 3
    assert len(corpus.passages) == 1
    assert count_remarks(facts, prepare.NO_RECORDINGS) == 4
    assert facts["set_aside"] == {nmsqa.NO_ANSWERS: 1}
    assert not facts["questions"]["agrees"]
    assert "published 10,570 (DIFFERENT)" in format_report(report)
    assert report["absent"] == ["train", "test"]


# ---- sentences that are missing


def test_a_sentence_that_the_release_lacks_shifts_no_time(dev, tmp_path):
    write_json(dev / "dev_segment_id.json", {"0_0": ["0", "2", "3"]})
    (dev / "dev_audios/context-0_0_1.wav").unlink()
    facts, corpus, _ = prepare_split(dev, tmp_path)
    assert [q.id for q in corpus.questions] == ["id-0_0-0", "id-0_0-2", "id-0_0-3"]
    assert all(answers_are_beeps(corpus, q) for q in corpus.questions)
    assert corpus.questions[1].answers[0].start == pytest.approx(start_of(2, (1,)) + 1.2, abs=1e-9)
    assert facts["set_aside"][nmsqa.ANSWER_MISSING] == 1
    shutil.rmtree(dev / "dev_audios")
    _, corpus, _ = prepare_split(dev, tmp_path, out="text")
    assert len(corpus.questions) == 4


def test_a_passage_that_lacks_a_listed_sentence_is_set_aside(dev, tmp_path):
    rows = [row(k, p, context=f"{CONTEXT}{p}") for p in ("0_0", "0_1") for k in range(4)]
    write_table(dev / "dev.parquet", rows)
    numbers = ["0", "1", "2", "3"]
    write_json(dev / "dev_segment_id.json", {"0_0": numbers, "0_1": numbers})
    write_sentences(dev / "dev_audios", "context-0_1_{}", (0, 1, 3))
    write_question(dev / "dev_audios", "question-0_1_0")
    facts, corpus, _ = prepare_split(dev, tmp_path)
    assert list(corpus.passages) == ["context-0_0"]
    counts = {"read": 2, "kept": 1, "set_aside": 1, "published": 2067, "agrees": False}
    assert facts["passages"] == counts
    assert facts["set_aside"][nmsqa.NOT_WHOLE] == 1
    assert facts["set_aside"][prepare.ITS_PASSAGE] == 4
    first = json.loads((tmp_path / "out/set_aside.jsonl").read_text().splitlines()[0])
    assert first["missing"] == ["context-0_1_2"]


def test_two_recordings_of_one_name_are_refused_where_they_differ(dev, tmp_path):
    name = "question-0_0_1.wav"
    other = dev / "more/dev_audios" / name
    other.parent.mkdir(parents=True)
    other.write_bytes((dev / "dev_audios" / name).read_bytes())
    _, corpus, _ = prepare_split(dev, tmp_path)
    assert len(corpus.questions) == 4
    other.write_bytes((dev / "dev_audios/question-0_0_2.wav").read_bytes() + b"x")
    with pytest.raises(InputError, match="question-0_0_1"):
        prepare_split(dev, tmp_path, out="again")


# ---- times


def times(full, segment):
    """Make the cells of answer times. full, segment: (start, end) of every answer."""
    return {
        "audio_full_answer_start": [start for start, _ in full],
        "audio_full_answer_end": [end for _, end in full],
        "audio_segment_answer_start": [start for start, _ in segment],
        "audio_segment_answer_end": [end for _, end in segment],
    }


def test_times_in_the_passage_confirm_those_in_the_segment(dev, tmp_path):
    """In most of test audio_full_* count from the passage's beginning."""
    rows = []
    for k in range(4):
        _, start, end = ANSWERS[k]
        # a little beside the exact time, as if it had been rounded
        moved = (start + start_of(k) + 0.004, end + start_of(k) + 0.004)
        rows.append(row(k, answers=times([moved], [] if k == 2 else [(start, end)])))
    write_table(dev / "dev.parquet", rows)
    facts, corpus, _ = prepare_split(dev, tmp_path)
    assert count_remarks(facts, nmsqa.CONFIRMED) == 3
    assert count_remarks(facts, nmsqa.WHOLE) == 1
    # the exact time in the segment, if there is one, and otherwise the rounded one
    assert corpus.questions[1].answers[0].start == pytest.approx(start_of(1) + 0.8, abs=1e-9)
    assert corpus.questions[2].answers[0].start == pytest.approx(start_of(2) + 1.204, abs=1e-9)


def test_where_both_times_fit_and_disagree_the_text_decides(dev, tmp_path):
    wrong = row(2, answers=times([(0.1, 0.6)], [(1.2, 1.7)]))
    right = row(
        3,
        answers=times([(start_of(3) + 0.4, start_of(3) + 0.6)], [(0.4, 0.6)]),
        content_segment_audio_path="context-0_0_0.mp3",
    )
    write_table(dev / "dev.parquet", [wrong, right])
    facts, corpus, _ = prepare_split(dev, tmp_path)
    assert count_remarks(facts, nmsqa.NEARER) == 2
    assert all(answers_are_beeps(corpus, q) for q in corpus.questions)


@pytest.mark.parametrize(
    ("full", "segment"),
    [
        ([(0.5, 99.0)], [(0.5, 99.0)]),  # beyond the audio
        ([(float("nan"), 1.0)], [(float("nan"), 1.0)]),
        ([(0.0, 0.0)], [(0.0, 0.0)]),  # the aligner writes this where it finds nothing
        ([(None, 0.5)], [(None, 0.5)]),
    ],
)
def test_impossible_times_are_left_out_and_counted(dev, tmp_path, full, segment):
    length = LENGTHS[3] / RATE
    # a time that ends less than 0.1 s behind the audio is clipped
    late = row(3, answers=times([(0.4, length + 0.09)], [(0.4, length + 0.09)]))
    write_table(dev / "dev.parquet", [row(0), row(1, answers=times(full, segment)), late])
    facts, corpus, _ = prepare_split(dev, tmp_path)
    assert [a.start for a in corpus.questions[1].answers] == [None]
    assert answers_are_beeps(corpus, corpus.questions[0])
    assert count_remarks(facts, nmsqa.OUTSIDE) == 1
    assert facts["with_times"] == 2
    assert corpus.questions[2].answers[0].end == pytest.approx(sum(LENGTHS) / RATE)


def test_times_and_texts_in_the_sentence_are_matched_in_order(dev, tmp_path):
    """The sentence has two of the texts, "the lamp" and "Boris", and there are two times; "a lamp"
    stands in another sentence."""
    answer_texts = ["the lamp", "a lamp", "the lamp", "Boris"]
    texts = {
        "text": answer_texts,
        "answer_start": [CONTEXT.index(text) for text in answer_texts],
    }
    answers = texts | times([(0.3, 0.6), (0.8, 1.1)], [(0.3, 0.6), (0.8, 1.1)])
    write_table(dev / "dev.parquet", [row(1, answers=answers)])
    _, corpus, _ = prepare_split(dev, tmp_path)
    assert [
        (a.text, a.start and round(a.start - start_of(1), 6)) for a in corpus.questions[0].answers
    ] == [("the lamp", 0.3), ("Boris", 0.8), ("a lamp", None)]


def test_a_time_too_few_goes_to_the_text_that_stands_nearest(dev, tmp_path):
    """The sentence has two of the texts, and there is one time: that of the second. The times
    `neg`, of other occurrences of the text, are not used."""
    answer_texts = ["she", "Boris", "she"]
    offsets = [CONTEXT.index(text) for text in answer_texts]
    texts = {"text": answer_texts, "answer_start": offsets}
    answers = texts | times([(0.95, 1.2)], [(0.95, 1.2)])
    neg = {"audio_full_neg_answer_start": [0.1, 0.2], "audio_full_neg_answer_end": [0.2, 0.3]}
    write_table(dev / "dev.parquet", [row(1, answers=answers), row(2, answers=neg)])
    facts, corpus, _ = prepare_split(dev, tmp_path)
    first, second = corpus.questions
    assert [(a.text, a.start is None) for a in first.answers] == [("Boris", False), ("she", True)]
    assert count_remarks(facts, nmsqa.GUESSED) == 1
    assert len(second.answers) == 1
    assert answers_are_beeps(corpus, second)


# ---- the other layouts


def test_the_hugging_face_folder_as_it_is_downloaded(dev, tmp_path):
    root = tmp_path / "NMSQA"
    write_table(
        root / "data" / "dev-00000-of-00001-e59cc4b2d3e13fe2.parquet", [row(k) for k in range(4)]
    )
    test = [row_of_test(k) for k in range(2)]
    write_table(root / "data" / "test-00000-of-00001.parquet", test)
    (root / "dataset_infos.json").write_text("{}")
    audio = root / "nmsqa_audio"
    audio.mkdir()
    (dev / "dev_audios").rename(audio / "dev_audios")
    for name in ("squad-5a", "newsqa-77"):
        write_sentences(audio / "test_audios", f"{name}-c-{{}}")
        write_question(audio / "test_audios", f"{name}-q")
    pack(audio, root / "nmsqa_audio.tar.gz")
    _, corpus, _ = prepare_split(root, tmp_path)
    assert len(corpus.questions) == 4
    assert all(answers_are_beeps(corpus, q) for q in corpus.questions)
    assert corpus.questions[0].audio.startswith(
        "unpacked/nmsqa_audio.tar.gz/nmsqa_audio/dev_audios/"
    )
    people = load_corpus(tmp_path / "out", "test")
    assert list(people.passages) == ["squad-5a-c", "newsqa-77-c"]
    assert all(answers_are_beeps(people, q) for q in people.questions)


def row_of_test(number):
    """Make a row as test has it: every question has its own passage, and there are times in the
    passage."""
    name = ("squad-5a", "newsqa-77")[number]
    _, start, end = ANSWERS[2]
    paths = {
        "content_full_audio_path": f"{name}-c.wav",
        "content_segment_audio_path": f"{name}-c-2.wav",
        "question_audio_path": f"{name}-q.wav",
    }
    moved = times([(start + start_of(2), end + start_of(2))], [(start, end)])
    return row(2, answers=moved, id=f"{name}-id", **paths)


def write_original(root):
    """Write the original release: a table with a line for every annotation, one with a line for
    every recording, JSON files, a TextGrid, and recordings."""
    words = [("sold", 0.9, 1.1), ("nine", 1.2, 1.45), ("coins", 1.45, 1.7)]
    write_grid(root / "dev/textgrid/context-0_0_2.TextGrid", words, LENGTHS[2] / RATE)
    spans = []
    for k in (0, 2, 2):
        answer, start, end = ANSWERS[k]
        span = {"hash": f"h{k}", "utterance": f"context-0_0_{k}", "start": start, "end": end}
        spans.append(span | {"answer": answer})
    spans.append(spans[0] | {"hash": "h3", "start": 0, "end": 0})
    write_csv(root / "dev/dev-answer-span.csv", spans)
    parts = zip(SENTENCES, LENGTHS, strict=True)
    about = [(f"context-0_0_{k}", "Ivy", s, s.lower(), n / RATE) for k, (s, n) in enumerate(parts)]
    about += [(f"question-0_0_{k}", "Joey", f"What {k}?", "", 1.0) for k in range(4)]
    names = ("id", "speaker", "text", "normalized_text", "duration")
    write_csv(root / "dev/meta-dev.csv", [dict(zip(names, cells, strict=True)) for cells in about])
    recordings = {f"h{k}": f"question-0_0_{k}" for k in (0, 2, 3)}
    write_json(root / "dev/dev-hash2question.json", recordings)
    write_json(root / "dev/dev_segment_id.json", {"0_0": ["0", "1", "2", "3"]})
    write_sentences(root / "dev/dev_audio")
    write_question(root / "dev/dev_audio", *(f"question-0_0_{k}" for k in range(4)))


def test_two_lines_of_a_recording_that_differ_are_refused(tmp_path):
    root = tmp_path / "original"
    write_original(root)
    with (root / "dev/meta-dev.csv").open("a") as file:
        file.write("question-0_0_0,Joey,What else?,,1.0\n")
    refused("two lines of question-0_0_0 that differ", prepare_split, root, tmp_path)


def test_two_tiers_of_words_are_refused(tmp_path):
    path = tmp_path / "x.TextGrid"
    write_grid(path, [("sold", 0.0, 1.0)], 1.0)
    text = path.read_text()
    tier = text[text.index('class = "IntervalTier"') :]
    path.write_text(text.replace("size = 1", "size = 2", 1) + tier)
    refused("x.TextGrid has 2 tiers of words", read_words, "x", {"x": path})


@pytest.mark.parametrize("packed", [False, True])
def test_the_original_release(tmp_path, packed):
    root = tmp_path / "original"
    write_original(root)
    if packed:
        pack(root / "dev/dev_audio", root / "dev/dev_audio.tar.gz")
        pack(root / "dev/textgrid", root / "dev/dev-textgrid.tar.gz")
    facts, corpus, _ = prepare_split(root, tmp_path)
    first, second, third = corpus.questions
    assert (first.id, first.text, first.speaker) == ("h0", "What 0?", "Joey")
    assert answers_are_beeps(corpus, first)
    assert answers_are_beeps(corpus, second)
    assert len(second.answers) == 1
    (passage,) = corpus.passages.values()
    assert passage.text == CONTEXT
    assert CONTEXT[second.answers[0].char_start :].startswith("nine coins")
    assert [w.text for w in passage.words] == ["sold", "nine", "coins"]
    assert passage.words[1].start == pytest.approx(start_of(2) + 1.2, abs=1e-4)
    # the annotation of h3 is from 0 to 0: the aligner did not find it
    assert third.answers[0].start is None
    assert count_remarks(facts, nmsqa.OUTSIDE) == 1


def test_the_original_release_with_squads_texts_and_times_in_the_passage(tmp_path):
    root = tmp_path / "original"
    lines = []  # of dev-answer-span.csv
    qas = []
    write_original(root)
    for k in (0, 2, 3):
        text, *times = ANSWERS[k]
        answers = [{"text": text, "answer_start": CONTEXT.index(text)}]
        qas.append({"id": f"h{k}", "question": f"SQuAD {k}?", "answers": answers})
        start, end = (start_of(k) + time for time in times)
        lines.append({"hash": f"h{k}", "context_id": "0_0", "new_start": start, "new_end": end})
    write_csv(root / "dev/dev-answer-span.csv", lines[:2])
    article = {"title": "T", "paragraphs": [{"context": CONTEXT, "qas": qas}]}
    write_json(root / "dev/dev-v1.1.json", {"data": [article]})
    facts, corpus, _ = prepare_split(root, tmp_path)
    assert [q.text for q in corpus.questions] == ["SQuAD 0?", "SQuAD 2?", "SQuAD 3?"]
    assert answers_are_beeps(corpus, corpus.questions[1])
    assert corpus.questions[1].answers[0].char_start == CONTEXT.index("nine coins")
    assert corpus.questions[2].answers[0].start is None
    assert count_remarks(facts, nmsqa.WHOLE) == 2


# ---- what is refused


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("dev-answer-span.csv", b"hash,start\n\xff\xfe,1\n", "dev-answer-span.csv"),
        ("dev_audios.tar.gz", b"no archive", "dev_audios.tar.gz is truncated or damaged"),
        ("data/dev.parquet", b"", "look like dev"),
    ],
)
def test_damaged_files_are_refused(dev, name, content, message, absent_out):
    (dev / name).parent.mkdir(exist_ok=True)
    (dev / name).write_bytes(content)
    refused(message, prepare_nmsqa, Nmsqa(source=dev, out=absent_out, workers=1))


# ---- the real files


@pytest.mark.slow
def test_the_published_dev_table(shared, tmp_path):
    facts, corpus, _ = prepare_split(shared("nmsqa", "dev.parquet").parent, tmp_path)
    for kind, count in (("questions", 10_570), ("passages", 2_067)):
        counts = {"read": count, "kept": count, "set_aside": 0, "published": count, "agrees": True}
        assert facts[kind] == counts
    assert len(corpus.passages) == 2_067
    assert corpus.passages["context-34_4"].audio == ""
    segment_ids = read_json(shared("nmsqa", "dev_segment_id.json"))
    assert max(len(numbers) for numbers in segment_ids.values()) == 26


@pytest.mark.slow
def test_every_published_time_of_dev_is_matched_with_a_text(shared):
    """All 17,155 times of the published table get texts of a plausible length. Sentences are taken
    to end 1 s behind their last time, because the recordings are not here."""
    counts = Counter()
    rates = []  # characters a second of every answer
    for r in read_parquet_rows(shared("nmsqa", "dev.parquet")):
        if r.times:
            name = r.times[0].segment
            length = round((max(t.in_segment[1] for t in r.times) + 1) * SAMPLE_RATE)
            layout = nmsqa.PassageLayout((name,), Joined((length,), (SAMPLE_RATE,), length))
            answers = nmsqa.time_answers(r, layout, lambda remark: counts.update([remark[0]]))
            rates += [len(a.text) / (a.end - a.start) for a in answers if a.start is not None]
    assert counts[nmsqa.CONFIRMED[0]] == 17_155
    assert not counts[nmsqa.OUTSIDE[0]]
    assert counts[nmsqa.GUESSED[0]] == 142
    # people speak about 15 characters a second
    assert np.mean([2.5 < rate < 35 for rate in rates]) > 0.985
    assert 14 < np.median(rates) < 16


@pytest.mark.slow
def test_a_real_recording_as_the_fifth_sentence(shared, tmp_path):
    """The words "the Master" lie at [7.44, 8.14) s of the published recording. In the joined passage
    their time has the same sound."""
    mp3, root = shared("nmsqa", "context-34_4_4.mp3"), tmp_path / "nmsqa"
    (root / "dev_audios").mkdir(parents=True)
    for name in ("dev.parquet", "dev_segment_id.json", "dev-hash2question.json"):
        (root / name).symlink_to(mp3.with_name(name))
    (root / "dev_audios" / mp3.name).symlink_to(mp3)
    write_sentences(root / "dev_audios", "context-34_4_{}")
    names = read_json(root / "dev-hash2question.json").values()
    write_question(root / "dev_audios", *(n for n in names if n.startswith("question-34_4_")))
    facts, corpus, _ = prepare_split(root, tmp_path)
    assert list(corpus.passages) == ["context-34_4"]
    answers = [answer for question in corpus.questions for answer in question.answers]
    answer = next(a for a in answers if a.text == "the Master" and a.start is not None)
    assert answer.start == pytest.approx(start_of(4) + 7.44, abs=1e-9)
    spoken = read_audio(corpus.path(corpus.passages["context-34_4"]))
    spoken = spoken[round(answer.start * SAMPLE_RATE) : round(answer.end * SAMPLE_RATE)]
    samples, rate = read_native(mp3)
    original = resample(samples, rate, SAMPLE_RATE)[round(7.44 * SAMPLE_RATE) :][: len(spoken)]
    # half a sample off at most: the rate changes from 22,050 to 24,000 Hz
    assert np.corrcoef(spoken, original)[0, 1] > 0.98
    assert facts["questions"]["read"] == 10_570
    assert facts["set_aside"][prepare.NOT_FOUND] >= 76
