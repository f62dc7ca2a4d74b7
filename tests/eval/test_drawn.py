"""Every row, line and table says what its interval draws, and what was kept is drawn anew without anything being encoded again."""

import json
from dataclasses import replace

import pytest

from speechssl import stats as bootstrap
from speechssl.augment import Distorter, parse_condition
from speechssl.data.records import Answer, Passage, Question, load_corpus, write_records
from speechssl.eval.config import Predictions
from speechssl.eval.robustness import run_robustness
from speechssl.eval.spoken_qa import evaluate, import_predictions
from speechssl.report.comparison import run_comparison
from speechssl.report.config import Compare
from speechssl.results import Row, counted_range, drawn_sentence, read_rows, results_table

from .test_choice import Listener
from .test_choice import corpus as choices  # noqa: F401  a fixture
from .test_choice import run as run_choices
from .test_grid import Roughness
from .test_robustness import plan  # noqa: F401  a fixture


@pytest.fixture
def corpus(tmp_path):
    """Two passages of each of six voices, and two questions about each; a passage is right or wrong as a whole."""
    root = tmp_path / "corpus"
    (root / "test").mkdir(parents=True)
    passages = [Passage(f"p{i}", "", 0.0, "a red boat", f"v{i // 2}", "en") for i in range(12)]
    questions = [Question(f"q{i}", f"p{i // 2}", "", 0.0, "what", f"v{i % 6}", "en", (Answer("boat"),)) for i in range(24)]
    write_records(root / "test/passages.jsonl", passages)
    write_records(root / "test/questions.jsonl", questions)
    return root


def train_on(corpus, *speakers):
    (corpus / "train").mkdir(exist_ok=True)
    write_records(corpus / "train/passages.jsonl", [Passage(f"t{s}", "", 0.0, "", s, "en") for s in speakers])


def answered(corpus, out, name, right):
    """right: of 24."""
    file = out.parent / f"{name}.json"
    file.write_text(json.dumps({f"q{i}": "boat" if i < right else "ship" for i in range(24)}))
    return import_predictions(Predictions(corpus=corpus, out=out, file=file, name=name))


def drawn(out):
    return {(r.drawn, r.groups) for r in read_rows(out / "results.jsonl")}


def test_answers_from_elsewhere_and_their_comparison(corpus, tmp_path):
    out = tmp_path / "out"
    assert "95 % intervals draw 6 voices." in answered(corpus, out, "good", 20)
    answered(corpus, out, "bad", 8)
    assert drawn(out) == {("voice", 6)}
    lines = [json.loads(x) for x in (out / "scores/good/clean.jsonl").read_text().splitlines()]
    assert [x["voice"] for x in lines[:5]] == ["v0"] * 4 + ["v1"]  # of the passage: others ask
    printed = run_comparison(Compare(results=(out,), out=tmp_path / "compared", metric="em"))
    compared = json.loads((tmp_path / "compared/compare.json").read_text())["corpora"][0]
    assert compared["drawn"] == "voice" and {(c["drawn"], c["groups"]) for c in compared["cells"]} == {("voice", 6)}
    assert (
        "which draw 6 voices" in printed and "paired bootstrap that draws 6 voices" in (tmp_path / "compared/tables.md").read_text()
    )
    assert compared["tests"][0]["p_value"] >= 2 / 2**6
    page = (tmp_path / "compared/compare.html").read_text()
    assert "95 % intervals draw 6 voices." in page

    train_on(corpus, "v3", "somebody")
    answered(corpus, out, "good", 20)
    answered(corpus, out, "bad", 8)
    assert drawn(out) == {("passage", 12)}
    assert "paired bootstrap that draws 12 passages" in run_comparison(
        Compare(results=(out,), out=tmp_path / "compared", metric="em")
    )


def test_lines_without_a_voice_draw_passages_and_others_of_the_same_data_tell_it(corpus, tmp_path):
    out = tmp_path / "out"
    answered(corpus, out, "good", 20)
    answered(corpus, out, "bad", 8)
    for name, unit in (("good", "6 voices"), ("bad", "12 passages")):
        path = out / f"scores/{name}/clean.jsonl"
        kept = [{k: v for k, v in json.loads(x).items() if k != "voice"} for x in path.read_text().splitlines()]
        path.write_text("".join(json.dumps(x) + "\n" for x in kept))
        card = path.with_name("clean.card.json")
        card.write_text(json.dumps({k: v for k, v in json.loads(card.read_text()).items() if k != "lines"}))
        assert f"which draw {unit}" in run_comparison(Compare(results=(out,), out=tmp_path / "compared", metric="em"))


def test_a_comparison_tells_which_p_cannot_be_reached(corpus, tmp_path):
    for name, right in (("a", 24), ("b", 12), ("c", 0)):
        answered(corpus, tmp_path / "out", name, right)
    run_comparison(Compare(results=(tmp_path / "out",), out=tmp_path / "compared", metric="em"))
    note = (tmp_path / "compared/tables.md").read_text()
    assert "With 6 voices no p can be below 0.031, nor below 0.094 after Holm over 3 tests." in note
    tests = json.loads((tmp_path / "compared/compare.json").read_text())["corpora"][0]["tests"]
    assert min(t["p_value"] for t in tests) == 2 / 2**6 and min(t["p_holm"] for t in tests) == 3 * 2 / 2**6


class Reader:
    """Reads what is written; counts what it was asked."""

    name, needs_audio = "text", False
    card = {"name": "text"}  # noqa: RUF012

    def __init__(self):
        self.asked = 0

    def encode(self, record, samples):
        return record.id

    def answer_all(self, items):
        from speechssl.dual.system import TimedAnswer

        self.asked += len(items)
        return [TimedAnswer(float("nan"), float("nan"), 0.9, "boat" if int(q[1:]) % 3 else "ship") for q, _ in items]


def test_kept_answers_are_drawn_anew(corpus, tmp_path, monkeypatch):
    def rows():
        system = Reader()
        found = evaluate([system], load_corpus(corpus, "test"), [parse_condition("clean")], tmp_path / "out", Distorter(0))
        return system.asked, {(r.drawn, r.groups) for r in found}

    assert rows() == (24, {("voice", 6)})
    monkeypatch.setattr(bootstrap, "FEWEST", 7)
    assert rows() == (0, {("passage", 12)})


def test_choices(choices, tmp_path):  # noqa: F811
    rows = run_choices([Listener()], choices, tmp_path / "out")
    assert {(r.drawn, r.groups) for r in rows} == {("passage", 2)}
    manifest = choices / "dev/passages.jsonl"
    found = [json.loads(x) for x in manifest.read_text().splitlines()]
    more = [found[0] | {"id": f"more{i}", "speaker": f"v{i}"} for i in range(5)]
    manifest.write_text("".join(json.dumps(x) + "\n" for x in (*found, *more)))
    questions = choices / "dev/questions.jsonl"
    asked = [json.loads(x) for x in questions.read_text().splitlines()]
    asked += [asked[0] | {"id": f"moreq{i}", "passage": f"more{i}"} for i in range(5)]
    questions.write_text("".join(json.dumps(x) + "\n" for x in asked))
    rows = run_choices([Listener()], choices, tmp_path / "more")
    assert {(r.drawn, r.groups) for r in rows if r.metric == "set_accuracy"} == {("voice", 6)}


@pytest.mark.slow
def test_the_grid_draws_voices_in_every_task_and_is_drawn_anew(tmp_path, plan, monkeypatch):  # noqa: F811
    made = []

    def make(voices, name, subject, data, out, setup):
        made.append(Roughness(sorted((tmp_path / "audio").glob("*.flac")), 0.01, name, voices=voices))
        return [made[-1]]

    def makers():
        return {n: lambda *a, n=n, v=v: make(v, n, *a) for n, v in (("ks", 5), ("ic", 6), ("sid", 0))}

    plan = replace(plan, tasks=tuple(f"{task}={tmp_path / 'audio'}" for task in ("ks", "ic", "sid")))
    printed = run_robustness(plan, makers())
    rows = read_rows(tmp_path / "out/results.jsonl")
    assert {(r.system, r.drawn, r.groups) for r in rows} == {("ks", "voice", 5), ("ic", "voice", 6), ("sid", "session", 3)}
    sentence = "95 % intervals draw 5 to 6 voices (ks, ic) and 3 sessions (sid)."
    values = json.loads((tmp_path / "out/degradation.json").read_text())
    assert values["drawn"] == sentence and {c["drawn"] for c in values["cells"]} == {"voice", "session"}
    assert sentence in printed and sentence in (tmp_path / "out/tables.md").read_text()
    encoded = sum(len(task.encoded) for task in made)
    monkeypatch.setattr(bootstrap, "FEWEST", 7)
    run_robustness(plan, makers())
    assert {r.drawn for r in read_rows(tmp_path / "out/results.jsonl")} == {"session"}
    assert sum(len(task.encoded) for task in made) == encoded


def row(metric, drawn="", groups=0):
    return Row("dual", "", "clean", None, metric, 50.0, 40.0, 60.0, 9, 0, "", drawn, groups)


def test_tables_say_what_is_drawn():
    assert drawn_sentence([("a", "voice", 8), ("b", "passage", 9), ("c", "", 0), ("d", "voice", 8)]) == (
        "95 % intervals draw 8 voices (a, d) and 9 passages (b)."
    )
    assert drawn_sentence([("a", "passage", 1)]) == ""  # one has no interval
    assert [counted_range({n}, "query") for n in (1, 2)] == ["1 query", "2 queries"]
    assert counted_range({4, 8}, "voice, recording") == "4 to 8 voices or recordings"
    assert results_table([row("ff1", "voice", 8), row("wer", "voice", 8)]).endswith("\n\n95 % intervals draw 8 voices.")
    assert not results_table([row("ff1")]).endswith(".")


def test_results_of_before_can_be_read_and_replaced(tmp_path):
    from dataclasses import asdict

    from speechssl.results import append_rows

    old = {name: value for name, value in asdict(row("ff1")).items() if name not in ("drawn", "groups")}
    (tmp_path / "results.jsonl").write_text(json.dumps(old) + "\n")
    append_rows(tmp_path / "results.jsonl", [row("ff1", "voice", 8)])
    assert read_rows(tmp_path / "results.jsonl") == (row("ff1", "voice", 8),)
