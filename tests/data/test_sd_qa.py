"""Test SD-QA: lines of TyDi with byte offsets, a split for every dialect, speakers, and recordings
by id."""

import gzip
import json

import pytest

from speechssl.cli import main
from speechssl.data.options import SdQa
from speechssl.data.records import load_corpus
from speechssl.data.sd_qa import prepare_sd_qa
from speechssl.results import read_rows

from ..files import refused, write_lines

ARTICLE = "Žižkov is where Ann was born, in 1904."
NONE = (-1, -1)  # the byte span of no answer


def annotation(answer=NONE, candidate=-1, yes_no="NONE"):
    """Make an annotation. answer: span in bytes of the article; candidate: number of the
    paragraph."""
    first, last = answer
    return {
        "annotation_id": 12852520138824648163,
        "minimal_answer": {"plaintext_start_byte": first, "plaintext_end_byte": last},
        "passage_answer": {"candidate_index": candidate},
        "yes_no_answer": yes_no,
    }


def line(number, question, *annotations, article=ARTICLE, title="Ann"):
    """Make a line of a file: a question as a recogniser understood it, and its article."""
    return {
        "example_id": number,
        "question_text": question,
        "annotations": annotations,
        "document_plaintext": article,
        "document_title": title,
        "language": "english",
        "passage_answer_candidates": [{"plaintext_start_byte": 0}],
    }


def write_examples(path, *lines):
    """Write lines as a compressed JSONL file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress("\n".join(map(json.dumps, lines)).encode()))


def prepare(source, out, **options):
    """Prepare the corpus, and return its data report."""
    return prepare_sd_qa(SdQa(source=source, out=out, workers=1, **options))


@pytest.fixture
def source(tmp_path, recording):
    """The test questions of New Zealand, transcribed by two recognisers. In the article, bytes 0 to
    8 are Žižkov, and bytes 35 to 39 are 1904."""
    root = tmp_path / "SD-QA/test/eng"
    year, place = annotation((35, 39), 0), annotation((0, 8), 0)
    when = line(-7, "when was Anne born", year, annotation(), year)
    where = line(8, "wear was she born", place)
    lines = [when, where, line(9, "did she exist", annotation(yes_no="YES"))]
    lines.append(line(10, "who was she", annotation(candidate=0)))
    write_examples(root / "nzl/english.test.nzl-en-NZ.jsonl.gz", *lines)
    late = line(11, "why", annotation(), article="Bob.", title="Bob")
    lines = [when | {"question_text": "when was an born"}, late]
    write_examples(root / "nzl/english.test.nzl-en-US.jsonl.gz", *lines)
    (root / "nzl/english.test.nzl-en-NZ.triples.jsonl").write_text("{}")
    rows = [("-7", "When was Ann born?"), ("8", "Where was Ann born?"), ("11", 'Why "Bob"?')]
    text = "".join(f"{name}\tFalse\t{question}\n" for name, question in rows)
    (root / "english.test.txt").write_text(text, encoding="utf-8")
    speakers = ",example_id,user_id,region\n0,-7,-1625416580,nzl\n1,8,na,nzl\n"
    (root / "nzl/metadata.csv").write_text(speakers)
    for name in ("-7", "8", "11", "12"):
        recording(root / f"nzl/wav_eng/{name}.wav")
    return tmp_path / "SD-QA"


def test_the_records_of_a_dialect(source, tmp_path):
    report = prepare(source, tmp_path / "out")
    facts = report["splits"]["test-eng-nzl"]
    assert facts["set_aside"] == {
        "it is answered by yes or no": 1,
        "it is answered by a paragraph without a shorter answer": 1,
        "its article is in no file of the release": 1,
    }
    counts = facts["questions"]
    assert (counts["read"], counts["kept"], counts["published"]) == (6, 3, 1_031)
    assert report["absent"] == ["dev-eng-nzl"]  # only of dialects that are present
    corpus = load_corpus(tmp_path / "out", "test-eng-nzl")
    assert [p.text for p in corpus.passages.values()] == [ARTICLE, "Bob."]
    when, where, why = corpus.questions
    assert (when.id, when.text) == ("-7", "When was Ann born?")
    assert when.transcript == "when was Anne born"
    assert (when.speaker, where.speaker, why.text) == ("-1625416580", "", 'Why "Bob"?')
    answers = [(a.text, a.char_start) for q in (when, where) for a in q.answers]
    assert answers == [("1904", 33), ("Žižkov", 0)]
    assert why.answers == () and why.seconds == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("name", "split", "language"),
    [
        ("dev/ben/ind/bengali.dev.ind-bn-%s.txt.jsonl.gz", "dev-ben-ind", "bn"),
        ("dev/kor/kors/korean.dev.kors-ko-%s.jsonl.gz", "dev-kor-kors", "ko"),
    ],
)
def test_other_languages_are_scored(tmp_path, name, split, language):
    """The dialect ind has the transcript of the recogniser IN, which is its own; others have that
    of the first recogniser by name, BD. Answers in these languages are scored."""
    for region in ("BD", "IN"):
        write_examples(tmp_path / "in" / (name % region), line(1, region, annotation((0, 8), 0)))
    report = prepare(tmp_path / "in", tmp_path / "out")
    assert report["splits"][split]["answer_in_context"] == 1
    (question,) = load_corpus(tmp_path / "out", split).questions
    assert (question.language, question.transcript) == (language, "IN" if "ind" in split else "BD")
    write_lines(tmp_path / "mine.jsonl", [{"prompt": question.transcript, "response": "žižkov!"}])
    call = ["evaluate", "predictions", *map(str, (tmp_path / "out", tmp_path / "exp"))]
    file = str(tmp_path / "mine.jsonl")
    assert main([*call, file, "--name", "mine", "--split", split]) == 0
    values = {row.metric: row.value for row in read_rows(tmp_path / "exp/results.jsonl")}
    assert values == {"em": 100, "f1": 100}


def test_a_damaged_file_is_refused(source, absent_out):
    path = source / "test/eng/nzl/english.test.nzl-en-NZ.jsonl.gz"
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    refused(f"{path.name} is not whole", prepare, source, absent_out)
    write_examples(path, {"example_id": 1})
    refused(f"{path.name}:1: the record has no `", prepare, source, absent_out)
