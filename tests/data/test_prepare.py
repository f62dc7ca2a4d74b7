"""What all corpora share: by what a folder is known, what is left of one that came to nothing, and --passages N."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speechssl.data.nmsqa import prepare_nmsqa
from speechssl.data.odsqa import prepare_odsqa
from speechssl.data.prepare import PrepareReport, Wanted, described
from speechssl.data.records import load_corpus
from speechssl.data.spoken_squad import prepare_spoken_squad
from speechssl.data.squad import prepare_squad
from speechssl.data.toefl_qa import prepare_toefl_qa
from speechssl.errors import InputError
from speechssl.io import read_json


@pytest.mark.parametrize(
    ("wanted", "settings"),
    [
        (Wanted(workers=3, seed=4), {"speak": False}),  # a seed that draws nothing is no setting
        (Wanted(speak=True, seed=4), {"speak": True, "seed": 4}),
        (Wanted(passages=2), {"speak": False, "passages": 2}),
    ],
)
def test_a_corpus_is_known_by_what_decides_its_content(wanted, settings):
    assert wanted.settings == settings


def test_the_settings_of_a_folder_are_those_of_earlier_versions(tmp_path, squad_json):
    path = squad_json(tmp_path / "dev.json", ("In Rome.", [("1", "Where?", [("Rome", 3)])]))
    prepare_squad(path, tmp_path / "out", Wanted(passages=1, workers=2))
    kept = read_json(tmp_path / "out/settings.json")
    assert kept.pop("files").keys() == {"dev"}
    assert kept == {"corpus": "squad", "source": str(path), "speak": False, "passages": 1, "language": "en"}


def test_what_is_there_is_left_alone(tmp_path, squad_json, capsys):
    source = squad_json(tmp_path / "in/dev.json", ("In Rome.", [("1", "Where?", [("Rome", 3)])])).parent
    out = tmp_path / "out"
    first = prepare_squad(source, out)
    assert read_json(out / "data_report.json") == first
    before = {p: (p.stat().st_mtime_ns, p.read_bytes()) for p in out.rglob("*") if p.is_file()}
    assert prepare_squad(source, out) == first and "it is left as it is" in capsys.readouterr().err
    assert before == {p: (p.stat().st_mtime_ns, p.read_bytes()) for p in out.rglob("*") if p.is_file()}
    for name in ("card.json", "data_report.json"):  # a killed run begins again
        (out / name).unlink()
    prepare_squad(source, out)
    assert {p: content for p, (_, content) in before.items()} == {p: p.read_bytes() for p in out.rglob("*") if p.is_file()}
    squad_json(source / "dev.json", ("In Rome!", [("1", "Where?", [("Rome", 3)])]))
    with pytest.raises(InputError, match="made with other settings"):
        prepare_squad(source, out)


def test_a_folder_of_something_else_or_of_nothing_stays_as_it_was(tmp_path):
    (tmp_path / "dev.json").write_text('{"data": [{"paragraphs": 3}]}')
    for name in ("empty", "full"):
        (tmp_path / name).mkdir()
    (tmp_path / "full/mine.txt").write_text("mine")
    with pytest.raises(InputError, match="is not SQuAD"):
        prepare_squad(tmp_path / "dev.json", tmp_path / "empty")
    with pytest.raises(InputError, match="is not empty and not the squad corpus; choose another folder"):
        prepare_squad(tmp_path / "dev.json", tmp_path / "full")
    assert not list((tmp_path / "empty").iterdir()) and [p.name for p in (tmp_path / "full").iterdir()] == ["mine.txt"]


# ---- --passages N: a slice costs what it holds, what lies beyond it is counted, and the whole table is still compared


def reason(n):
    return f"beyond the first {n} passage{'s' * (n > 1)} with questions (--passages)"


@given(st.lists(st.integers(0, 4), max_size=8), st.one_of(st.none(), st.integers(1, 9)))
def test_kept_and_set_aside_are_what_was_read(asked, first):
    report = PrepareReport("any", first=first)
    report.count("dev", "passages", len(asked))
    report.count("dev", "questions", sum(asked))
    wanted = report.slice("dev", range(len(asked)), dict(enumerate(asked)))
    assert list(wanted) == [i for i, n in enumerate(asked) if n or first is None][: first or len(asked)]
    report.keep("dev", "passages", len(wanted))
    report.keep("dev", "questions", sum(asked[i] for i in wanted))
    beyond = len(asked) - len(wanted) + sum(asked) - sum(asked[i] for i in wanted)
    assert report.to_json({}, {})["splits"]["dev"]["set_aside"] == ({reason(first): beyond} if beyond else {})


def test_nothing_is_made_of_what_lies_beyond(tmp_path, squad_json, recording):
    """Three passages, the first without questions; recordings of all."""
    source, out = tmp_path / "squad", tmp_path / "out"
    asked = [[], [("q1", "Where?", [("Rome", 3)])], [("q2", "Who?", [("Ann", 0)]), ("q3", "", [])]]
    squad_json(source / "dev.json", *zip(["Mud.", "In Rome.", "Ann."], asked, strict=True))
    for name in ("0_0.mp3", "0_1.mp3", "0_2.mp3", "q1.wav", "q2.wav", "q3.wav"):
        recording(source / "audio" / name)
    report = prepare_squad(source, out, Wanted(passages=1))
    corpus, facts = load_corpus(out, "dev"), report["splits"]["dev"]
    assert (list(corpus.passages), [q.id for q in corpus.questions]) == (["0_1"], ["q1"])
    assert len(list((out / "dev/audio").glob("*.flac"))) == 1
    assert facts["passages"] == facts["questions"] == {"read": 3, "kept": 1, "set_aside": 2}
    assert facts["set_aside"] == {reason(1): 4}  # and not the empty question, which was never looked at
    lines = [json.loads(line) for line in (out / "set_aside.jsonl").read_text().splitlines()]
    assert [(line["kind"], line["count"]) for line in lines] == [("passages", 2), ("questions", 2)]
    assert f"4 set aside: {reason(1)}" in described(report)
    assert next(f for f in facts["found"] if f["what"].startswith("recordings"))["what"].endswith("of the slice")
    assert prepare_squad(source, out, Wanted(passages=1)) == report
    for wanted in (Wanted(passages=2), Wanted()):
        with pytest.raises(InputError, match="other settings"):
            prepare_squad(source, out, wanted)
    assert prepare_squad(source, tmp_path / "all", Wanted(passages=9))["splits"]["dev"]["passages"]["kept"] == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("prepare", "where", "split", "passages", "questions"),
    [
        (prepare_nmsqa, "nmsqa", "dev", 2067, 10_570),
        (prepare_odsqa, "odsqa", "test-textq", 606, 1464),
        (prepare_spoken_squad, "spoken_squad", "test", None, 5351),
        (prepare_toefl_qa, "toefl_qa", "dev", 24, 124),
    ],
)
def test_the_whole_of_a_real_table_is_counted(shared, tmp_path, prepare, where, split, passages, questions):
    report = prepare(shared(where), tmp_path / "out", Wanted(passages=2))
    facts, corpus = report["splits"][split], load_corpus(tmp_path / "out", split)
    assert len(corpus.passages) == 2 and {q.passage for q in corpus.questions} == set(corpus.passages)
    assert facts["questions"]["read"] == questions and facts["questions"]["agrees"]
    assert facts["questions"]["kept"] == len(corpus.questions)
    assert passages is None or facts["passages"] | {"agrees": True} == facts["passages"]
    assert "DIFFERENT" not in described(report)
