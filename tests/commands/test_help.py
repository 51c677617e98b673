"""The help of the command line, and the names of commands and options."""

import shlex

import pytest
from fresh_process import run_python

from keras_transformer import __version__
from keras_transformer.commands.main import COMMANDS, main
from keras_transformer.commands.options import Parser


def parser_of(command):
    parser = Parser()
    COMMANDS[command].add_options(parser)
    return parser


def test_version(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["--version"])
    assert stopped.value.code == 0
    assert capsys.readouterr().out == f"keras-transformer {__version__}\n"


def test_a_command_without_a_name_is_the_help(capsys):
    with pytest.raises(SystemExit) as stopped:
        main([])
    assert stopped.value.code == 0
    assert capsys.readouterr().out.startswith("usage: keras-transformer COMMAND ...")


def test_help_imports_nothing_heavy():
    code = (
        "import sys; sys.argv = ['keras-transformer', '--help']; import "
        "keras_transformer.commands.main as cli\n"
        "try: cli.main()\n"
        "except SystemExit: pass\n"
        "print(sorted({'tensorflow', 'keras', 'numpy', 'yaml', 'jax'} & set(sys.modules)))"
    )
    *help, imported = run_python("-c", code).splitlines()
    assert imported == "[]" and all(command in "\n".join(help) for command in COMMANDS)


def test_the_help_of_every_command_ends_with_its_example(capsys):
    for command in COMMANDS:
        with pytest.raises(SystemExit) as stopped:
            main([command, "--help"])
        assert stopped.value.code == 0
        _, example = capsys.readouterr().out.split("\nexample:\n")
        expected = f"keras-transformer {command} {parser_of(command).example}"
        assert shlex.split(example.replace("\\\n", "")) == shlex.split(expected)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_example_of_a_command_has_options_that_it_knows(command):
    parser = parser_of(command)
    assert parser.parse_args(shlex.split(parser.example.partition(" < ")[0]))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_prefix_of_an_option_is_not_the_option(fails, command):
    assert "error: " in fails(command, "--hel")
