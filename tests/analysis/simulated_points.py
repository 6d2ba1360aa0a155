"""Simulated points of a batching engine whose truth is known, many at once, and what the tests of coverage ask of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specsweep.analysis.timing import BLOCKS

SEEDS = 2000
LOW, HIGH = 0.92, 0.98  # of 95 % intervals; the standard error of a share over 2,000 points is half a percent


def covered(truth: float, low: np.ndarray, high: np.ndarray) -> float:
    return float(np.mean((low <= truth) & (truth <= high)))


@dataclass
class Points:
    """Many simulated points: the same engine, other prompts and other noise. Cells are (points, requests, blocks)."""

    steady_tokens: np.ndarray  # tokens by request and block of the steady window
    steady_time: np.ndarray  # slot time likewise
    block_s: np.ndarray  # (points,)
    user_tokens: np.ndarray  # of requests started in the window, blocks over their whole time
    user_time: np.ndarray
    timed: np.ndarray  # (points, requests): started in the window
    step_end: np.ndarray  # (steps, points): the engine's clock after each step
    serving: np.ndarray  # (steps, points, slots): which request each slot took that step for
    closes: np.ndarray  # (points,): the end of the steady window, which opens at 0


def simulate(seed: int, points: int, batch: int, requests: int, *, mean_steps: int = 45) -> Points:
    """Step times are autocorrelated (about five steps) and stretched by each refill's prefill; requests differ in acceptance and length."""
    rng = np.random.default_rng(seed)
    total = requests + 3 * batch
    chance = np.clip(rng.beta(4, 3, (points, total)), 0.02, 0.97)
    spread = 0.5
    length = np.maximum(20, rng.lognormal(np.log(2.3 * mean_steps) - spread**2 / 2, spread, (points, total))).astype(np.int32)
    # The staggered first wave: what is left of requests that would have run for long. (A long one is met more often than a short one.)
    met = rng.lognormal(np.log(2.3 * mean_steps) + spread**2 / 2, spread, (points, batch))
    length[:, :batch] = np.maximum(2, met * rng.random((points, batch))).astype(np.int32)
    serving = np.tile(np.arange(batch), (points, 1))
    left, upcoming = length[:, :batch].copy(), np.full(points, batch)
    log_chance = np.log(chance)
    clock, mood, stall = np.zeros(points), rng.standard_normal(points), np.zeros(points)
    start, end = np.zeros((points, total)), np.zeros((points, total))
    closes = np.full(points, np.nan)
    times, sizes, who = [], [], []
    memory, noise = np.exp(-1 / 5), 0.25
    while True:
        mood = memory * mood + np.sqrt(1 - memory**2) * rng.standard_normal(points)
        clock = clock + np.exp(noise * mood - noise**2 / 2) * (1 + stall)
        accepted = np.log(rng.random(serving.shape)) / np.take_along_axis(log_chance, serving, 1)
        tokens = np.minimum(np.minimum(accepted, 4).astype(np.int32) + 1, left)
        left = left - tokens
        times.append(clock)
        sizes.append(tokens.astype(np.int8))
        who.append(serving.astype(np.int16))
        done = left <= 0
        if done.any():
            point, slot = np.nonzero(done)
            end[point, serving[point, slot]] = clock[point]
            serving = np.where(done, np.minimum(upcoming[:, None] + np.cumsum(done, 1) - 1, total - 1), serving)
            start[point, serving[point, slot]] = clock[point]
            left = np.where(done, np.take_along_axis(length, serving, 1), left)
            upcoming = upcoming + done.sum(1)
        stall = 1.5 * done.sum(1)
        closes = np.where(np.isnan(closes) & (upcoming >= batch + requests), clock, closes)
        if (end[:, : batch + requests] > 0).all():
            break
    t, n, w = np.array(times), np.array(sizes), np.array(who)
    measured = batch + requests
    timed = np.zeros((points, measured), dtype=bool)
    timed[:, batch:] = (start[:, batch:measured] > 0) & (start[:, batch:measured] <= closes[:, None])
    opened = np.zeros(points)
    last = np.where(timed, end[:, :measured], 0).max(1)
    first = np.where(timed, start[:, :measured], np.inf).min(1)
    first_wave = np.where(np.arange(measured) < batch, 0.0, start[:, :measured])
    return Points(
        steady_tokens=token_cells(t, n, w, opened, closes, measured),
        steady_time=time_cells(first_wave, end[:, :measured], opened, closes),
        block_s=(closes - opened) / BLOCKS,
        user_tokens=token_cells(t, n, w, first, last, measured) * timed[..., None],
        user_time=time_cells(start[:, :measured], end[:, :measured], first, last) * timed[..., None],
        timed=timed,
        step_end=t,
        serving=w,
        closes=closes,
    )


def token_cells(t: np.ndarray, n: np.ndarray, w: np.ndarray, opens: np.ndarray, closes: np.ndarray, requests: int) -> np.ndarray:
    points = t.shape[1]
    block = np.minimum(((t - opens) / (closes - opens) * BLOCKS).astype(int), BLOCKS - 1)
    inside = ((t > opens) & (t <= closes))[:, :, None] & (w < requests)
    block = block.astype(np.int32)
    index = (np.arange(points, dtype=np.int32)[None, :, None] * requests + w) * BLOCKS + block[:, :, None]
    return np.bincount(index[inside], weights=n[inside], minlength=points * requests * BLOCKS).reshape(points, requests, BLOCKS)


def time_cells(start: np.ndarray, end: np.ndarray, opens: np.ndarray, closes: np.ndarray) -> np.ndarray:
    edges = opens[:, None] + (closes - opens)[:, None] * np.linspace(0, 1, BLOCKS + 1)
    low, high = np.maximum(start[..., None], edges[:, None, :-1]), np.minimum(end[..., None], edges[:, None, 1:])
    return np.maximum(high - low, 0.0)


def steady_rates(p: Points) -> np.ndarray:
    return p.steady_tokens.sum((1, 2)) / (p.block_s * BLOCKS)


def request_rates(p: Points) -> np.ndarray:
    tokens, seconds = p.user_tokens.sum(2), p.user_time.sum(2)
    return np.divide(tokens, seconds, out=np.zeros_like(tokens), where=p.timed)
