"""What pip installs: the wheel compared with the source tree, in an environment without the
checkout."""

import collections
import configparser
import pathlib
import zipfile

import pytest
from fresh_process import run_python

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    directory = tmp_path_factory.mktemp("wheel")
    # From an sdist, as a release is: what MANIFEST forgets is missing there first.
    run_python("-m", "build", "--outdir", directory, ROOT)
    return next(directory.glob("*.whl"))


def sources(folder):
    return {
        path.relative_to(ROOT / folder).as_posix()
        for pattern in ("**/*.py", "**/*.yaml", "**/*.html", "**/py.typed")
        for path in (ROOT / folder).glob(pattern)
    }


@pytest.mark.slow
def test_the_wheel_holds_every_source_file_under_one_name(wheel):
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    expected = {f"keras_transformer/{name}" for name in sources("keras_transformer")}
    expected |= {f"keras_transformer/training/{name}" for name in sources("training")}
    expected |= {f"keras_transformer/export/{name}" for name in sources("export")}
    assert names == expected


@pytest.mark.slow
def test_the_installed_wheel_finds_training_export_and_its_recipes(wheel, tmp_path):
    site = tmp_path / "site"
    run_python("-m", "pip", "install", "--quiet", "--no-deps", "--target", site, wheel)
    # Isolated mode and an empty working directory: nothing of the checkout is on the path.
    code = (
        f"import sys; sys.path[:] = [p for p in sys.path if p != {str(ROOT)!r}]; "
        f"sys.meta_path = [f for f in sys.meta_path if 'editable' not in repr(f).lower()]; "
        f"sys.path.insert(0, {str(site)!r}); sys.argv = ['keras-transformer']; "
        "import keras_transformer.commands.main, keras_transformer.export.servable; "
        "from keras_transformer.training.recipe import load_recipe; "
        "print(keras_transformer.__file__, load_recipe('multi30k').tokenizer.vocab_size)"
    )
    path, vocab_size = run_python("-I", "-c", code, cwd=tmp_path).split()
    assert path == str(site / "keras_transformer" / "__init__.py")
    assert int(vocab_size) > 0


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
