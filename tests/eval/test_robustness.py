"""The grid from the command line: what is left in a folder, what is done again; what noise costs:
by hand, and its properties."""

import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
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


def test_conditions_without_an_snr_of_their_own_stand_at_every_one():
    found = list_settings(("m+g+r", "reverb@0.6"), ("held-out", "pink@7", "reverb"), (5.0, 0.0))
    assert [s.label for s in found] == [
        *("clean", "seen-m+g+r 5 dB", "seen-m+g+r 0 dB", "seen-reverb 0.6 s"),
        *("unseen-held-out 5 dB", "unseen-held-out 0 dB", "unseen-pink 7 dB", "unseen-reverb"),
    ]
    # and the noise at the end of a chain
    chains = ("reverb@0.9+kitchen.wav", "pitch@-2+m+g+r", "a@b/bus.wav")
    found = list_settings((), chains, (5.0,))
    assert [s.condition.text for s in found[1:]] == [f"{chain}@5" for chain in chains]


# ---- the whole


def options(folder, encoders, tasks, **more):
    encoders, tasks = (tuple(f"{k}={v}" for k, v in some.items()) for some in (encoders, tasks))
    return Robustness(out=folder / "out", encoders=encoders, tasks=tasks, **more)


def run(plan):
    """Run a grid of tasks whose tolerance depends on the encoder's name; return what is printed."""

    def make_tasks(name, tested, data, out, o):
        assert out == plan.out / "heads" / tested.name / name
        metric, tolerance = "wer" if name == "asr" else "acc", 0.05 * (tested.name == "better")
        return [RoughnessTask(sorted(data.glob("*.flac")), tolerance, name, metric)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(robustness, "make_tasks", make_tasks)
        return run_robustness(plan)


@pytest.fixture(scope="module")
def base(tmp_path_factory, hubert_folder):
    """A grid that has been run: its folder, its options, and what was printed."""
    folder = tmp_path_factory.mktemp("grid")
    audio = folder / "audio"
    write_recordings(audio, count=9)
    encoders = dict.fromkeys(("baseline", "better"), str(hubert_folder("layer")))
    noise = Noisy(seen=("pink",), unseen=("gaussian",), snr=(10.0, 5.0))
    plan = options(folder, encoders, {"ks": audio, "asr": audio}, noise=noise)
    return SimpleNamespace(folder=folder, plan=plan, text=run(plan))


@pytest.fixture
def plan(tmp_path, base):
    """The same, to be run for the first time."""
    return replace(base.plan, out=tmp_path / "out")


def test_the_whole_grid(base, plan):
    out = plan.out
    shutil.copytree(base.folder / "out", out)
    rows = read_rows(out / "results.jsonl")
    assert len(rows) == 2 * 2 * 5
    assert {r.encoder for r in rows} == {"baseline", "better"}
    conditions = {("clean", None), ("seen-pink", 5.0), ("unseen-gaussian", 10.0)}
    assert {(r.condition, r.snr_db) for r in rows} >= conditions
    assert (out / "scores/baseline/ks-acc/unseen-gaussian-5-dB.parquet").is_file()
    assert "unseen 5 dB" in base.text
    values = read_json(out / "degradation.json")
    assert (values["baseline"], len(values["averages"])) == ("baseline", 8)
    assert {line["utterance"] for line in read_lines(out / "noise.jsonl")} == {
        f"u{i}" for i in range(9)
    }
    # the same command again changes nothing
    before = contents(out)
    with untouched(out / "scores"):
        assert run(plan) == base.text
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
def test_bad_plans_are_refused_before_anything_is_made(plan, change, message):
    refused(message, lambda: run_robustness(replace(plan, **change)))
    assert not plan.out.exists()


@pytest.mark.slow
def test_the_shipped_models_go_through_the_grid(tmp_path, corpus):  # noqa: F811
    """Units, DUAL and the cascade share an encoder, and a manifest without labels gives units."""
    (tmp_path / "own.txt").write_text(f"{corpus}/test/audio/p0.flac\n{corpus}/test/audio/q0.flac\n")
    tasks = {"units": tmp_path / "own.txt", "dual": corpus, "cascade-ctc": corpus}
    noise = Noisy(seen=("pink",), unseen=(), snr=(5.0,))
    text = run_robustness(options(tmp_path, {"baseline": "people-en"}, tasks, noise=noise))
    found = {}
    for r in read_rows(tmp_path / "out/results.jsonl"):
        found[r.name, r.metric, r.condition] = r.value
    systems = {("units", "unit_error"), ("dual", "ff1"), ("cascade-ctc", "ff1")}
    systems.add(("cascade-ctc", "wer"))
    assert set(found) == {(*s, c) for s in systems for c in ("clean", "seen-pink")}
    assert found["units", "unit_error", "clean"] == 0 < found["units", "unit_error", "seen-pink"]
    assert "What DUAL and the cascade keep of their clean FF1" in text


CLEAN = Setting("clean", parse_condition("clean"))
SEEN, UNSEEN = (Setting(group, parse_condition("pink@5")) for group in ("seen", "unseen"))
LOUD = Setting("unseen", parse_condition("pink@0"))


def items(value, n=100):
    """A share `value` of n items has the numerator 1, spread over them by a fixed shuffle."""
    ones = np.random.default_rng(5).permutation(n) < round(value * n)
    return [ItemScore(f"i{i}", f"i{i}", float(x), 1.0) for i, x in enumerate(ones)]


def grid_of(values, resamples=200):
    """values: (task, metric, encoder) -> {setting: score}."""
    cells, units = {}, {}
    for (task, metric, encoder), line in values.items():
        units[task, metric] = "recording"
        for setting, value in line.items():
            cells[(task, metric), encoder, setting] = items(value)
    return Grid(cells, units, 0, resamples)


EXAMPLE = {
    ("ks", "acc", "base"): {CLEAN: 0.90, SEEN: 0.60, UNSEEN: 0.50},
    ("ks", "acc", "new"): {CLEAN: 0.85, SEEN: 0.80, UNSEEN: 0.75},
    ("asr", "wer", "base"): {CLEAN: 0.10, SEEN: 0.40, UNSEEN: 0.50},
    ("asr", "wer", "new"): {CLEAN: 0.20, SEEN: 0.25, UNSEEN: 0.30},
    ("units", "unit_error", "base"): {CLEAN: 0.0, SEEN: 0.50, UNSEEN: 0.80},
    ("units", "unit_error", "new"): {CLEAN: 0.0, SEEN: 0.25, UNSEEN: 0.40},
}
KS, ASR, UNITS = ("ks", "acc"), ("asr", "wer"), ("units", "unit_error")


def test_by_hand():
    grid = grid_of(EXAMPLE)
    assert grid.loss(KS, "base", UNSEEN).value == pytest.approx(40)
    assert grid.loss(ASR, "base", UNSEEN).value == pytest.approx(40)
    assert grid.gain(ASR, "new", UNSEEN).value == pytest.approx(20)
    # loses 10 of its own 85, where the baseline loses 40
    assert grid.removed(KS, "new", UNSEEN).value == pytest.approx(75)
    # 15 below the baseline's 90
    assert grid.recovered(KS, "new", UNSEEN).value == pytest.approx(62.5)
    assert grid.removed(ASR, "new", UNSEEN).value == pytest.approx(75)
    assert grid.recovered(ASR, "new", UNSEEN).value == pytest.approx(50)


def averages_in_unseen_noise(values):
    found = measure_degradation(grid_of(values))
    (line,) = [a for a in found["averages"] if a["encoder"] == "new" and a["group"] == "unseen"]
    return line, make_degradation_tables(found)[0]


def test_averages_give_every_task_the_same_weight_and_leave_out_none():
    def averaged_with(base, new):
        """base, new: their scores in clean speech and in unseen noise in one more task."""
        scores = (("base", base), ("new", new))
        more = {("sid", "acc", e): {CLEAN: a, SEEN: 0.5, UNSEEN: b} for e, (a, b) in scores}
        return averages_in_unseen_noise(EXAMPLE | more)

    # the baseline loses 1 point, for which nobody could vouch
    line, table = averaged_with((0.7, 0.69), (0.7, 0.67))
    assert line["unhurt"] == []
    assert line["removed"]["value"] == pytest.approx((75 + 75 - 200) / 3)
    assert line["recovered"]["value"] == pytest.approx((62.5 + 50 - 200) / 3)
    assert line["loss"]["value"] == pytest.approx(23 / 3)
    line, table = averaged_with((0.7, 0.7), (0.7, 0.67))  # it loses nothing
    assert (line["removed"], line["recovered"], line["unhurt"]) == (None, None, ["sid acc"])
    assert "not defined: sid acc." in table.note


def test_an_encoder_that_collapsed_gains_nothing_by_its_units():
    """Its units are the same in any noise: 0 errors against its own clean speech, and no answer
    anywhere."""
    collapsed = EXAMPLE | {("units", "unit_error", "new"): {CLEAN: 0.0, SEEN: 0.0, UNSEEN: 0.0}}
    collapsed |= {("ks", "acc", "new"): {CLEAN: 0.1, SEEN: 0.1, UNSEEN: 0.1}}
    assert grid_of(collapsed).removed(UNITS, "new", UNSEEN).value == pytest.approx(100)
    with_units, _ = averages_in_unseen_noise(collapsed)
    without, _ = averages_in_unseen_noise({k: x for k, x in collapsed.items() if k[0] != "units"})
    for name in ("removed", "recovered", "loss"):
        assert with_units[name] == without[name]
    # there is nothing else to average over
    found = measure_degradation(grid_of({k: x for k, x in EXAMPLE.items() if k[0] == "units"}))
    assert found["averages"] == found["clean"] == []


def test_clean_speech_tells_the_mean_and_the_worst_task_and_no_units():
    found = measure_clean_gain(grid_of(EXAMPLE), "new")
    assert found["gain"]["value"] == pytest.approx(-7.5)
    assert found["worst"]["task"] == "asr wer"
    assert found["worst"]["value"] == pytest.approx(-10)
    # a baseline without errors in clean speech hides no loss there
    perfect = EXAMPLE | {("asr", "wer", "base"): {CLEAN: 0.0, SEEN: 0.40, UNSEEN: 0.50}}
    found = measure_clean_gain(grid_of(perfect), "new")
    assert found["worst"]["value"] == pytest.approx(-20)
    assert found["gain"]["value"] == pytest.approx((-5 - 20) / 2)


def test_a_cascade_is_compared_with_dual_and_is_no_task_of_the_average():
    grid = grid_of(
        {
            ("dual", "ff1", "base"): {CLEAN: 0.50, UNSEEN: 0.40, LOUD: 0.30},
            ("dual", "ff1", "new"): {CLEAN: 0.50, UNSEEN: 0.45, LOUD: 0.40},
            ("cascade-ctc", "ff1", "base"): {CLEAN: 0.80, UNSEEN: 0.40, LOUD: 0.20},
            ("cascade-ctc", "ff1", "new"): {CLEAN: 0.80, UNSEEN: 0.60, LOUD: 0.40},
        }
    )
    assert grid.averaged == [("dual", "ff1")]
    lines = compare_with_cascade(grid)
    assert len(lines) == 6  # two SNRs and their mean, for two encoders
    means = {x["encoder"]: x["difference"]["value"] for x in lines if x["snr_db"] is None}
    assert means["new"] == pytest.approx((90 + 80) / 2 - (75 + 50) / 2)
    (table,) = (
        t for t in make_degradation_tables(measure_degradation(grid)) if "keep of" in t.title
    )
    starts = [text.split()[0] for text in table.rows[3][4:]]
    assert starts == ["90.0", "75.0", "+15.0"]


# ---- properties

share = st.integers(1, 99).map(lambda x: x / 100)


@given(share, share, share, share)
def test_shares_agree_where_clean_speech_does_and_end_where_they_should(clean, noisy, mine, other):
    metric, o = ("acc", 1) if clean >= noisy else ("wer", -1)
    if clean == noisy:
        return
    values = {
        ("t", metric, "base"): {CLEAN: clean, SEEN: noisy},
        ("t", metric, "new"): {CLEAN: mine, SEEN: other},
    }
    grid, task = grid_of(values, 20), ("t", metric)
    own = grid.removed(task, "new", SEEN).value
    base = grid.recovered(task, "new", SEEN).value
    assert own - base == pytest.approx(100 * o * (clean - mine) / abs(clean - noisy))
    assert base == pytest.approx(100 * o * (other - noisy) / abs(clean - noisy))
    assert base >= 0 or grid.gain(task, "new", SEEN).value < 0
    assert grid.loss(task, "new", SEEN).value + o * 100 * (other - mine) == pytest.approx(0)
