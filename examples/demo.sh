#!/bin/sh
# From generated text to a served translator. Usage: examples/demo.sh DIRECTORY
set -eu
examples=$(dirname "$0")
to=$1

run() {
    printf '\n$ %s\n' "$*" >&2
    "$@"
}

rm -rf "$to"
mkdir -p "$to"
run python -m keras_transformer.training.embedded_corpus "$to/data"
run keras-transformer train --config demo --model-dir "$to/model" \
    --source "$to/data/train.en" --target "$to/data/train.de" \
    --valid-source "$to/data/valid.en" --valid-target "$to/data/valid.de"
run keras-transformer evaluate --model-dir "$to/model" \
    --source "$to/data/test.en" --reference "$to/data/test.de"
run keras-transformer export --model-dir "$to/model" --output "$to/servable"

printf '\n$ keras-transformer translate --model-dir %s < %s\n' "$to/model" "$to/data/test.en"
keras-transformer translate --model-dir "$to/model" < "$to/data/test.en" > "$to/translated.de"
printf '$ python examples/translate_saved_model.py %s < %s\n' "$to/servable/1" "$to/data/test.en"
TF_CPP_MIN_LOG_LEVEL=3 python "$examples/translate_saved_model.py" "$to/servable/1" \
    < "$to/data/test.en" > "$to/served.de" 2> "$to/served.log" || { cat "$to/served.log" >&2; exit 1; }

printf '\nSome of them, none of which was in the training text:\n'
paste -d '\n' "$to/data/test.en" "$to/translated.de" | head -n 12 | sed 'N; s/\(.*\)\n\(.*\)/  \1\n    -> \2/'
if cmp "$to/translated.de" "$to/served.de"; then
    printf '\nThe reloaded SavedModel gave the same %s translations as the Python translator.\n' \
        "$(wc -l < "$to/served.de" | tr -d ' ')"
else
    printf '\nThe reloaded SavedModel translates otherwise than the Python translator.\n' >&2
    exit 1
fi
printf 'The model: %s   The SavedModel for TensorFlow Serving: %s\n' "$to/model" "$to/servable/1"
