#!/bin/sh
# Translates standard input with TensorFlow Serving's REST API; needs curl. Prints the JSON of the answer.
#
# sh examples/serving/translate_rest.sh http://localhost:8501/v1/models/en-de < in.txt
set -eu
# In Base64, no character of a text needs to be escaped.
instances=$(while IFS= read -r line || [ -n "$line" ]; do
    printf '{"text": {"b64": "%s"}},' "$(printf %s "$line" | tr -d '\r' | base64 | tr -d '\n')"
done)
printf '{"signature_name": "translate", "instances": [%s]}' "${instances%,}" |
    curl --silent --show-error --fail-with-body --data-binary @- --header 'Content-Type: application/json' "$1:predict"
