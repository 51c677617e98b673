"""Runs a SavedModel with TensorFlow's C API, as a program in C or Go would; imports no TensorFlow.

python tests/c_api.py SAVED_MODEL_DIR < lines > translations
"""

import ctypes
import importlib.util
import pathlib
import sys

TF_FLOAT, TF_STRING = 1, 7


class TF_Output(ctypes.Structure):
    _fields_ = [("operation", ctypes.c_void_p), ("index", ctypes.c_int)]


class TF_Buffer(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("length", ctypes.c_size_t),
        ("deallocator", ctypes.c_void_p),
    ]


class TF_TString(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint64 * 3)]


def package_dir(name):
    # Finding a package does not import it.
    return pathlib.Path(importlib.util.find_spec(name).submodule_search_locations[0])


def load_tensorflow():
    """The C library, with tensorflow-text's operations registered."""
    folder = package_dir("tensorflow")
    ctypes.CDLL(str(folder / "libtensorflow_framework.so.2"), ctypes.RTLD_GLOBAL)
    library = ctypes.CDLL(str(folder / "libtensorflow_cc.so.2"), ctypes.RTLD_GLOBAL)
    for name in (
        "TF_NewStatus",
        "TF_NewGraph",
        "TF_NewSessionOptions",
        "TF_NewBuffer",
        "TF_LoadLibrary",
        "TF_LoadSessionFromSavedModel",
        "TF_GraphOperationByName",
        "TF_AllocateTensor",
        "TF_TensorData",
        "TF_StringGetDataPointer",
    ):
        getattr(library, name).restype = ctypes.c_void_p
    library.TF_Message.restype = ctypes.c_char_p
    library.TF_StringGetSize.restype = ctypes.c_size_t
    library.TF_Dim.restype = ctypes.c_int64
    status = ctypes.c_void_p(library.TF_NewStatus())
    for path in sorted(package_dir("tensorflow_text").glob("python/ops/_*.so")):
        library.TF_LoadLibrary(str(path).encode(), status)
        check(library, status)
    return library


def check(library, status):
    if library.TF_GetCode(status):
        raise RuntimeError(library.TF_Message(status).decode())


class SavedModel:
    """The signature `serving_default` of a SavedModel: a list of bytes to texts and scores."""

    def __init__(self, path):
        self.library = load_tensorflow()
        self.status = ctypes.c_void_p(self.library.TF_NewStatus())
        graph = ctypes.c_void_p(self.library.TF_NewGraph())
        meta_graph = ctypes.c_void_p(self.library.TF_NewBuffer())
        self.session = ctypes.c_void_p(
            self.library.TF_LoadSessionFromSavedModel(
                ctypes.c_void_p(self.library.TF_NewSessionOptions()),
                None,
                str(path).encode(),
                (ctypes.c_char_p * 1)(b"serve"),
                1,
                graph,
                meta_graph,
                self.status,
            )
        )
        check(self.library, self.status)
        buffer = ctypes.cast(meta_graph, ctypes.POINTER(TF_Buffer)).contents
        inputs, outputs = signature(ctypes.string_at(buffer.data, buffer.length))
        self.input = self._tensor_of_graph(graph, inputs["text"])
        self.outputs = [self._tensor_of_graph(graph, outputs[name]) for name in ("text", "score")]

    def _tensor_of_graph(self, graph, name):
        operation, index = name.split(":")
        found = self.library.TF_GraphOperationByName(graph, operation.encode())
        return TF_Output(found, int(index))

    def __call__(self, texts):
        library = self.library
        strings_size = ctypes.c_size_t(len(texts) * ctypes.sizeof(TF_TString))
        shape = (ctypes.c_int64 * 1)(len(texts))
        fed = ctypes.c_void_p(library.TF_AllocateTensor(TF_STRING, shape, 1, strings_size))
        strings = self._elements(fed, TF_TString, len(texts))
        for string, text in zip(strings, texts):
            library.TF_StringInit(ctypes.byref(string))
            library.TF_StringCopy(ctypes.byref(string), text, ctypes.c_size_t(len(text)))
        fetched = (ctypes.c_void_p * 2)()
        library.TF_SessionRun(
            self.session,
            None,
            ctypes.byref(self.input),
            (ctypes.c_void_p * 1)(fed),
            1,
            (TF_Output * 2)(*self.outputs),
            fetched,
            2,
            None,
            0,
            None,
            self.status,
        )
        for string in strings:
            library.TF_StringDealloc(ctypes.byref(string))
        library.TF_DeleteTensor(fed)
        check(library, self.status)
        translations, scores = map(ctypes.c_void_p, fetched)
        for tensor, dtype in ((translations, TF_STRING), (scores, TF_FLOAT)):
            rank = library.TF_NumDims(tensor)
            found = library.TF_TensorType(tensor), rank, rank and library.TF_Dim(tensor, 0)
            if found != (dtype, 1, len(texts)):
                raise RuntimeError(f"type, rank and size are {found}, not {dtype, 1, len(texts)}")
        strings = self._elements(translations, TF_TString, len(texts))
        answer = (
            [self._content(string) for string in strings],
            list(self._elements(scores, ctypes.c_float, len(texts))),
        )
        for tensor in (translations, scores):
            library.TF_DeleteTensor(tensor)
        return answer

    def _elements(self, tensor, kind, size):
        # A tensor without elements may have no address.
        return (kind * size).from_address(self.library.TF_TensorData(tensor)) if size else []

    def _content(self, string):
        pointer = self.library.TF_StringGetDataPointer(ctypes.byref(string))
        return ctypes.string_at(pointer, self.library.TF_StringGetSize(ctypes.byref(string)))


def signature(meta_graph):
    """Names of the input and output tensors, from a serialized MetaGraphDef."""
    entries = (dict(fields(entry)) for number, entry in fields(meta_graph) if number == 5)
    signatures = {entry[1]: entry[2] for entry in entries}
    names = {1: {}, 2: {}}
    for number, entry in fields(signatures[b"serving_default"]):
        if number in names:
            entry = dict(fields(entry))
            names[number][entry[1].decode()] = dict(fields(entry[2]))[1].decode()
    return names[1], names[2]


def fields(message):
    """The fields of a protocol buffer message, as (number, bytes or int)."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        number, wire_type = divmod(varint(), 8)
        if wire_type == 0:
            yield number, varint()
            continue
        size = {1: lambda: 8, 2: varint, 5: lambda: 4}[wire_type]()
        yield number, message[at : at + size]
        at += size


if __name__ == "__main__":
    translate = SavedModel(sys.argv[1])
    lines = sys.stdin.buffer.read().split(b"\n")
    if not lines[-1]:
        lines.pop()
    for begin in range(0, len(lines), 1024):
        for text in translate(lines[begin : begin + 1024])[0]:
            sys.stdout.buffer.write(text + b"\n")
