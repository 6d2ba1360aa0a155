"""llama-server's native ``POST /completion``: ids in, one event a token out, steps from its timings.

The end of a stream is the event with ``stop: true``; there is no ``[DONE]``. Sampling is spelled out completely, because
llama-server fills every field that is missing with a default that changes the distribution (top_p 0.95, min_p 0.05). The
``samplers`` chain names the four that we send; all others are thereby off and need no field of their own.

Log-probabilities are of the whole vocabulary before any sampler (``post_sampling_probs`` off). Of a drafted token that was accepted
llama-server computes none and says 0, so they are worth nothing where something is drafted.

Step times come from the engine (``predicted_ms``), not from the arrival of events: the tokens of one step leave one after
the other. See :mod:`specsweep.client.dialects._llamacpp_steps` for how steps are found.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from specsweep.client.dialects._llamacpp_steps import Event, Group, Steps, group, rebuild
from specsweep.client.dialects._llamacpp_timings import require_clock, timing
from specsweep.client.dialects._plausible import count
from specsweep.client.dialects._stream import Json, coalesced, judge, open_stream, read_guarded
from specsweep.client.dialects._surprisal import fill_surprisal
from specsweep.client.prometheus import by_position, parse, total
from specsweep.client.trace import EngineCounters, Exchange, Sampling, Turn

_FINISH = {"limit": "length", "eos": "stop", "word": "stop"}


class LlamaCpp:
    name = "llamacpp"
    path = "/completion"
    takes_ids = True
    metrics_path: str | None = "/metrics"

    def request(self, prompt: Sequence[int] | str, sampling: Sampling, *, model: str) -> bytes:
        """The complete body. ``model`` is not sent: a llama-server serves one model and ignores the name."""
        greedy = sampling.temperature <= 0
        body = {
            "prompt": prompt if isinstance(prompt, str) else list(prompt),
            "n_predict": sampling.max_tokens,
            "stream": True,
            "return_tokens": True,
            "timings_per_token": True,
            "cache_prompt": False,
            "seed": sampling.seed,
            "ignore_eos": sampling.ignore_eos,
            "temperature": max(sampling.temperature, 0.0),
            "top_k": 1 if greedy else max(sampling.top_k, 0),  # 0: off
            "top_p": sampling.top_p,
            "min_p": 0.0,
            "typical_p": 1.0,
            "repeat_penalty": 1.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "samplers": ["top_k", "top_p", "temperature"],
            **({"n_probs": 1, "post_sampling_probs": False} if sampling.logprobs else {}),
        }
        return json.dumps(body, separators=(",", ":")).encode()

    def read(self, exchange: Exchange, *, draft_length: int | None, n_prompt: int | None) -> Turn:
        return read_guarded(lambda turn: _read(turn, exchange, draft_length, n_prompt))

    def counters(self, metrics_text: str) -> EngineCounters:
        page = parse(metrics_text)
        spec = "llamacpp:spec_decode_num_"
        return EngineCounters(
            drafts=total(page, spec + "drafts_total"),
            draft_tokens=total(page, spec + "draft_tokens_total"),
            accepted_tokens=total(page, spec + "accepted_tokens_total"),
            accepted_per_pos=by_position(page, spec + "accepted_tokens_per_pos_total"),
            prompt_tokens=total(page, "llamacpp:prompt_tokens_total"),
            cached_prompt_tokens=total(page, "llamacpp:prompt_tokens_cached_total"),
            generation_tokens=total(page, "llamacpp:tokens_predicted_total"),
            running=total(page, "llamacpp:requests_processing"),
            waiting=total(page, "llamacpp:requests_deferred"),
        )


def _read(turn: Turn, exchange: Exchange, draft_length: int | None, n_prompt: int | None) -> None:
    stream = open_stream(exchange, turn)
    if stream is None:
        return
    timed, final, t_final = _tokens(stream.events, turn)
    if timed:
        end = None if final is None else _end(final, t_final, timed[-1])
        require_clock(timed)
        _fill_steps(turn, rebuild(group(timed), end, draft_length))
    elif turn.chunk_tokens:
        turn.notes.append("events carry no timings (timings_per_token is not known here): steps cannot be told")
    if final is not None:
        _server_counts(turn, final)
    finish = "" if final is None else _FINISH.get(str(final.get("stop_type")), str(final.get("stop_type") or ""))
    judge(turn, stream, exchange, terminated=final is not None, finish=finish, n_prompt=n_prompt)
    turn.last_cut = _last_cut(turn, draft_length)


def _tokens(events: Sequence[tuple[int, Json]], turn: Turn) -> tuple[list[Event], Json | None, int]:
    """Fills the chunks; returns the timings of each, and the final event with its time."""
    timed: list[Event] = []
    final: Json | None = None
    t_final = 0
    logprobs: list[object] = []
    for t_ns, event in events:
        ids = event.get("tokens") or ()
        timings = event.get("timings")
        if event.get("stop"):
            final, t_final = event, t_ns
        if not ids:
            continue
        turn.output_ids.extend(ids)
        turn.chunk_t_ns.append(t_ns)
        turn.chunk_tokens.append(len(ids))
        if said := event.get("completion_probabilities"):
            logprobs += [entry["logprob"] for entry in said]
        if timings and "predicted_ms" in timings and "predicted_n" in timings:
            timed.append(timing(t_ns, timings, timed[-1] if timed else None))
        if turn.n_prompt_server is None:
            turn.n_prompt_server = event.get("tokens_evaluated")
    fill_surprisal(turn, logprobs)
    return (timed if len(timed) == len(turn.chunk_tokens) else []), final, t_final


def _end(final: Json, t_ns: int, newest: Event) -> Group:
    """The final event as a group without events: what the server counted after the last streamed token."""
    timings = final.get("timings") or {}
    counted = count("tokens_predicted", final.get("tokens_predicted", timings.get("predicted_n", newest[1])))
    if "predicted_n" in timings and counted != timings["predicted_n"]:
        raise ValueError(f"tokens_predicted is {counted} and timings.predicted_n {timings['predicted_n']} in the same event: one is wrong")
    said = {
        "predicted_ms": newest[2],
        "draft_n": newest[3],
        "draft_n_accepted": newest[4],
        **timings,
        "predicted_n": max(counted, newest[1]),
    }
    _, last, ms, drafted, accepted = timing(t_ns, said, newest)
    return Group(counted + 1, last, 0, t_ns, ms, drafted, accepted)


def _fill_steps(turn: Turn, steps: Steps) -> None:
    turn.step_t_ns, turn.step_tokens, turn.step_server_ms = steps.t_ns, steps.tokens, steps.ms
    turn.step_drafted, turn.step_accepted = steps.drafted, steps.accepted
    turn.step_coalesced = coalesced(steps.t_ns)
    turn.ids_complete = steps.silent == 0
    turn.step_state = "repaired" if steps.repairs else "exact"
    turn.notes.extend(steps.repairs)
    verified = [(d, a) for d, a in zip(steps.drafted, steps.accepted, strict=True) if d > 0]
    turn.srv_drafted_per_step = [d for d, _ in verified]
    turn.srv_accepted_per_step = [a for _, a in verified]
    turn.srv_steps = len(verified)
    turn.srv_drafted, turn.srv_accepted = sum(turn.srv_drafted_per_step), sum(turn.srv_accepted_per_step)
    odd = [i for i, (n, a) in enumerate(zip(steps.tokens, steps.accepted, strict=True)) if n != a + 1]
    if odd and odd != [len(steps.tokens) - 1]:  # only the last step may be short: the answer ended in it
        turn.step_state = "unknown"
        turn.notes.append(f"steps {odd[:5]} do not hold accepted + 1 tokens: the timings of this server do not mean what they should")


def _server_counts(turn: Turn, final: Json) -> None:
    timings = final.get("timings") or {}
    turn.n_completion_server = final.get("tokens_predicted", timings.get("predicted_n"))
    turn.n_prompt_server = final.get("tokens_evaluated", turn.n_prompt_server)
    if timings.get("cache_n"):
        turn.notes.append(
            f"{timings['cache_n']} prompt tokens came from the prompt cache: the time to the first token is not that of a cold prompt"
        )
    if final.get("truncated"):
        turn.notes.append("truncated: prompt and answer did not fit the slot's context (start the server with a larger -c, or fewer slots)")
    asked = (final.get("generation_settings") or {}).get("n_predict")
    counted = turn.n_completion_server
    if final.get("stop_type") == "limit" and asked and counted is not None and 0 < counted < asked:
        turn.notes.append(f"stopped by the context limit after {counted} of {asked} tokens")
    drafted = timings.get("draft_n", 0)
    if turn.step_tokens and drafted != turn.srv_drafted:
        turn.srv_drafted, turn.srv_accepted = drafted, timings.get("draft_n_accepted", 0)
        turn.notes.append(
            f"the server drafted {drafted} tokens, the steps account for {sum(turn.srv_drafted_per_step)}: a last draft left no token"
        )


def _last_cut(turn: Turn, draft_length: int | None) -> bool:
    """The last step was cut if it holds fewer tokens than accepted + 1 (EOS), or if the cap shortened its draft.

    llama-server never drafts past the cap: it trims the draft to the tokens still allowed, so a short or absent draft in the last
    step of an answer that ended by length says that the cap, not the drafter, set its size.
    """
    if len(turn.step_tokens) < 2 or turn.step_state == "unknown":
        return False
    if turn.step_tokens[-1] < turn.step_accepted[-1] + 1:
        return True
    usual = draft_length or max(turn.step_drafted)
    return turn.finish_reason == "length" and usual > 0 and turn.step_drafted[-1] < usual


DIALECT = LlamaCpp()
