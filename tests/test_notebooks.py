"""The notebooks run from their first cell to the last in an empty folder, and show their results;
`make smoke` runs all of them."""

import os
import sys
from pathlib import Path

import pytest

nbclient = pytest.importorskip("nbclient", reason="needs speechssl[notebooks,dev]")
nbformat = pytest.importorskip("nbformat")
FOLDER = Path(__file__).parents[1] / "docs/notebooks"
# notebook -> (a part of a cell's source, a part of what it must output)
OUTPUTS = {
    "dual_in_20_lines": [
        ("table.round(2)", "mean F1 of the time spans"),
        ("    Audio(", "audio"),
        ("cascade.transcribe", " s"),
    ],
    "robustness_of_two_encoders": [
        ("pandas.DataFrame(scores)", "AUC, same word"),
        ("axes.legend()", "image/png"),
    ],
    "units_of_a_folder": [
        ("scan_parquet", "num_rows"),
        ("axes.axvspan", "image/png"),
        ("normalized_distance", "->"),
    ],
}


def test_every_notebook_is_tested():
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == set(OUTPUTS)


long = pytest.mark.skipif(not os.environ.get("SMOKE"), reason="a minute: make smoke")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "dual_in_20_lines",
        pytest.param("robustness_of_two_encoders", marks=long),
        pytest.param("units_of_a_folder", marks=long),
    ],
)
def test_a_notebook_runs_from_its_first_cell_to_the_last(name, tmp_path, monkeypatch):
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(FOLDER.parents[1]), os.environ.get("PYTHONPATH", "")])
    )
    # cells run `speechssl`
    monkeypatch.setenv(
        "PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    )
    for variable in ("JUPYTER_CONFIG_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(variable, str(tmp_path / "settings"))
    empty = tmp_path / "empty"
    empty.mkdir()
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", 4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for cell in cells:
        cell.outputs = []
    resources = {"metadata": {"path": str(empty)}}
    nbclient.NotebookClient(notebook, timeout=300, resources=resources).execute()
    for source, output in OUTPUTS[name]:
        (cell,) = [cell for cell in cells if source in cell.source]
        assert output in str(cell.outputs), source
    for cell in cells:
        for output in cell.outputs:
            text = str(output.get("text"))
            assert "speechssl: " not in text  # no fault and no remark
            assert "Warning" not in text
