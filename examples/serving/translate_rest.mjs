// Translates standard input with TensorFlow Serving's REST API; needs Node.js 18 or newer, and no package.
//
// node examples/serving/translate_rest.mjs http://localhost:8501/v1/models/en-de < in.txt > out.txt

import { createInterface } from "node:readline";

const TEXTS_PER_REQUEST = 32;
const url = `${process.argv[2]}:predict`;

async function translate(texts) {
  const response = await fetch(url, {
    method: "POST",
    body: JSON.stringify({ signature_name: "translate", inputs: { text: texts } }),
  });
  const answer = await response.json();
  if (!response.ok) throw new Error(`${response.status}: ${answer.error}`);
  const { text, truncated } = answer.outputs;
  if (truncated.includes(true)) console.error("a line is too long: only its beginning is translated");
  process.stdout.write(text.map((line) => `${line}\n`).join(""));
}

let texts = [];
for await (const line of createInterface({ input: process.stdin, crlfDelay: Infinity })) {
  texts.push(line);
  if (texts.length === TEXTS_PER_REQUEST) {
    await translate(texts);
    texts = [];
  }
}
if (texts.length) await translate(texts);
