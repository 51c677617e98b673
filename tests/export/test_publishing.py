"""A version appears whole or not at all, whatever happens to the export: full disks, read-only
folders, kills, ..."""

import json
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import sys

import pytest
from command_line import run_command
from fresh_process import run_python
from session_mode import SavedModelSession
from training_runs import drop_privilege

from keras_transformer.commands.main import main
from keras_transformer.errors import ConfigError
from keras_transformer.export.publishing import publish
from keras_transformer.export.servable import export_servable
from keras_transformer.export.warmup import write_warmup_requests
from keras_transformer.translation import Translator

TRIALS = pathlib.Path(__file__).with_name("publish_trials.py")

# The command, whose SavedModel is verified by a program that kills it.
KILLED_WHILE_VERIFYING = """
import pathlib, sys
from keras_transformer.commands.main import main
from keras_transformer.export import proof
proof._PROGRAM = pathlib.Path(sys.argv.pop(1))
main(sys.argv[1:])
"""


def content(path):
    return {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}


def run_trials(folder, fault):
    *disturbed, undisturbed = json.loads(run_python(TRIALS, folder, fault))
    assert undisturbed["status"] == 0 and undisturbed["left"] == ["1", "README.md"]
    return disturbed


@pytest.mark.slow
@pytest.mark.parametrize("fault, status", [("kill", -signal.SIGKILL), ("full", 28)])
def test_at_whatever_instant_an_export_breaks_off_no_half_version_appears(tmp_path, fault, status):
    disturbed = run_trials(tmp_path, fault)
    assert len(disturbed) > 30 and {trial["status"] for trial in disturbed} == {status}
    published = [[name for name in trial["left"] if name.isdigit()] for trial in disturbed]
    # Also just before the version appears.
    assert any(
        "README.md" in each["left"] for each, versions in zip(disturbed, published) if not versions
    ) == (fault == "kill")
    # The last thing that is written is the name of the version.
    assert (
        published[0] == []
        and published[-1] == (["1"] if fault == "kill" else [])
        and published == sorted(published)
    )
    for each, versions in zip(disturbed, published):
        others = [name for name in each["left"] if name not in (*versions, "README.md")]
        if fault == "full":
            assert others == []
        else:
            assert all(name.startswith(".writing-") for name in others)
        # The next export removes what was left.
        assert each["then"] == [*versions, str(len(versions) + 1), "README.md"]


@pytest.mark.slow
def test_an_export_that_is_killed_while_it_verifies_publishes_nothing(tiny_model_dir, tmp_path):
    killer, output = tmp_path / "killer.py", tmp_path / "servable"
    killer.write_text(f"import os; os.kill(os.getppid(), {int(signal.SIGKILL)})")
    finished = subprocess.run(
        [
            *(
                sys.executable,
                "-c",
                KILLED_WHILE_VERIFYING,
                str(killer),
                "export",
                "--signatures",
                "detokenize",
            ),
            *("--model-dir", str(tiny_model_dir), "--output", str(output)),
        ],
        capture_output=True,
    )
    assert finished.returncode == -signal.SIGKILL, finished.stderr.decode()
    (left,) = output.iterdir()
    # TensorFlow Serving ignores what is not a number.
    assert left.name.startswith(".writing-") and (left / "saved_model.pb").exists()
    translator = Translator.load(tiny_model_dir)
    path = export_servable(translator, output, signatures=["detokenize"], verified=False)
    assert sorted(output.iterdir()) == [path, output / "README.md"] and path.name == "1"
    model = SavedModelSession(path)
    assert model("detokenize", {"token_id": [[0]]})["text"].tolist() == [b""]
    model.close()


def test_warm_up_requests_that_do_not_fit_on_the_disk_are_an_error(
    tiny_model_dir, tmp_path, limit_file_sizes
):
    translator = Translator.load(tiny_model_dir)

    def write_to_full_disk(*arguments):
        limit_file_sizes(100)
        write_warmup_requests(*arguments)

    with (
        pytest.MonkeyPatch.context() as monkeypatch,
        pytest.raises(OSError, match="the SavedModel cannot be written"),
    ):
        monkeypatch.setattr(
            "keras_transformer.export.servable.write_warmup_requests", write_to_full_disk
        )
        export_servable(
            translator, tmp_path / "servable", signatures=["detokenize"], verified=False
        )
    limit_file_sizes(resource.RLIM_INFINITY)
    assert list((tmp_path / "servable").iterdir()) == []


@pytest.mark.slow
def test_a_read_only_folder_is_named(tiny_model_dir, tmp_path):
    output = tmp_path / "servable"
    (output / "1").mkdir(parents=True)
    output.chmod(0o555)
    arguments = (
        "export",
        "--signatures",
        "detokenize",
        "--model-dir",
        tiny_model_dir,
        "--output",
        output,
    )
    finished = run_command(*arguments, text=True, preexec_fn=drop_privilege)
    output.chmod(0o755)
    assert finished.returncode == 1
    assert finished.stderr.splitlines()[1:] == [
        f"keras-transformer export: error: {output}/2: Permission denied"
    ]
    assert [path.name for path in output.iterdir()] == ["1"]


def test_versions_go_up(tmp_path):
    (tmp_path / "9-old").mkdir()
    assert [
        publish(tmp_path, version, lambda path: None).name for version in (None, None, 10, None)
    ] == [*("1", "2", "10", "11")]
    with pytest.raises(ConfigError, match="version must be positive; received version=0"):
        publish(tmp_path, 0, lambda path: None)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "10", "11", "2", "9-old"]


def test_a_version_that_exists_stays_as_it_is(tmp_path):
    def write(directory):
        (directory / "saved_model.pb").write_text("second")

    (tmp_path / "3").mkdir()
    (tmp_path / "3" / "saved_model.pb").write_text("first")
    before = content(tmp_path)
    with pytest.raises(ConfigError, match="3: this version already exists"):
        publish(tmp_path, 3, write)
    assert content(tmp_path) == before

    def write_while_another_does(directory):
        write(directory)
        shutil.copytree(tmp_path / "3", tmp_path / "4")

    with pytest.raises(ConfigError, match="4: this version already exists"):
        publish(tmp_path, 4, write_while_another_does)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["3", "4"]
    assert (tmp_path / "4" / "saved_model.pb").read_text() == "first"


def test_the_card_beside_the_versions_is_that_of_the_last_and_appears_before_it(
    tmp_path, monkeypatch
):
    beside = tmp_path / "README.md"

    def publish_card(text, version=None):
        return publish(
            tmp_path,
            version,
            lambda path: (path / "card.md").write_text(text),
            pathlib.PurePath("card.md"),
        )

    def card_of(version):
        return (
            f"# A\n\nThis is the card of version {version}. Each version has its own: "
            f"`card.md`.\n\nText.\n"
        )

    path = publish_card("# A\n\nText.\n")
    assert (path / "card.md").read_text() == "# A\n\nText.\n" and beside.read_text() == card_of(1)
    publish_card("# A\n\nText.\n", version=7)
    assert beside.read_text() == card_of(7)

    def fail_to_rename(path, target):
        if target.name == "8":
            assert (
                beside.read_text()
                == "# B\n\nThis is the card of version 8. Each version has its own: `card.md`.\n"
            )
            raise OSError(28, "No space left on device")
        os.rename(path, target)

    monkeypatch.setattr("keras_transformer.export.publishing.rename", fail_to_rename)
    with pytest.raises(OSError, match="No space left"):
        publish_card("# B\n")
    assert beside.read_text() == card_of(7)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "7", "README.md"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, damage",
    [
        ("config.yaml", lambda content: content[: len(content) // 2] + b"\0"),
        ("tokenizer.model", lambda content: content[:-100]),
        ("best.weights.h5", lambda content: content[: len(content) // 2]),
        ("best.weights.h5", lambda content: b""),
    ],
)
def test_of_a_damaged_model_directory_nothing_is_exported(
    tiny_model_dir, tmp_path, capsys, name, damage
):
    path = shutil.copytree(tiny_model_dir, tmp_path / "model") / name
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(SystemExit) as stopped:
        main(["export", "--model-dir", str(path.parent), "--output", str(tmp_path / "servable")])
    assert stopped.value.code == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"keras-transformer export: error: {path}: ")
    assert not (tmp_path / "servable").exists()
