"""What a user reads who lacks an extra."""

import ast
import configparser
import os
import pathlib
import re
import subprocess
import sys

import pytest

from keras_transformer.errors import Error, MissingPackageError
from keras_transformer.runtime.packages import EXTRAS, missing_packages_named

ROOT = pathlib.Path(__file__).parents[2]
# Where the package is imported by another name than pip installs it by.
DISTRIBUTIONS = {"google": "protobuf", "yaml": "PyYAML"}


@pytest.mark.parametrize(
    ("module", "name", "extra"),
    [
        ("tensorflow_text", "tensorflow_text", "translation"),
        ("matplotlib.figure", "matplotlib", "plots"),
        ("ctranslate2", "ctranslate2", "ctranslate2"),
    ],
)
def test_a_missing_package_is_named_with_its_extra(module, name, extra, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingPackageError) as error, missing_packages_named():
        __import__(module)
    assert str(error.value) == (
        f"this needs the package {name}, which is not installed: in your clone of the repository, "
        f"run pip install -e '.[{extra}]'"
    )
    assert error.value.name == module
    assert isinstance(error.value, ImportError) and isinstance(error.value, Error)


@pytest.mark.parametrize(
    "code", ["import keras_transfomer", "from keras_transformer.config import Confg"]
)
def test_another_mistake_in_an_import_stays_what_it_is(code):
    with pytest.raises(ImportError) as error, missing_packages_named():
        exec(code)
    assert not isinstance(error.value, MissingPackageError)


def test_every_package_that_is_imported_is_installed_by_keras_or_an_extra():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    sections = setup["options.extras_require"]
    requirements = {
        extra: re.findall(r"^([\w-]+)>=", sections[extra], re.MULTILINE) for extra in sections
    }
    paths = [
        path
        for name in ("keras_transformer", "training", "export")
        for path in (ROOT / name).rglob("*.py")
    ]
    imported = set()
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                imported.add(node.module.partition(".")[0])
    # _typeshed is there for type checkers only.
    always_there = {"keras", "numpy", "keras_transformer", "_typeshed"}
    # Imported only where they are the backend, or where a layer is converted to one of theirs.
    backends = {"jax", "torch", "keras_hub"}
    # importlib_resources is tensorflow-datasets' affair.
    named = {name for names in EXTRAS.values() for name in names} - {"importlib_resources"}
    assert imported - sys.stdlib_module_names - always_there - backends == named
    for extra, names in EXTRAS.items():
        installed = {requirement.replace("_", "-") for requirement in requirements[extra]}
        assert {DISTRIBUTIONS.get(name, name).replace("_", "-") for name in names} <= installed


def test_a_command_without_its_packages_ends_in_one_line(text, fails, monkeypatch):
    monkeypatch.setitem(sys.modules, "regex", None)
    monkeypatch.delitem(sys.modules, "keras_transformer.training.text.filters", raising=False)
    monkeypatch.delitem(sys.modules, "keras_transformer.training.text.check_data", raising=False)
    path = text("text", "")
    assert fails("check-data", "--source", path, "--target", path) == (
        "keras-transformer check-data: error: this needs the package regex, which is not "
        "installed: "
        "in your clone of the repository, run pip install -e '.[translation]'"
    )


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        pytest.param("Translator", "tensorflow", marks=pytest.mark.slow),
        pytest.param("tokenizers", "tensorflow_text", marks=pytest.mark.slow),
        pytest.param("translation", "tensorflow_text", marks=pytest.mark.slow),
        ("model_dir", "yaml"),
    ],
)
def test_python_code_reads_the_same_line(name, missing):
    code = f"import sys; sys.modules[{missing!r}] = None\nfrom keras_transformer import {name}"
    finished = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "KERAS_BACKEND": "jax"},
        capture_output=True,
        text=True,
    )
    assert finished.stderr.splitlines()[-1] == (
        f"keras_transformer.errors.MissingPackageError: this needs the package {missing}, which "
        f"is not installed: "
        "in your clone of the repository, run pip install -e '.[translation]'"
    )
