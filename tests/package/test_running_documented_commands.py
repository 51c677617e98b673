"""The commands of README, tutorial and guides run, page by page, on a little text; marked as long.

A page's blocks run in their order in one folder, as a reader would run them after preparing the
files that the page begins with. What is different here stands in `PRELUDE`, as functions of the
shell with the names of programs, and in `BEFORE`.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
from test_pretrained import marian_folder, spm_files  # noqa: F401
from training_runs import free_addresses

from examples import corpus

ROOT = pathlib.Path(__file__).parents[2]

PRELUDE = r"""
set -eu
export PATH="$BIN:$PATH" PYTHONPATH="$ROOT"
server=
trap 'kill $server 2> /dev/null || true' EXIT

# The next server needs its port.
stop_server() {
    kill $server 2> /dev/null || true
    while test "$server" && kill -0 $server 2> /dev/null; do sleep 0.1; done
}

keras-transformer() {
    case "$1 $*" in
    # A few updates of a small model.
    train*--init-from*) command keras-transformer "$@" --set training.steps=2 training.validate_every=2 ;;
    # The scores of such models are low.
    train*data.min_score=0.1*) keras-transformer "${@/data.min_score=0.1/data.min_score=0}" ;;
    train*) command keras-transformer "$@" --set model.num_layers=1 model.d_model=32 model.d_ff=64 \
        tokenizer.vocab_size=500 training.steps=2 training.validate_every=1 training.consistency=0 ;;
    # In the background, from when it answers until another server begins or the page ends.
    serve*)
        stop_server
        exec {answer}< <(command keras-transformer "$@" --port "$PORT")
        server=$!
        read -r -u "$answer"
        curl -L localhost:8501/ > page.html ;;
    *) command keras-transformer "$@" ;;
    esac
}

# TensorFlow Serving is not installed: `serve` answers in its place, with the model of that name.
tensorflow_model_server() {
    local name=${2#*=} path=${3#*=}
    mkdir -p served && rm -rf "served/$name" && cp -r "$path" "served/$name"
    keras-transformer serve --servable "served/$name"
}

# `serve` has no labels, and one version.
curl() {
    set -- "${@//8501/$PORT}"
    set -- "${@/\/versions\/[0-9]/}"
    command curl --silent --show-error --fail --noproxy '*' "${@/\/labels\/stable/}"
}

# The first model of the page stands in for those of a configuration file.
docker() {
    case "$1" in
    run) tensorflow_model_server "$1" --model_name=en-de --model_base_path=servable/en-de ;;
    rm) stop_server ;;
    *) false ;;
    esac
}

python() {
    case "$*" in
    -) command python -c "$(sed "s/8501/$PORT/")" ;;  # A block of the page.
    *-m\ benchmarks.*) ;;  # tests/benchmarks
    *examples/translate_corpus.py*) ;;  # make test-beam
    *) command python "$@" ;;
    esac
    # The rest of the text would take minutes.
    case "$*" in *examples.corpus*) sed -i '601,$d' demo/data/train.*; sed -i '21,$d' demo/data/{valid,test}.* ;; esac
}

# What is installed is what is tested; `make test-jax` installs the layers alone.
pip() { test "$1" = install; }
python3() { case "$*" in "-m venv .venv"*) ;; *) false ;; esac }
.venv-beam/bin/pip() { pip "$@"; }
.venv-beam/bin/python() { python "$@"; }
git() { test "$1" = clone && ln -s . "$3"; }
make() { grep -q "^$1.*:" "$ROOT/Makefile"; }  # .ci/run
"""

# What each page has before its first block, beside train, val and test in two languages.
BEFORE = {
    "docs/more-text.md": "head -n 40 train.en > web.en; head -n 40 train.de > web.de; python -c "
    "'import sys, zstandard as z; z.ZstdCompressor().copy_stream(sys.stdin.buffer, "
    "sys.stdout.buffer)' "
    "< web.de > mono.de.zst",
    "README.md": "head -n 5 test.en > new.en; mkdir -p demo .venv/bin; cp -r $MODEL demo/model; "
    "touch .venv/bin/activate",
    "docs/comparing.md": "mkdir models; cp -r $MODEL models/old; cp -r $MODEL models/new; "
    "cp -r $MARIAN opus-mt-en-de; cp test.de other.de; "
    "for name in en de; do cp val.$name news.$name; cp test.$name chat.$name; done; "
    "for name in a b; do cp val.de $name.news.de; cp test.de $name.chat.de; done",
    "docs/alignments.md": "mkdir models; cp -r $MODEL models/en-de",
    "docs/engines.md": "mkdir models; cp -r $MODEL models/en-de",
    "docs/terms.md": "echo pages > keep.txt; mkdir models; cp -r $MODEL models/de-en; cp val.de "
    "one-language.de; "
    "cp val.de all-languages.de; for name in train val; do cp $name.de $name.fr; cp $name.de "
    "$name.cs; done",
    "docs/pretrained.md": "cp -r $MARIAN opus-mt-en-de; cp test.en text.en; cp train.en ours.en; "
    "cp train.de ours.de",
    "docs/coming-from.md": "mkdir models; cp -r $MODEL models/en-de",
    "docs/compiling.md": "mkdir models; cp -r $MODEL models/en-de; "
    "keras-transformer export --model-dir models/en-de --output servable/en-de",
    "docs/serving.md": "mkdir models; cp -r $MODEL models/en-de; ln -s $ROOT/examples examples",
    "docs/latency.md": "mkdir models; cp -r $MODEL models/en-de; "
    "sed -n '/^```python/,/^```/{/^```/d;s/8501/'$PORT'/;p}' $ROOT/docs/latency.md "
    "> translate_by_server.py",
    "docs/large-files.md": "mkdir models; cp -r $MODEL models/en-de; head -n 40 train.en > news.en; "
    "sed -n '/^```python/,/^```/{/^```/d;p}' $ROOT/docs/large-files.md > translate_int8.py",
    "docs/training.md": "head -n 5 test.en > new.en",
    "docs/tutorial.md": "ln -s $ROOT/examples examples; mkdir -p .venv/bin; touch "
    ".venv/bin/activate",
}
# A server with gRPC, a package of the benchmarks, text that readers fill in, and programs that they
# save.
CODE_ELSEWHERE = ("import grpc", "from transformers import", ", ...]", "sys.argv", "sys.stdin")


def script_of(page):
    """The commands and the code of a page as one script."""
    script = ""
    for language, block in re.findall(
        r"^```(sh|python)\n(.*?)^```", page, re.DOTALL | re.MULTILINE
    ):
        if language == "sh":
            script += block
        elif not any(part in block for part in CODE_ELSEWHERE):
            script += f"python - <<'CODE'\n{block}CODE\n"
    return script


@pytest.mark.long
@pytest.mark.parametrize("page", BEFORE)
def test_the_commands_of_a_page_run(page, tiny_model_dir, marian_folder, tmp_path):  # noqa: F811
    for path in corpus.write(tmp_path, train_pairs=600, valid_pairs=20, test_pairs=20):
        path.rename(str(path).replace("valid", "val"))
    (address,) = free_addresses(1)
    given = {
        "BIN": pathlib.Path(sys.executable).parent,
        "ROOT": ROOT,
        "MODEL": tiny_model_dir,
        "MARIAN": marian_folder,
    }
    text = (ROOT / page).read_text(encoding="utf-8")
    finished = subprocess.run(
        [shutil.which("bash"), "-c", PRELUDE + BEFORE[page] + "\n" + script_of(text)],
        cwd=tmp_path,
        env={
            **os.environ,
            "no_proxy": "localhost",
            "PORT": address.rpartition(":")[2],
            **{name: str(value) for name, value in given.items()},
        },
        capture_output=True,
        text=True,
    )
    assert finished.returncode == 0, finished.stderr
    answers = re.findall(r'^    "(?:predictions|outputs)": ', finished.stdout, re.MULTILINE)
    assert len(answers) == len(re.findall("^curl .*:predict", text, re.MULTILINE))
    for written in re.findall(r"(?:--output| >) (\S+)", script_of(text)):
        # `synthesize` writes several files whose names begin so.
        paths = [*tmp_path.glob(f"{written.partition('$')[0]}*")]
        assert paths and all(path.is_dir() or path.stat().st_size for path in paths), written
