"""`evaluate robustness`: the files of a grid, bad plans; and the measures of what noise costs, by
hand and by their properties."""

import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from speechssl.artifacts import read_json
from speechssl.augment import parse_condition
from speechssl.eval import robustness
from speechssl.eval.conditions import Setting, list_settings
from speechssl.eval.degradation import (
    Grid,
    compare_with_cascade,
    make_degradation_tables,
    measure_clean_gain,
    measure_degradation,
)
from speechssl.eval.options import Robustness
from speechssl.eval.robustness import run_robustness
from speechssl.results import read_rows
from speechssl.stats import ItemScore
from speechssl.superb.options import Noisy

from ..files import contents, read_lines, refused, untouched
from .test_grid import RoughnessTask, write_recordings
from .test_spoken_qa import Oracle, corpus  # noqa: F401  a fixture

# ---- plans


def test_conditions_without_an_snr_of_their_own_get_every_one():
    settings = list_settings(("m+g+r", "reverb@0.6"), ("held-out", "pink@7", "reverb"), (5.0, 0.0))
    assert [s.label for s in settings] == [
        *("clean", "seen-m+g+r 5 dB", "seen-m+g+r 0 dB", "seen-reverb 0.6 s"),
        *("unseen-held-out 5 dB", "unseen-held-out 0 dB", "unseen-pink 7 dB", "unseen-reverb"),
    ]
    # so does noise that is the last of several steps
    chains = ("reverb@0.9+kitchen.wav", "pitch@-2+m+g+r", "a@b/bus.wav")
    _, *settings = list_settings((), chains, (5.0,))
    assert [s.condition.text for s in settings] == [f"{chain}@5" for chain in chains]
    refused("pink@500", list_settings, (), ("pink@500",), (5.0,))


# ---- the whole


def make_options(folder, encoders, tasks, **more):
    """Make the options of a grid below a folder. encoders, tasks: name -> place."""
    encoder_texts = tuple(f"{name}={where}" for name, where in encoders.items())
    task_texts = tuple(f"{name}={data}" for name, data in tasks.items())
    return Robustness(out=folder / "out", encoders=encoder_texts, tasks=task_texts, **more)


def run_stand_ins(plan):
    """Run a grid of stand-in tasks, in which the encoder "better" tolerates some noise; return what
    is printed."""

    def make_tasks(name, tested, data, out, o):
        assert out == plan.out / "heads" / tested.name / name
        task = RoughnessTask(
            paths=sorted(data.glob("*.flac")),
            tolerance=0.05 if tested.name == "better" else 0.0,
            name=name,
            metric="wer" if name == "asr" else "acc",
        )
        return [task]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(robustness, "make_tasks", make_tasks)
        patch.setattr(robustness, "check_set", lambda *_: None)
        return run_robustness(plan)


def test_a_set_that_cannot_be_used_is_refused_before_encoders_are_loaded(labelled, tmp_path):
    good, bad = labelled("ks"), labelled("sid", slots=("speaker",))
    plan = make_options(tmp_path, {"x": "nowhere"}, {"ks": good, "sid": bad})
    next((bad / "audio").glob("train-*.flac")).unlink()
    refused("which does not exist", run_robustness, plan)
    refused("of the task ks, not of ic", run_robustness, replace(plan, tasks=(f"ic={good}",)))
    (good / "card.json").unlink()  # a folder without a card is taken for a set of the task
    refused("nowhere", run_robustness, replace(plan, tasks=(f"ks={good}",)))


@pytest.fixture(scope="module")
def base(tmp_path_factory, hubert_folder):
    """A grid that has been run: its folder, its options, and what was printed."""
    folder = tmp_path_factory.mktemp("grid")
    audio = folder / "audio"
    write_recordings(audio, count=9)
    encoders = dict.fromkeys(("baseline", "better"), str(hubert_folder("layer")))
    noise = Noisy(seen=("pink",), unseen=("gaussian",), snr=(10.0, 5.0))
    plan = make_options(folder, encoders, {"ks": audio, "asr": audio}, noise=noise)
    return SimpleNamespace(folder=folder, plan=plan, text=run_stand_ins(plan))


@pytest.fixture
def plan(tmp_path, base):
    """The options of `base` with a new folder."""
    return replace(base.plan, out=tmp_path / "out")


def test_the_whole_grid(base, plan):
    out = plan.out
    shutil.copytree(base.folder / "out", out)
    rows = read_rows(out / "results.jsonl")
    assert len(rows) == 2 * 2 * 5  # encoders, tasks, conditions
    assert {r.encoder for r in rows} == {"baseline", "better"}
    conditions = {("clean", None), ("seen-pink", 5.0), ("unseen-gaussian", 10.0)}
    assert {(r.condition, r.snr_db) for r in rows} >= conditions
    assert (out / "scores/baseline/ks-acc/unseen-gaussian-5-dB.parquet").is_file()
    assert "unseen 5 dB" in base.text
    values = read_json(out / "degradation.json")
    assert (values["baseline"], len(values["averages"])) == ("baseline", 8)
    utterances = {line["utterance"] for line in read_lines(out / "noise.jsonl")}
    assert utterances == {f"u{i}" for i in range(9)}
    # the same command again changes nothing
    before = contents(out)
    with untouched(out / "scores"):
        assert run_stand_ins(plan) == base.text
    assert contents(out) == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tasks": ("kws=.",)}, "'kws'"),
        ({"tasks": ("units=.",)}, "baseline is not enough for the task units"),
        ({"encoders": ("a=no-such-encoder",)}, "no-such-encoder"),
        ({"noise": Noisy(("pink", "pink"), snr=(10.0,))}, "'seen-pink 10 dB'"),
    ],
)
def test_bad_plans_are_refused_before_anything_is_made(monkeypatch, plan, change, message):
    monkeypatch.setattr(robustness, "check_set", lambda *_: None)  # the set is a stand-in
    refused(message, lambda: run_robustness(replace(plan, **change)))
    assert not plan.out.exists()


@pytest.mark.slow
def test_the_shipped_models_go_through_the_grid(tmp_path, corpus):  # noqa: F811
    """Units, DUAL and the cascade share an encoder, and a manifest without labels gives units."""
    (tmp_path / "own.txt").write_text(f"{corpus}/test/audio/p0.flac\n{corpus}/test/audio/q0.flac\n")
    tasks = {"units": tmp_path / "own.txt", "dual": corpus, "cascade-ctc": corpus}
    noise = Noisy(seen=("pink",), unseen=(), snr=(5.0,))
    text = run_robustness(make_options(tmp_path, {"baseline": "people-en"}, tasks, noise=noise))
    values = {}
    for r in read_rows(tmp_path / "out/results.jsonl"):
        values[r.name, r.metric, r.condition] = r.value
    measures = {("units", "unit_error"), ("dual", "ff1"), ("cascade-ctc", "ff1")}
    measures.add(("cascade-ctc", "wer"))
    assert set(values) == {(*m, c) for m in measures for c in ("clean", "seen-pink")}
    assert values["units", "unit_error", "clean"] == 0
    assert values["units", "unit_error", "seen-pink"] > 0
    assert "What DUAL and the cascade keep of their clean FF1" in text


# ---- what noise costs

CLEAN = Setting("clean", parse_condition("clean"))
SEEN, UNSEEN = (Setting(group, parse_condition("pink@5")) for group in ("seen", "unseen"))
LOUD = Setting("unseen", parse_condition("pink@0"))


def make_items(score, n=100):
    """Make n items with this mean score: some have 1, in random places, the others 0."""
    are_right = np.random.default_rng(5).permutation(n) < round(score * n)
    return [ItemScore(f"i{i}", f"i{i}", float(right), 1.0) for i, right in enumerate(are_right)]


def make_grid(scores, resamples=200):
    """Make a grid. scores: (task, metric, encoder) -> setting -> score."""
    cells, units = {}, {}
    for (task, metric, encoder), by_setting in scores.items():
        units[task, metric] = "recording"
        for setting, score in by_setting.items():
            cells[(task, metric), encoder, setting] = make_items(score)
    return Grid(cells, units, seed=0, resamples=resamples)


EXAMPLE = {
    ("ks", "acc", "base"): {CLEAN: 0.90, SEEN: 0.60, UNSEEN: 0.50},
    ("ks", "acc", "new"): {CLEAN: 0.85, SEEN: 0.80, UNSEEN: 0.75},
    ("asr", "wer", "base"): {CLEAN: 0.10, SEEN: 0.40, UNSEEN: 0.50},
    ("asr", "wer", "new"): {CLEAN: 0.20, SEEN: 0.25, UNSEEN: 0.30},
    ("units", "unit_error", "base"): {CLEAN: 0.0, SEEN: 0.50, UNSEEN: 0.80},
    ("units", "unit_error", "new"): {CLEAN: 0.0, SEEN: 0.25, UNSEEN: 0.40},
}
KS, ASR, UNITS = ("ks", "acc"), ("asr", "wer"), ("units", "unit_error")


def test_losses_and_shares_by_hand():
    grid = make_grid(EXAMPLE)
    assert grid.measure_loss(KS, "base", UNSEEN).value == pytest.approx(40)
    assert grid.measure_loss(ASR, "base", UNSEEN).value == pytest.approx(40)
    assert grid.measure_gain(ASR, "new", UNSEEN).value == pytest.approx(20)
    # it loses 10 points of its own 85, where the baseline loses 40
    assert grid.measure_removed(KS, "new", UNSEEN).value == pytest.approx(75)
    # it is 15 points below the baseline's 90 in clean speech, where the baseline loses 40
    assert grid.measure_recovered(KS, "new", UNSEEN).value == pytest.approx(62.5)
    assert grid.measure_removed(ASR, "new", UNSEEN).value == pytest.approx(75)
    assert grid.measure_recovered(ASR, "new", UNSEEN).value == pytest.approx(50)


def average_in_unseen_noise(scores):
    """Return the averages of the encoder "new" in unseen noise, and the note of their table."""
    values = measure_degradation(make_grid(scores))
    (averages,) = [
        a for a in values["averages"] if a["encoder"] == "new" and a["group"] == "unseen"
    ]
    loss_table, *_ = make_degradation_tables(values)
    return averages, loss_table.note


def add_task(base_noisy):
    """Add a third task to EXAMPLE, in which both encoders score 0.7 in clean speech; in unseen noise
    the baseline scores so much, and the other encoder 0.67."""
    scores = dict(EXAMPLE)
    for encoder, score in (("base", base_noisy), ("new", 0.67)):
        scores["sid", "acc", encoder] = {CLEAN: 0.7, SEEN: 0.5, UNSEEN: score}
    return scores


def test_averages_give_every_task_the_same_weight_however_little_the_baseline_loses():
    # the baseline loses 1 point in the third task, the other encoder 3
    averages, _ = average_in_unseen_noise(add_task(base_noisy=0.69))
    assert averages["unhurt"] == []
    assert averages["removed"]["value"] == pytest.approx((75 + 75 - 200) / 3)
    assert averages["recovered"]["value"] == pytest.approx((62.5 + 50 - 200) / 3)
    assert averages["loss"]["value"] == pytest.approx((10 + 10 + 3) / 3)


def test_shares_are_not_averaged_where_the_baseline_loses_nothing_in_a_task():
    averages, note = average_in_unseen_noise(add_task(base_noisy=0.7))
    assert averages["removed"] is None
    assert averages["recovered"] is None
    assert averages["unhurt"] == ["sid acc"]
    assert "not defined: sid acc." in note


def test_an_encoder_that_collapsed_gains_nothing_by_its_units():
    """Its units are the same in any noise, which is no error against its own clean speech; but it
    classifies nothing."""
    collapsed = EXAMPLE | {("units", "unit_error", "new"): {CLEAN: 0.0, SEEN: 0.0, UNSEEN: 0.0}}
    collapsed |= {("ks", "acc", "new"): {CLEAN: 0.1, SEEN: 0.1, UNSEEN: 0.1}}
    assert make_grid(collapsed).measure_removed(UNITS, "new", UNSEEN).value == pytest.approx(100)
    with_units, _ = average_in_unseen_noise(collapsed)
    without_units, _ = average_in_unseen_noise(
        {key: scores for key, scores in collapsed.items() if key[0] != "units"}
    )
    for name in ("removed", "recovered", "loss"):
        assert with_units[name] == without_units[name]


def test_a_grid_of_units_alone_has_no_averages():
    only_units = {key: scores for key, scores in EXAMPLE.items() if key[0] == "units"}
    values = measure_degradation(make_grid(only_units))
    assert values["averages"] == []
    assert values["clean"] == []


def test_the_gain_in_clean_speech_is_the_mean_over_tasks_without_units():
    gain = measure_clean_gain(make_grid(EXAMPLE), "new")
    assert gain["gain"]["value"] == pytest.approx((-5 - 10) / 2)
    assert gain["worst"]["task"] == "asr wer"
    assert gain["worst"]["value"] == pytest.approx(-10)
    # a baseline without errors in clean speech hides no loss there
    perfect = EXAMPLE | {("asr", "wer", "base"): {CLEAN: 0.0, SEEN: 0.40, UNSEEN: 0.50}}
    gain = measure_clean_gain(make_grid(perfect), "new")
    assert gain["worst"]["value"] == pytest.approx(-20)
    assert gain["gain"]["value"] == pytest.approx((-5 - 20) / 2)


def test_a_cascade_is_compared_with_dual_and_is_no_task_of_the_average():
    grid = make_grid(
        {
            ("dual", "ff1", "base"): {CLEAN: 0.50, UNSEEN: 0.40, LOUD: 0.30},
            ("dual", "ff1", "new"): {CLEAN: 0.50, UNSEEN: 0.45, LOUD: 0.40},
            ("cascade-ctc", "ff1", "base"): {CLEAN: 0.80, UNSEEN: 0.40, LOUD: 0.20},
            ("cascade-ctc", "ff1", "new"): {CLEAN: 0.80, UNSEEN: 0.60, LOUD: 0.40},
        }
    )
    assert grid.averaged == [("dual", "ff1")]
    comparisons = compare_with_cascade(grid)
    assert len(comparisons) == 6  # two SNRs and their mean, for two encoders
    (mean,) = [c for c in comparisons if c["encoder"] == "new" and c["snr_db"] is None]
    # percent of their clean FF1 that DUAL and the cascade keep
    assert mean["difference"]["value"] == pytest.approx((90 + 80) / 2 - (75 + 50) / 2)
    *_, table = make_degradation_tables(measure_degradation(grid))
    new_at_5_db = table.rows[3]
    values = [text.split()[0] for text in new_at_5_db[4:]]
    assert values == ["90.0", "75.0", "+15.0"]


# ---- properties

score = st.integers(1, 99).map(lambda percent: percent / 100)


@given(base_clean=score, base_noisy=score, new_clean=score, new_noisy=score)
def test_shares_agree_where_both_are_equally_good_in_clean_speech(
    base_clean, base_noisy, new_clean, new_noisy
):
    """The equations are those of the docstring of `degradation`; `sign` is its o."""
    assume(base_clean != base_noisy)
    metric, sign = ("acc", 1) if base_clean > base_noisy else ("wer", -1)
    task = ("t", metric)
    scores = {
        (*task, "base"): {CLEAN: base_clean, SEEN: base_noisy},
        (*task, "new"): {CLEAN: new_clean, SEEN: new_noisy},
    }
    grid = make_grid(scores, resamples=20)
    base_loss = abs(base_clean - base_noisy)
    removed = grid.measure_removed(task, "new", SEEN).value
    recovered = grid.measure_recovered(task, "new", SEEN).value
    assert removed - recovered == pytest.approx(100 * sign * (base_clean - new_clean) / base_loss)
    assert recovered == pytest.approx(100 * sign * (new_noisy - base_noisy) / base_loss)
    assert recovered >= 0 or grid.measure_gain(task, "new", SEEN).value < 0
    loss = grid.measure_loss(task, "new", SEEN).value
    assert loss == pytest.approx(100 * sign * (new_clean - new_noisy))
