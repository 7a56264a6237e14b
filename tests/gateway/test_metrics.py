"""What is counted is what happened."""

import asyncio

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tandem.v1 import generation_pb2 as pb
from tandem.v1 import types_pb2 as types
from tandem.v1.target_pb2 import Load

from services.errors import Internal
from tests.gateway.peers import PROMPT, frames
from tests.gateway.scripted_target import ends, reaches, says

pytestmark = pytest.mark.anyio

SPECULATED = [says("a", origin="first"), says("bcd", origin="accepted"), says("e", origin="correction"), ends("fg")]


class Held:
    """Stands still after the first round."""

    def __init__(self):
        self.go_on = asyncio.Event()

    def __call__(self, request):
        return [says("a"), self.go_on, ends("b")]


async def read(peers) -> dict:
    """Samples of our own without buckets, by name and labels in the order of their names."""
    answer = await peers.http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    return {
        (sample.name.removeprefix("tandem_"), *(sample.labels[name] for name in sorted(sample.labels))): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
        if sample.name.startswith("tandem_") and not sample.name.endswith(("_bucket", "_created"))
    }


async def test_a_request_is_counted_by_its_tokens_and_by_why_each_choice_ended(gateway):
    def script(request):
        return [says("a"), ends("b") if request.choice == 0 else reaches("length", "b")]

    async with gateway(script, own=True) as peers:
        answer = (await peers.chat(n=3)).json()
        counted = await read(peers)
    assert counted["request_success_total", "stop"] == 1
    assert counted["request_success_total", "length"] == 2
    assert counted["prompt_tokens_total",] == answer["usage"]["prompt_tokens"]
    assert counted["generation_tokens_total",] == answer["usage"]["completion_tokens"] == 7
    assert counted["gateway_num_requests",] == 0
    assert counted["time_to_first_token_seconds_count",] == 1
    assert counted["inter_token_latency_seconds_count",] == 3
    assert counted["request_time_per_output_token_seconds_count",] == 3
    assert counted["e2e_request_latency_seconds_count",] == 1


@pytest.mark.parametrize("face", ["chat", "stream", "completion", "message", "grpc"])
async def test_drafts_are_counted_for_their_drafter_whoever_asked_and_shown_only_to_who_asked(gateway, face):
    async with gateway(lambda request: SPECULATED, own=True) as peers:
        match face:
            case "chat":
                answer = (await peers.chat()).json()["speculation"]
            case "stream":
                *_, last, _ = frames(await peers.chat(stream=True))
                answer = last["speculation"]
            case "completion":
                answer = (await peers.complete()).json()["speculation"]
            case "message":
                answer = (await peers.messages()).json()["speculation"]
            case "grpc":
                report = [message async for message in peers.stub.Generate(pb.GenerateRequest(text="hi"))][-1].report
                answer = [field.name for field, _ in report.ListFields()]
        counted = await read(peers)
    assert "by_mode" not in answer
    assert counted["spec_decode_num_drafts_total", "ngram"] == 1
    assert counted["spec_decode_num_draft_tokens_total", "ngram"] == 4
    assert counted["spec_decode_num_accepted_tokens_total", "ngram"] == 3
    by_position = [counted["spec_decode_num_accepted_tokens_per_pos_total", "ngram", str(at)] for at in range(3)]
    assert by_position == [1, 1, 1]


async def test_over_grpc_too_they_show_to_who_asked(gateway):
    request = pb.GenerateRequest(text="hi", speculation=types.Speculation(stats=True))
    async with gateway(lambda request: SPECULATED) as peers:
        messages = [message async for message in peers.stub.Generate(request)]
    assert messages[-1].report.by_mode[0].accepted == 3


async def test_prompts_and_choices_of_one_call_all_count(gateway):
    async with gateway(lambda request: SPECULATED, own=True) as peers:
        await peers.complete(prompt=["a", "bb"], n=2)
        counted = await read(peers)
    assert counted["request_success_total", "stop"] == 4
    assert counted["prompt_tokens_total",] == 3
    assert counted["spec_decode_num_drafts_total", "ngram"] == 4


async def test_who_leaves_is_an_abort_and_what_came_until_then_counts(gateway):
    held = Held()
    async with gateway(held, own=True) as peers:
        async with peers.http.stream("POST", "/v1/completions", json=PROMPT | {"stream": True}) as response:
            lines = response.aiter_lines()
            await anext(lines)
            assert (await read(peers))["gateway_num_requests",] == 1
        while (counted := await read(peers))["gateway_num_requests",]:
            pass
    assert counted["request_success_total", "abort"] == 1
    assert counted["generation_tokens_total",] == 1
    assert counted["e2e_request_latency_seconds_count",] == 0


async def test_an_error_of_ours_counts_and_a_refusal_does_not(gateway):
    async with gateway(lambda request: [Internal("secret")], own=True) as peers:
        await peers.chat()
        await peers.chat(n=0)
        await peers.messages(model="other")
        counted = await read(peers)
    assert {key[1]: value for key, value in counted.items() if key[0] == "request_success_total"} == {"error": 1}
    assert counted["gateway_num_requests",] == 0


async def test_what_is_served_shows_and_follows_the_target(gateway):
    async with gateway(own=True) as peers:
        before = await read(peers)
        peers.target.description.exact = False
        peers.target.description.drafters[0].up = False
        after = await read(peers)
        await peers.target_server.draining()
        await peers.until(ready=False)
        gone = await read(peers)
    assert (before["target_up",], before["exact",], before["target_info", "fp32", "fp-1", "tiny"]) == (1, 1, 1)
    assert (before["drafter_up", "ngram"], before["drafter_up", "mtp"]) == (1, 0)
    assert (after["exact",], after["drafter_up", "ngram"]) == (0, 0)
    assert gone["target_up",] == 0
    assert not any(key[0] in ("exact", "drafter_up", "target_info", "num_requests_running") for key in gone)


async def test_what_the_target_does_shows_under_the_names_of_others(gateway):
    async with gateway(own=True) as peers:
        peers.target.description.load.CopyFrom(
            Load(
                running=3,
                waiting=2,
                free_rows=25,
                cache_rows=100,
                rounds=40,
                turns=30,
                draft_seconds=0.5,
                verify_seconds=2.5,
                skipped={"context": 4, "nothing_proposed": 5},
                dropped={"stale": 6},
                cut={"mtp": 8},
                left_out={"dflash": 9},
                contexts=2,
            )
        )
        counted = await read(peers)
        peers.target.description.load.Clear()
        again = await read(peers)
    assert (counted["num_requests_running",], counted["num_requests_waiting",]) == (3, 2)
    assert (counted["cache_rows",], counted["cache_rows_used",], counted["kv_cache_usage_perc",]) == (100, 75, 0.75)
    assert counted["drafter_contexts",] == 2
    assert (counted["draft_seconds_count",], counted["draft_seconds_sum",]) == (30, 0.5)
    assert (counted["verify_seconds_count",], counted["verify_seconds_sum",]) == (40, 2.5)
    skipped = {key[1]: value for key, value in counted.items() if key[0] == "spec_decode_num_skipped_rounds_total"}
    assert skipped == {"context": 4, "nothing_proposed": 5}
    assert counted["spec_decode_num_dropped_proposals_total", "stale"] == 6
    assert counted["spec_decode_num_cut_draft_tokens_total", "mtp"] == 8
    assert counted["spec_decode_num_left_out_sequences_total", "dflash"] == 9
    assert again["verify_seconds_count",] == again["kv_cache_usage_perc",] == 0, "as of a target that began again"


async def test_two_gateways_in_one_process_count_for_themselves(gateway):
    async with gateway(own=True) as one, gateway(own=True) as other:
        await one.chat()
        assert (await read(one))["request_success_total", "stop"] == 1
        assert ("request_success_total", "stop") not in await read(other)


async def test_the_process_itself_is_measured_and_a_scraper_may_ask_for_openmetrics(gateway):
    async with gateway() as peers:
        plain = await peers.http.get("/metrics")
        open_metrics = await peers.http.get("/metrics", headers={"Accept": "application/openmetrics-text"})
    assert "process_resident_memory_bytes" in plain.text
    assert open_metrics.headers["content-type"].startswith("application/openmetrics-text")
    assert open_metrics.text.endswith("# EOF\n")
