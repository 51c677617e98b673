"""Tests of what pip installs: files, commands, and what runs inside a clone."""

import collections
import configparser
import pathlib
import sys
import tarfile
import venv
import zipfile

import pytest
from fresh_process import run_python

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def distributions(tmp_path_factory):
    """Folder with an sdist and the wheel that was built from it, as for a release."""
    directory = tmp_path_factory.mktemp("distributions")
    run_python("-m", "build", "--outdir", directory, ROOT)
    return directory


@pytest.fixture(scope="module")
def plain_install(distributions, tmp_path_factory):
    """Folder of an environment with the wheel, and with this environment's other packages.

    An editable install of this environment is not in it: Python reads .pth files only in the
    environment's own folder.
    """
    environment = tmp_path_factory.mktemp("environment")
    venv.create(environment, symlinks=True)
    (site,) = environment.glob("lib/python*/site-packages")
    others = [path for path in sys.path if path.endswith("site-packages")]
    (site / "others.pth").write_text("\n".join(others))
    (wheel,) = distributions.glob("*.whl")
    run_python("-m", "pip", "install", "--quiet", "--no-deps", "--target", site, wheel)
    return environment


def files_of_the_package():
    """The names that the files of the package should have in an archive."""
    folders = {
        "keras_transformer": "keras_transformer",
        "training": "keras_transformer/training",
        "export": "keras_transformer/export",
    }
    # `**` does not follow the links from keras_transformer to the other two folders.
    return {
        f"{installed}/{path.relative_to(ROOT / folder).as_posix()}"
        for folder, installed in folders.items()
        for pattern in ("**/*.py", "**/*.yaml", "**/*.html", "**/py.typed")
        for path in (ROOT / folder).glob(pattern)
    }


@pytest.mark.slow
def test_the_wheel_holds_every_file_of_the_package_once(distributions):
    (wheel,) = distributions.glob("*.whl")
    names = [name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name]
    assert sorted(names) == sorted(files_of_the_package())


@pytest.mark.slow
def test_the_sdist_holds_files_instead_of_links(distributions):
    (sdist,) = distributions.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        members = [member for member in archive if not member.isdir()]
    assert [member.name for member in members if not member.isfile()] == []
    # The first folder is the name of the release.
    names = {member.name.partition("/")[2] for member in members}
    assert {name for name in names if name.startswith("keras_transformer/")} == (
        files_of_the_package()
    )


@pytest.mark.slow
def test_the_installed_wheel_finds_training_export_and_its_recipes(plain_install, tmp_path):
    code = (
        "import keras_transformer.commands.main, keras_transformer.export.servable; "
        "from keras_transformer.training.recipe import load_recipe; "
        "print(keras_transformer.__file__, load_recipe('multi30k').tokenizer.vocab_size)"
    )
    python = plain_install / "bin/python"
    # Isolated: neither the working directory nor PYTHONPATH leads to the clone.
    path, vocab_size = run_python("-I", "-c", code, python=python, cwd=tmp_path).split()
    assert path.startswith(str(plain_install))
    assert int(vocab_size) > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ["-m", "keras_transformer", "train", "--print-config", "--config", "multi30k"],
        ["-m", "benchmarks.training", "--help"],
        ["-c", "import benchmarks.training_task"],
        ["examples/layers/translation.py", "--help"],
        ["-c", "import examples.train_with_fit"],
    ],
)
def test_a_plain_install_runs_inside_a_clone(plain_install, arguments):
    # Python finds the keras_transformer of the working directory before the installed one.
    run_python("-E", *arguments, python=plain_install / "bin/python", cwd=ROOT)


def test_training_and_export_are_found_inside_the_package_of_a_clone():
    for name in ("training", "export"):
        assert (ROOT / "keras_transformer" / name).samefile(ROOT / name)


def test_every_dependency_has_a_lower_and_all_but_keras_an_upper_bound():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    extras = setup["options.extras_require"].values()
    requirements = [
        line
        for block in (setup["options"]["install_requires"], *extras)
        for line in block.split("\n")
        if line and not line.startswith("#")
    ]
    assert len(requirements) > 10
    assert [line.split(">")[0] for line in requirements[:2]] == ["keras", "numpy"]
    for requirement in requirements:
        # The layers are installed into environments of others, with whatever Keras is there.
        assert ">=" in requirement and (",<" in requirement or requirement.startswith("keras>=")), (
            requirement
        )


def test_files_of_tests_have_names_of_their_own():
    # pytest imports them as modules without packages, and could not collect them all at once.
    names = collections.Counter(path.name for path in (ROOT / "tests").rglob("*.py"))
    assert [name for name, count in names.items() if count > 1] == []
