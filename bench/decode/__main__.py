"""What each drafter buys on a real model: `tandem serve` asked over gRPC for six kinds of text, greedily and at a
temperature, one stream and several at once, in every mode that it has loaded.

A mode that is named is asked `strict`, so that it always drafts, even where that is slower; `auto` may rest. All modes
must give the same tokens; if any differ, nothing is reported and the status is 1. Answers that loop are easy to draft,
and have rows of their own. `accepted` is the mean accepted length, 1 + kept drafts / rounds with drafts.

With `--peers`, in place of that: greedily and one stream at a time, Tandem's modes beside transformers' `generate`,
plain and with prompt lookup, beside z-lab's own loop with the same dflash and dflash2 drafters, and beside llama.cpp
with the files that `--gguf` names.
"""

from functools import partial

from bench.command import arguments, documented, options_of, print_document
from bench.decode.beside import measure_peers
from bench.decode.document import write
from bench.decode.measure import measure
from bench.decode.options import add_arguments, wanted
from bench.decode.peers_page import write_peers


def main() -> None:
    parser = arguments("decode", __doc__, repeats=1)
    add_arguments(parser)
    given = parser.parse_args()
    if given.peers and (given.temperatures or given.batches):
        parser.error("--peers is greedy and one stream: it takes no --temperatures and no --batches")
    if given.gguf and not given.peers:
        parser.error("--gguf is for llama.cpp, which is measured with --peers")
    if given.write:  # what cannot be written is told before anything runs
        given.write.mkdir(parents=True, exist_ok=True)
    measured = partial(measure_peers if given.peers else measure, wanted=wanted(given))
    document, result = documented("decode", options_of(given), measured)
    print_document(document, result, as_json=given.json)
    if given.write:
        (write_peers if given.peers else write)(given.write, document)


if __name__ == "__main__":
    main()
