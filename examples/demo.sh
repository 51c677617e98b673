#!/bin/sh
# Trains a translator on generated text and exports it for TensorFlow Serving. Usage: examples/demo.sh DIRECTORY
set -eu

if [ $# -ne 1 ]; then
    echo "Usage: $0 DIRECTORY" >&2
    exit 2
fi
mkdir -p "$1"
to=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."

echo "This generates 30,000 English sentences with their German translations, trains a small Transformer on them,
evaluates it on 1,000 new sentences, exports it as a SavedModel, and translates with both.
It takes two to five minutes on two CPU cores, up to ten on one. All files are written to $to."

run() {
    printf '\n$ %s\n' "$*"
    "$@"
}

rm -rf "$to/data" "$to/model" "$to/servable"
run python -m examples.corpus "$to/data"
run keras-transformer train --config demo --model-dir "$to/model" \
    --source "$to/data/train.en" --target "$to/data/train.de" \
    --valid-source "$to/data/valid.en" --valid-target "$to/data/valid.de"
run keras-transformer evaluate --model-dir "$to/model" \
    --source "$to/data/test.en" --reference "$to/data/test.de"
run keras-transformer export --model-dir "$to/model" --output "$to/servable"

# In float32, like the SavedModel: in another precision, translations with close scores could differ.
printf '\n$ keras-transformer translate --precision float32 --model-dir %s < %s\n' "$to/model" "$to/data/test.en"
keras-transformer translate --precision float32 --model-dir "$to/model" < "$to/data/test.en" > "$to/translated.de"
printf '$ python examples/translate_saved_model.py %s < %s\n' "$to/servable/1" "$to/data/test.en"
TF_CPP_MIN_LOG_LEVEL=3 python examples/translate_saved_model.py "$to/servable/1" \
    < "$to/data/test.en" > "$to/served.de" 2> "$to/served.log" || { cat "$to/served.log" >&2; exit 1; }

printf '\nSome translations of sentences that the model has not seen before:\n'
paste -d '\n' "$to/data/test.en" "$to/translated.de" | head -n 12 | sed 'N; s/\(.*\)\n\(.*\)/  \1\n    -> \2/'
if ! cmp "$to/translated.de" "$to/served.de"; then
    printf '\nThe SavedModel and the Python translator give different translations.\n' >&2
    exit 1
fi

cat <<END

The SavedModel gave the same $(wc -l < "$to/served.de" | tr -d ' ') translations as the Python translator.

Next steps, after ". .venv/bin/activate" if you ran "make demo":
  Type sentences on a page that translates them:
    keras-transformer serve --model-dir $to/model
  Translate your own sentences, one per line, made of words from the text:
    keras-transformer translate --model-dir $to/model
  Serve the SavedModel over HTTP, with TensorFlow Serving installed:
    tensorflow_model_server --rest_api_port=8501 --model_name=en-de --model_base_path=$to/servable
    curl localhost:8501/v1/models/en-de:predict -d '{"instances": ["The woman bought the lamp because it was cheap."]}'
  Train on two text files of your own that are translations of each other, line by line:
    keras-transformer train --config multi30k --model-dir my-model --source train.en --target train.de \\
        --valid-source valid.en --valid-target valid.de
README.md describes each of these.
END
