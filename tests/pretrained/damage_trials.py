"""Imports a folder again and again, each time with other damage to one of its files.

python damage_trials.py FOLDER FILE NUMBER

Prints one line of JSON when a trial starts, with its seed, and one with its result. A process that
ends before its last line was ended by the trial that it announced. The output depends only on the
seeds.
"""

import contextlib
import io
import json
import pathlib
import random
import resource
import shutil
import sys
import tempfile
import warnings

import numpy as np
import yaml

# What a value is replaced by. The last ones are larger than any limit.
OTHER_VALUES = (
    *(None, True, "2", "", [], [1], {}, {"a": 1}),
    *(-1, 0, 1, 3, 0.5, float("nan"), float("inf"), 10**9, 10**400),
)
OTHER_PIECES = (
    "",
    "a\0b",
    "\ud800",
    "<s>",
    "<start>",
    "<pad>",
    "</s>",
    "<unk>",
    "x" * 2000,
    "\u2581",
    ">>fra<<",
)


def damage_bytes(content, rng, others):
    """Damage that any file can have."""
    place = rng.randrange(len(content) + 1)
    length = rng.choice([1, 4, 100, len(content) // 2])
    kind = rng.choice(
        [
            "truncate",
            "flip",
            "flip",
            "flip",
            "zero",
            "noise",
            "remove",
            "repeat",
            "swap",
            "deep",
            "empty",
        ]
    )
    if kind == "truncate":
        return content[:place]
    if kind == "flip":
        flipped = bytearray(content)
        for _ in range(rng.choice([1, 1, 8, 100])):
            flipped[rng.randrange(len(flipped))] ^= 1 << rng.randrange(8)
        return bytes(flipped)
    if kind == "swap":
        return rng.choice(others)
    if kind == "deep":
        return rng.choice([b"[", b'{"a":', b"- ", b"a: [", b"? ", b"&a [*a, "]) * 100_000
    if kind == "empty":
        return b""
    rest = content[place + length :]
    middle = {
        "zero": bytes(length),
        "noise": rng.randbytes(length),
        "remove": b"",
        "repeat": content[place : place + length] * 2,
    }
    return content[:place] + middle[kind] + rest


def replace_value(values, rng):
    """Replaces a value, or a key, of mappings and lists."""
    if isinstance(values, list):
        values = dict(enumerate(values))
    key = rng.choice(list(values)) if values else "a"
    if isinstance(values.get(key), (dict, list)) and rng.random() < 0.8:
        values[key] = replace_value(values[key], rng)
    elif rng.random() < 0.2 and isinstance(key, str):
        values[rng.choice(OTHER_PIECES)] = values.pop(key, 0)
    elif rng.random() < 0.1:
        del values[key]
    else:
        values[key] = rng.choice(OTHER_VALUES)
    return values


def damage_json(content, rng):
    return json.dumps(replace_value(json.loads(content), rng)).encode("utf-8", "surrogatepass")


def damage_yaml(content, rng):
    return yaml.safe_dump(replace_value(yaml.safe_load(content), rng)).encode("utf-8", "replace")


def damage_sentencepiece(content, rng):
    from sentencepiece.sentencepiece_model_pb2 import ModelProto

    proto = ModelProto.FromString(content)
    pieces, normalizer = proto.pieces, proto.normalizer_spec
    piece = rng.choice(pieces)
    kind = rng.choice(
        [
            "score",
            "piece",
            "type",
            "type",
            "map",
            "map",
            "trie",
            "trie",
            "nested",
            "normalizer",
            "trainer",
        ]
    )
    if kind == "score":
        for piece in rng.sample(list(pieces), 20):
            piece.score = rng.choice([float("nan"), float("inf"), -float("inf"), 3e38, -3e38])
    elif kind == "piece":
        # Not every text can be set.
        with contextlib.suppress(ValueError):
            piece.piece = rng.choice([*OTHER_PIECES, pieces[0].piece, pieces[5].piece])
    elif kind == "type":
        for piece in rng.sample(list(pieces), rng.choice([1, 20])):
            piece.type = rng.choice(range(1, 7))
    elif kind == "nested":
        for number in range(100):
            pieces.add(piece="a" * (number + 1), score=-1.0, type=4)
    elif kind == "normalizer":
        for name in ("add_dummy_prefix", "remove_extra_whitespaces", "escape_whitespaces"):
            setattr(normalizer, name, rng.random() < 0.5)
    elif kind == "trainer":
        trainer = proto.trainer_spec
        trainer.model_type = rng.choice([1, 2, 3, 4])
        trainer.byte_fallback, trainer.treat_whitespace_as_suffix = (
            rng.random() < 0.5,
            rng.random() < 0.5,
        )
        trainer.vocab_size, trainer.unk_id = (
            rng.choice([-5, 0, 2**31 - 1]),
            rng.choice([-1, 2**31 - 1]),
        )
    else:
        characters = bytearray(normalizer.precompiled_charsmap)
        if kind == "map":
            characters = bytearray(
                damage_bytes(bytes(characters), rng, [b"\0" * 8, b"\xff" * 5000])
            )
        else:
            size = int.from_bytes(characters[:4], "little")
            for _ in range(rng.choice([1, 1000, 30_000])):
                # The first units are the ones that most texts pass.
                place = 4 + rng.choice([rng.randrange(256), rng.randrange(size // 4)]) * 4
                characters[place : place + 4] = rng.getrandbits(32).to_bytes(4, "little")
        normalizer.precompiled_charsmap = bytes(characters)
    return proto.SerializeToString()


def damage_npz(content, rng):
    with np.load(io.BytesIO(content)) as file:
        arrays = {name: file[name] for name in file.files}
    name = rng.choice(sorted(arrays))
    kind = rng.choice(
        ["options", "options", "array", "array", "npy", "method", "compressed", "size"]
    )
    written = io.BytesIO()
    if kind == "npy":
        np.save(written, arrays[name])
        return written.getvalue()
    if kind == "options":
        text = damage_yaml(arrays["special:model.yml"].tobytes().rstrip(b"\0"), rng)
        arrays["special:model.yml"] = np.frombuffer(text + b"\0", "int8")
    elif kind == "array":
        array = arrays[name]
        others = [
            array[0],
            array.T,
            array.astype("int8"),
            array.astype("complex64"),
            np.array([{}], object),
        ]
        others += [
            np.array(1.0, "float32"),
            np.full(array.shape, np.nan, "float32"),
            array.astype("float16"),
        ]
        others += [array[None], array[:0], np.array(["a"]), np.zeros(3, [("a", "f4")])]
        arrays[name] = rng.choice(others)
    if kind == "compressed":
        arrays[name] = np.zeros((rng.choice([1, 10, 4000]), 4000), "float32")
        np.savez_compressed(written, **arrays)
        return written.getvalue()
    np.savez(written, **arrays)
    content = written.getvalue()
    if kind == "method":
        # In the central directory: flags, the compression method, sizes.
        entry = bytearray(content)
        start = content.index(b"PK\1\2")
        field = rng.choice([8, 10, 10, 20, 24, 24])
        entry[start + field] = rng.choice([1, 8, 9, 12, 14, 99])
        entry[start + field + 1] = rng.choice([0, 0, 255])
        return bytes(entry)
    if kind == "size":
        entry = bytearray(content)
        start = content.index(b"PK\1\2")
        entry[start + 20 : start + 28] = rng.choice(
            [b"\xf0\xff\xff\xff" * 2, b"\xff\xff\xff\xff" * 2]
        )
        return bytes(entry)
    return content


def damage_safetensors(content, rng):
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    name = rng.choice(sorted(header))
    kind = rng.choice(["value", "dtype", "shape", "offsets", "size", "name"])
    if kind == "value":
        header = replace_value(header, rng)
    elif kind == "dtype":
        header[name]["dtype"] = rng.choice(
            ["F8_E4M3", "F8_E5M2", "I8", "BOOL", "BF16", "F16", "F64", "U64", "C64", "X", ""]
        )
    elif kind == "shape":
        header[name]["shape"] = rng.choice(
            [[], [0], [2**63], [2**40, 2**40], [-1], [1] * 100, [0, 2**62], ["a"], None]
        )
    elif kind == "offsets":
        header[name]["data_offsets"] = rng.choice(
            [[0, 2**62], [5, 1], [0, 4], [-1, 3], [2**64, 2**64 + 4], [0], []]
        )
    elif kind == "name":
        header[rng.choice([*OTHER_PIECES, "a\nb", "\x1b[31m", "x" * 100_000])] = header.pop(name)
    text = json.dumps(header).encode()
    if kind == "size":
        size = rng.choice([0, 1, 2**31, 2**63, 2**64 - 1, 100_000_001])
        return size.to_bytes(8, "little") + content[8:]
    return len(text).to_bytes(8, "little") + text + content[8 + size :]


DAMAGE = {
    ".json": damage_json,
    ".yml": damage_yaml,
    ".spm": damage_sentencepiece,
    ".npz": damage_npz,
    ".safetensors": damage_safetensors,
}


def damage(folder, name, seed):
    """Damages a file of a folder."""
    path, rng = folder / name, random.Random(f"{name} {seed}")
    content = path.read_bytes()
    others = [file.read_bytes() for file in sorted(folder.iterdir()) if file != path]
    if rng.random() < 0.5:
        content = damage_bytes(content, rng, others)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            content = DAMAGE[path.suffix](content, rng)
    path.write_bytes(content)


def use(model, seed):
    """Reads text with the tokenizers, in which a character may be anything."""
    rng = random.Random(seed)
    text = "".join(
        chr(rng.choice([rng.randrange(32, 1000), rng.randrange(0x3000, 0xD000)]))
        for _ in range(1000)
    )
    for tokenizer in model.tokenizers:
        tokenizer.tokenize([text, "A dog runs.\0a", "ａｂｃ ﬁ ½ e\u0301 \u3000", "a" * 200, ""])


def trial(folder, seed):
    """The message of the error, or None."""
    from keras_transformer.errors import InvalidFileError
    from keras_transformer.pretrained import read_model
    from keras_transformer.pretrained.pretrained_model import check_weights

    try:
        model = read_model(folder)
        check_weights(model)
    except InvalidFileError as error:
        return str(error)
    use(model, seed)
    return None


def command(folder):
    """What the command prints on standard error, and its exit code."""
    from keras_transformer.commands.main import main

    printed = io.StringIO()
    with (
        contextlib.redirect_stderr(printed),
        contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO())),
    ):
        try:
            main(["import", "--from", str(folder), "--model-dir", str(folder.parent / "model")])
        except SystemExit as exit:
            return printed.getvalue(), exit.code
    return printed.getvalue(), 0


def peak_bytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    original, filename = pathlib.Path(sys.argv[1]), sys.argv[2]
    with tempfile.TemporaryDirectory() as temporary:
        undamaged = pathlib.Path(temporary, "undamaged")
        shutil.copytree(original, undamaged)
        # Imports what it needs.
        assert trial(undamaged, 0) is None
    before = peak_bytes()
    for seed in range(int(sys.argv[3])):
        print(json.dumps({"seed": seed}), flush=True)
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary, "folder")
            shutil.copytree(original, folder)
            damage(folder, filename, seed)
            message = trial(folder, seed)
            result = {"seed": seed, "message": message, "folder": str(folder)}
            # The whole command takes longer.
            if seed % 10 == 0:
                result["printed"], result["code"] = command(folder)
        print(json.dumps({**result, "grown": peak_bytes() - before}), flush=True)
