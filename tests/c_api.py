"""Runs a SavedModel with TensorFlow's C API, as a program in C or Go would; imports no
TensorFlow."""

import ctypes
import importlib.util
import math
import pathlib
import typing

TF_FLOAT, TF_INT32, TF_STRING, TF_BOOL = 1, 3, 7, 10


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
    library.TF_Dim.restype = library.TF_TensorElementCount.restype = ctypes.c_int64
    status = ctypes.c_void_p(library.TF_NewStatus())
    for path in sorted(package_dir("tensorflow_text").glob("python/ops/_*.so")):
        library.TF_LoadLibrary(str(path).encode(), status)
        check(library, status)
    return library


def check(library, status):
    if library.TF_GetCode(status):
        raise RuntimeError(library.TF_Message(status).decode())


ELEMENTS = {
    TF_FLOAT: ctypes.c_float,
    TF_INT32: ctypes.c_int32,
    TF_STRING: TF_TString,
    TF_BOOL: ctypes.c_bool,
}


class SavedModel:
    """A SavedModel, whose signatures take and give lists, of lists, of bytes and numbers.

    Called with a list of bytes, it gives the texts and scores of `serving_default`.
    """

    def __init__(self, path):
        self.library = load_tensorflow()
        self.status = ctypes.c_void_p(self.library.TF_NewStatus())
        self.graph = ctypes.c_void_p(self.library.TF_NewGraph())
        meta_graph = ctypes.c_void_p(self.library.TF_NewBuffer())
        self.session = ctypes.c_void_p(
            self.library.TF_LoadSessionFromSavedModel(
                ctypes.c_void_p(self.library.TF_NewSessionOptions()),
                None,
                str(path).encode(),
                (ctypes.c_char_p * 1)(b"serve"),
                1,
                self.graph,
                meta_graph,
                self.status,
            )
        )
        check(self.library, self.status)
        buffer = ctypes.cast(meta_graph, ctypes.POINTER(TF_Buffer)).contents
        self.signatures = signatures(ctypes.string_at(buffer.data, buffer.length))

    def __call__(self, texts):
        answer = self.run("serving_default", {"text": texts})
        return answer["text"], answer["score"]

    def run(self, name, inputs):
        """The outputs of a signature by name."""
        library = self.library
        takes, gives = self.signatures[name]
        fed = [self._tensor(takes[key], values) for key, values in inputs.items()]
        fetched = (ctypes.c_void_p * len(gives))()
        library.TF_SessionRun(
            self.session,
            None,
            (TF_Output * len(fed))(*(self._tensor_of_graph(takes[key]) for key in inputs)),
            (ctypes.c_void_p * len(fed))(*fed),
            len(fed),
            (TF_Output * len(gives))(*map(self._tensor_of_graph, gives.values())),
            fetched,
            len(gives),
            None,
            0,
            None,
            self.status,
        )
        for key, tensor in zip(inputs, fed):
            self._delete(takes[key], tensor)
        check(library, self.status)
        answer = {
            key: self._values(gives[key], ctypes.c_void_p(tensor))
            for key, tensor in zip(gives, fetched)
        }
        for tensor in fetched:
            library.TF_DeleteTensor(ctypes.c_void_p(tensor))
        return answer

    def _tensor_of_graph(self, info):
        name, index = info.name.split(":")
        operation = self.library.TF_GraphOperationByName(self.graph, name.encode())
        return TF_Output(operation, int(index))

    def _tensor(self, info, values):
        library, shape = self.library, [len(values)]
        if info.rank == 2:
            shape.append(len(values[0]) if values else 0)
            values = [value for row in values for value in row]
        size = ctypes.c_size_t(len(values) * ctypes.sizeof(ELEMENTS[info.dtype]))
        dims = (ctypes.c_int64 * len(shape))(*shape)
        tensor = ctypes.c_void_p(library.TF_AllocateTensor(info.dtype, dims, len(shape), size))
        elements = self._elements(tensor, info.dtype, len(values))
        for i, value in enumerate(values):
            if info.dtype == TF_STRING:
                library.TF_StringInit(ctypes.byref(elements[i]))
                library.TF_StringCopy(ctypes.byref(elements[i]), value, ctypes.c_size_t(len(value)))
            else:
                elements[i] = value
        return tensor

    def _values(self, info, tensor):
        rank = self.library.TF_NumDims(tensor)
        if (self.library.TF_TensorType(tensor), rank) != (info.dtype, info.rank):
            raise RuntimeError(
                f"a tensor of type {self.library.TF_TensorType(tensor)} and rank {rank}, not {info}"
            )
        shape = [self.library.TF_Dim(tensor, axis) for axis in range(rank)]
        elements = self._elements(tensor, info.dtype, math.prod(shape))
        values = (
            [self._content(string) for string in elements]
            if info.dtype == TF_STRING
            else list(elements)
        )
        for axis in range(rank - 1, 0, -1):
            size = shape[axis]
            values = [values[i * size : (i + 1) * size] for i in range(math.prod(shape[:axis]))]
        return values

    def _elements(self, tensor, dtype, size):
        # A tensor without elements may have no address.
        return (
            (ELEMENTS[dtype] * size).from_address(self.library.TF_TensorData(tensor))
            if size
            else []
        )

    def _content(self, string):
        pointer = self.library.TF_StringGetDataPointer(ctypes.byref(string))
        return ctypes.string_at(pointer, self.library.TF_StringGetSize(ctypes.byref(string)))

    def _delete(self, info, tensor):
        """Frees a tensor that `_tensor` made."""
        if info.dtype == TF_STRING:
            for string in self._elements(
                tensor, info.dtype, self.library.TF_TensorElementCount(tensor)
            ):
                self.library.TF_StringDealloc(ctypes.byref(string))
        self.library.TF_DeleteTensor(tensor)


class TensorInfo(typing.NamedTuple):
    """What a signature says of a tensor."""

    name: str
    dtype: int
    rank: int


def signatures(meta_graph):
    """The tensors that each signature takes and gives, by name, from a serialized MetaGraphDef."""
    entries = (dict(fields(entry)) for number, entry in fields(meta_graph) if number == 5)
    by_name = {}
    for entry in entries:
        takes, gives = {}, {}
        for number, tensor in fields(entry[2]):
            if number in (1, 2):
                tensor = dict(fields(tensor))
                (takes, gives)[number - 1][tensor[1].decode()] = tensor_info(tensor[2])
        by_name[entry[1].decode()] = takes, gives
    return by_name


def tensor_info(message):
    info = dict(fields(message))
    sizes = [size for number, size in fields(info.get(3, b"")) if number == 2]
    # That of an operation without a result is of no type.
    return TensorInfo(info[1].decode(), info.get(2), len(sizes))


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
