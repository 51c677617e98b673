"""Text to text without the trainer of this package: Keras, tf.data, tensorflow-text and a
SavedModel (TensorFlow only).

    python examples/layers/translation.py --export servable

Translates English numbers into German ones: "forty-two" is "zweiundvierzig". `build_transformer`'s
model is trained by `fit` on all devices of a `MirroredStrategy`. What is exported takes texts and
returns texts: tokenizer, model and beam search are one graph, which `tf.saved_model.load` and
TensorFlow Serving run without Keras and without this package.
"""

import argparse
import io

import keras
import numpy as np
import sentencepiece
import tensorflow as tf
import tensorflow_text as tf_text

import keras_transformer
from keras_transformer.decoding import beam_search

PAD, UNKNOWN, START, END = range(4)
MAX_LENGTH = 40  # tokens
ENGLISH = """one two three four five six seven eight nine ten eleven twelve thirteen fourteen
    fifteen sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty
    ninety""".split()
GERMAN = """ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn
    fünfzehn sechzehn siebzehn achtzehn neunzehn zwanzig dreißig vierzig fünfzig sechzig siebzig
    achtzig neunzig""".split()


def english(number):
    for size, name in ((1000, "thousand"), (100, "hundred")):
        if number >= size:
            return f"{english(number // size)} {name} {english(number % size)}".strip()
    if number > 20 and number % 10:
        return f"{ENGLISH[17 + number // 10]}-{ENGLISH[number % 10 - 1]}"
    return ENGLISH[number - 1 if number < 20 else 17 + number // 10] if number else ""


def german(number):
    for size, name in ((1000, "tausend"), (100, "hundert")):
        if number >= size:
            return german(number // size) + name + german(number % size)
    if number > 20 and number % 10:
        return f"{GERMAN[number % 10 - 1]}und{GERMAN[17 + number // 10]}"
    return GERMAN[number - 1 if number < 20 else 17 + number // 10] if number else ""


def train_tokenizer(texts):
    model = io.BytesIO()
    ids = dict(pad_id=PAD, unk_id=UNKNOWN, bos_id=START, eos_id=END)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_writer=model,
        model_type="bpe",
        vocab_size=150,
        minloglevel=2,
        **ids,
    )
    return tf_text.SentencepieceTokenizer(
        model.getvalue(), out_type=tf.int32, add_bos=True, add_eos=True
    )


def batches(pairs, tokenizer, batch_size):
    def inputs_and_labels(source, target):
        source, target = tokenizer.tokenize(source), tokenizer.tokenize(target)
        # The decoder reads the start token and the words, and is asked for the words and the end
        # token.
        inputs = {"source": source[:, 1:].to_tensor(), "target": target[:, :-1].to_tensor()}
        return inputs, target[:, 1:].to_tensor()

    dataset = tf.data.Dataset.from_tensor_slices(tuple(map(list, zip(*pairs)))).shuffle(len(pairs))
    return (
        dataset.batch(batch_size, drop_remainder=True)
        .map(inputs_and_labels, tf.data.AUTOTUNE)
        .prefetch(2)
    )


def make_translator(model, tokenizer):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def translate(text):
        source = tokenizer.tokenize(text)[:, 1:].to_tensor()
        step, state = model.start_decoding(source, beam_size=4, max_length=MAX_LENGTH)
        max_lengths = tf.fill([tf.shape(source)[0]], MAX_LENGTH)
        limits = dict(max_length=MAX_LENGTH, start_ids=START, end_ids=END)
        hypotheses = beam_search(step, state, max_lengths, beam_size=4, **limits)
        return {
            "text": tokenizer.detokenize(hypotheses.token_ids[:, 0]),
            "score": hypotheses.scores[:, 0],
        }

    translator = tf.Module()
    translator.translate, translator.tokenizer = translate, tokenizer
    # Not the Keras model, whose variables TensorFlow Serving would not find.
    translator.weights = [variable.value for variable in model.variables]
    return translator


def main():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--export", default="servable/numbers")
    arguments = parser.parse_args()

    keras.utils.set_random_seed(1)
    numbers = np.random.default_rng(1).choice(999_999, size=10_200, replace=False) + 1
    pairs = [(english(number), german(number)) for number in numbers]
    train_pairs, new_pairs = pairs[:-200], pairs[-200:]
    tokenizer = train_tokenizer([text for pair in train_pairs for text in pair])

    with tf.distribute.MirroredStrategy().scope():
        size = int(tokenizer.vocab_size())
        config = keras_transformer.TransformerConfig(
            size, size, num_layers=2, d_model=64, d_ff=256, num_heads=4
        )
        model = keras_transformer.build_transformer(config)
        model.compile(
            keras.optimizers.Adam(
                keras_transformer.WarmupInverseSqrt(64, warmup_steps=400, scale=1.0), beta_2=0.98
            ),
            keras_transformer.MaskedLabelSmoothedCrossentropy(0.1),
            metrics=[keras_transformer.MaskedAccuracy()],
        )
    model.fit(batches(train_pairs, tokenizer, batch_size=64), epochs=arguments.epochs, verbose=2)

    translator = make_translator(model, tokenizer)
    tf.saved_model.save(translator, arguments.export, signatures=translator.translate)
    translate = tf.saved_model.load(arguments.export).signatures["serving_default"]
    texts, references = zip(*new_pairs)
    translations = [text.decode() for text in translate(text=tf.constant(texts))["text"].numpy()]
    print(f"{texts[0]!r} is {translations[0]!r}")
    print(f"accuracy on new numbers: {np.mean(np.array(translations) == references):.3f}")


if __name__ == "__main__":
    main()
