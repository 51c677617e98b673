"""The picture of training runs: its curves are the numbers of the logs."""

import json
import re

import pytest

from keras_transformer.commands.main import main
from keras_transformer.config import Config, TransformerConfig
from keras_transformer.errors import InvalidFileError
from keras_transformer.model_dir import ModelDir
from keras_transformer.training.curves import training_figure, training_page

LOG = """epoch,learning_rate,loss,step,val_accuracy,val_bleu,val_chrf,val_loss,val_perplexity
0,0.002,6.5,50,0.125,,,6.25,400.0
1,0.001,5.5,100,0.25,1.75,9.5,5.25,150.0
"""
LOG_WITHOUT_BLEU = (
    "epoch,learning_rate,loss,step,val_loss,val_perplexity\n0,0.004,7.5,30,7.25,900.0\n"
)


def run_dir(path, log):
    path.mkdir()
    model_dir = ModelDir(path)
    model_dir.write_config(Config(TransformerConfig(source_vocab_size=10, target_vocab_size=10)))
    if log is not None:
        model_dir.log_path.write_text(log)
    return path


def curves(figure):
    """The points of each line of each panel, without what was not measured."""
    return {
        panel.get_title(): [
            [(x, y) for x, y in zip(*line.get_data()) if y == y]  # NaN differs from itself.
            for line in panel.lines
        ]
        for panel in figure.axes
    }


def test_the_curves_are_the_numbers_of_the_logs(tmp_path):
    figure = training_figure(
        [run_dir(tmp_path / "_a$b$", LOG), run_dir(tmp_path / "c", LOG_WITHOUT_BLEU)]
    )
    assert curves(figure) == {
        "loss (dashed: of training)": [
            [(50, 6.5), (100, 5.5)],
            [(50, 6.25), (100, 5.25)],
            [(30, 7.5)],
            [(30, 7.25)],
        ],
        "perplexity": [[(50, 400), (100, 150)], [(30, 900)]],
        "BLEU (dashed: chrF)": [[(100, 1.75)], [(100, 9.5)], [], []],
        "learning rate": [[(50, 0.002), (100, 0.001)], [(30, 0.004)]],
    }
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        str(tmp_path / "_a$b$"),
        str(tmp_path / "c"),
    ]
    for panel in figure.axes:
        colors = [line.get_color() for line in panel.lines]
        assert len(set(colors)) == 2 and colors == sorted(colors)


def test_what_no_run_has_measured_gets_no_panel(tmp_path):
    figure = training_figure([run_dir(tmp_path / "a", LOG_WITHOUT_BLEU)])
    assert [*curves(figure)] == ["loss (dashed: of training)", "perplexity", "learning rate"]


def test_the_page_has_the_numbers_of_the_logs(tmp_path):
    hostile = run_dir(tmp_path / "<script>", LOG + "2,0.001,inf,150,0.5,,,4.0,90.0\n")
    page = training_page([hostile, run_dir(tmp_path / "c", LOG_WITHOUT_BLEU)])
    data = json.loads(
        re.search(r'<script type="application/json" id="data">(.*)</script>', page)[1]
    )
    assert data["runs"] == [str(hostile), str(tmp_path / "c")]
    assert {
        panel["title"]: [curve["points"] for curve in panel["curves"]] for panel in data["panels"]
    } == {
        "loss (dashed: of training)": [
            [[50, 6.5], [100, 5.5]],
            [[50, 6.25], [100, 5.25], [150, 4]],
            [[30, 7.5]],
            [[30, 7.25]],
        ],
        "perplexity": [[[50, 400], [100, 150], [150, 90]], [[30, 900]]],
        "BLEU (dashed: chrF)": [[[100, 1.75]], [[100, 9.5]]],
        "learning rate": [[[50, 0.002], [100, 0.001], [150, 0.001]], [[30, 0.004]]],
    }
    assert page.count("http") == page.count("http://www.w3.org/2000/svg") + page.count("http-equiv")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, start",
    [("a.png", b"\x89PNG"), ("a.SVG", b"<?xml"), ("a.pdf", b"%PDF"), ("a.html", b"<!doctype")],
)
def test_the_command_writes_a_picture(name, start, tmp_path, capsys):
    # The name of the second is not UTF-8.
    first, second = run_dir(tmp_path / "_$x$", LOG), run_dir(tmp_path / "b\udcff", LOG_WITHOUT_BLEU)
    main(["plot", "--model-dir", str(first), str(second), "--output", str(tmp_path / name)])
    assert (tmp_path / name).read_bytes().startswith(start)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    "log, message",
    [
        ("", "log.csv: the log has no validation yet"),
        (LOG.splitlines()[0], "log.csv: the log has no validation yet"),
        (
            LOG + "2,x,4.5,150,0.5,2,9,4,100\n",
            "log.csv: line 4 of the training log must contain only numbers",
        ),
        (
            LOG + "2,0.1,4.5,150,0.5,2,9,4,100,9\n",
            "log.csv: line 4 of the training log must contain only numbers",
        ),
        (LOG + "2,0.1\n", r"log.csv: not a training log \(a line has no step or no val_loss\)"),
        (b"\xff\n1\n", "log.csv: line 0 of the training log must"),
    ],
)
def test_a_damaged_log_is_named(log, message, tmp_path):
    path = run_dir(tmp_path / "a", "")
    (path / "log.csv").write_bytes(log if isinstance(log, bytes) else log.encode())
    with pytest.raises(InvalidFileError, match=message):
        training_figure([path])


@pytest.mark.parametrize(
    "options, message",
    [
        (
            ["absent", "--output", "a.png"],
            "absent: not a model directory (it has no config.yaml); create one with",
        ),
        (["a", "imported", "--output", "a.png"], "imported: no training log (it has no log.csv)"),
        (
            ["a", "--output", "a.gif"],
            "--output must be a file ending in .png, .svg, .pdf or .html; received",
        ),
        (
            ["a/log.csv", "--output", "a.png"],
            "--model-dir must be a directory; received --model-dir='a/log.csv'",
        ),
    ],
)
def test_a_mistake_is_one_line(options, message, fails, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_dir(tmp_path / "a", LOG), run_dir(tmp_path / "imported", None)
    assert fails("plot", "--model-dir", *options).startswith(
        f"keras-transformer plot: error: {message}"
    )
    assert {path.name for path in tmp_path.iterdir()} == {"a", "imported"}
