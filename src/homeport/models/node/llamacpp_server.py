"""llama.cpp's own HTTP server out of the package `xllamacpp`, as a program with the options of `llama-server`.

A file of its own that imports nothing of ours: the node starts it with its interpreter, and supervises it like any
other program. Options it does not know are refused by name, since a wrong one would change answers in silence.
"""

import json
import signal
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from argparse import Namespace


def main() -> int:
    options = _options()
    import xllamacpp  # noqa: PLC0415 - so that --help works, and a missing package is a sentence

    if options.probe:
        print(json.dumps({"version": xllamacpp.__version__, "devices": _devices(xllamacpp)}))
        return 0
    signal.signal(signal.SIGTERM, _end)
    try:
        server = xllamacpp.Server(_parameters(xllamacpp, options))
    except RuntimeError as error:
        print(f"failed to load model: {error}", file=sys.stderr, flush=True)
        return 1
    print(f"listening on {server.listening_address}", file=sys.stderr, flush=True)
    while True:
        signal.pause()


def _options() -> "Namespace":
    import argparse  # noqa: PLC0415 - a node reads this module's name, and runs it in another process

    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--probe", action="store_true", help="print what the package can use, as JSON, and end")
    parser.add_argument("--model", default="")
    parser.add_argument("--alias", default="")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8100)
    parser.add_argument("--ctx-size", type=int, default=4096)
    parser.add_argument("--parallel", type=int, default=1)
    parser.add_argument("--n-gpu-layers", type=int, default=0)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--threads-http", type=int, default=0)
    parser.add_argument("--batch-size", type=int, default=0)
    parser.add_argument("--chat-template", default="")
    parser.add_argument("--mmproj", default="")
    parser.add_argument("--embeddings", "--embedding", action="store_true")
    parser.add_argument("--reranking", "--rerank", action="store_true")
    parser.add_argument("--pooling", choices=["none", "mean", "cls", "last", "rank"], default="")
    parser.add_argument("--no-cont-batching", action="store_true")
    parser.add_argument("--metrics", action="store_true")
    parser.add_argument("--slots", action="store_true")
    return parser.parse_args()


def _parameters(xllamacpp: Any, options: "Namespace") -> Any:
    parameters = xllamacpp.CommonParams()
    parameters.model.path = options.model
    if options.alias:
        parameters.model_alias = {options.alias}
    parameters.hostnames = [options.host]
    parameters.port = options.port
    parameters.n_ctx = options.ctx_size
    parameters.n_parallel = options.parallel
    parameters.n_gpu_layers = options.n_gpu_layers
    parameters.endpoint_metrics = options.metrics
    parameters.endpoint_slots = options.slots
    parameters.endpoint_props = True
    parameters.embedding = options.embeddings or options.reranking
    pooling = "rank" if options.reranking else options.pooling
    if pooling:
        parameters.pooling_type = getattr(xllamacpp.llama_pooling_type, f"LLAMA_POOLING_TYPE_{pooling.upper()}")
    parameters.cont_batching = not options.no_cont_batching
    parameters.ui = False
    parameters.warmup = False
    if options.threads:
        parameters.cpuparams.n_threads = options.threads
    if options.threads_http:
        parameters.n_threads_http = options.threads_http
    if options.batch_size:
        parameters.n_batch = options.batch_size
    if options.chat_template:
        parameters.chat_template = options.chat_template
    if options.mmproj:
        parameters.mmproj.path = options.mmproj
    return parameters


def _devices(xllamacpp: Any) -> list[str]:
    """Of GPUs only: a CPU is everywhere."""
    return [str(each) for each in xllamacpp.get_device_info() if "cpu" not in str(each).lower()]


def _end(number: int, frame: object) -> None:
    sys.stderr.flush()
    # The server's threads hold no state that a clean end would save, and may be in the middle of a long computation.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.raise_signal(signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
