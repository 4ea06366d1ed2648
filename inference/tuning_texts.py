"""What the scheduler's settings mean, for people: of each its unit and a sentence."""

from typing import NamedTuple


class Text(NamedTuple):
    """`unit` follows the range, and is empty for what has none."""

    unit: str
    meaning: str


SECTIONS = {
    "lanes": Text("", "The four classes of requests, in the order that breaks ties."),
    "cost": Text("", "What a request costs in wtok: uncached input + cached * cached input + output * output."),
    "order": Text("", "Who is next among those that wait."),
    "lease": Text("", "How long a runner may hold a request without renewing it, and how often one is tried."),
    "score": Text("", "What makes a replica the best for a request, and when one stays where its prefix is cached."),
    "replica": Text("", "What is believed of a replica, and for how long."),
    "ejection": Text("", "When a replica that fails requests is left out."),
    "prefix": Text("", "The index of cached beginnings of prompts."),
    "prediction": Text("", "How the time to the first token is predicted."),
    "admission": Text("", "Who is let in, and whose place is taken. From where a lane is shed is with the lane."),
}

LANE = {
    "weight": Text("", "Share of service while several lanes have requests waiting."),
    "gate_seconds": Text("s of the replica's peak prefill rate", "Prefill that may be queued on a replica."),
    "ceiling": Text("of a replica's slots and KV tokens", "How full the lane may make a replica."),
    "objective_seconds": Text("s", "Wanted time to the first token. Empty: no objective."),
    "timeout_seconds": Text("s", "Longest wait in the queue. Empty: the job's own deadline."),
    "shed_from": Text("predicted p90 / objective", "From here on some are turned away. Empty: never."),
    "shed_span": Text("predicted p90 / objective", "From the first turned away to all of them."),
    "preempts": Text("", "Takes running work's place where it would miss its objective."),
    "preempted_before_first_token": Text("", "Gives its place up before its first token."),
    "preempted_after_first_token": Text("", "Gives its place up after its first token."),
}

OTHERS = {
    "cost.cached": Text("wtok a token", "A token of input that is cached."),
    "cost.output": Text("wtok a token", "A token of output."),
    "order.quantum": Text("wtok at weight 1", "Requests this close to the next one are its equals."),
    "order.clamp": Text("wtok at weight 1", "Most debt that somebody takes along into a new backlog."),
    "order.waited_for_quanta": Text(
        "quanta",
        "A lane that trails its share by more is waited for, not skipped; an organization that does is not passed.",
    ),
    "order.aging_ms": Text(
        "ms", "Most that a long prompt is ranked behind a short one; what has waited for longer is not passed."
    ),
    "lease.lease_seconds": Text("s", "A request whose lease is not renewed for so long is taken back."),
    "lease.abort_seconds": Text("s", "A runner ends its own streams this long after its last renewal."),
    "lease.heartbeat_seconds": Text("s", "Time between renewals."),
    "lease.reap_limit": Text("requests", "Most that are taken back at once."),
    "lease.max_attempts": Text("attempts", "After so many without success a request has failed."),
    "lease.requeued_wait_seconds": Text("s", "The least that a requeued request may wait again."),
    "score.kv_weight": Text("s when the KV cache is full", "What a replica's full KV cache adds to its score."),
    "score.kv_from": Text("of the KV capacity", "From here on fullness counts."),
    "score.slots_weight": Text("s when all slots are taken", "What taken slots add to the score."),
    "score.sticky_share": Text("of the input", "A cached match of so much keeps a request there."),
    "score.sticky_tokens": Text("tokens", "So does a cached match of so many."),
    "score.leave_seconds": Text("s", "It leaves when the score trails the best by more."),
    "score.leave_share": Text("of the lane's objective", "Or by more than this."),
    "score.leave_load": Text("times the mean of all replicas", "It leaves when more requests are there."),
    "score.leave_kv_usage": Text("of the engine's KV cache", "It leaves when more is in use."),
    "score.leave_preempted_seconds": Text("s", "It leaves when the engine preempted so lately."),
    "score.exploration": Text("of requests", "Go elsewhere only to try."),
    "score.min_decode_rate": Text(
        "tokens/s of each stream", "A replica takes no more below this, while no prompts are read. 0: off."
    ),
    "replica.stale_seconds": Text("s", "Metrics older than this are stale."),
    "replica.stale_factor": Text("", "What is known of a replica with stale metrics is multiplied by this."),
    "replica.suspect_seconds": Text("s", "A replica with older metrics is taken only when there is no other."),
    "replica.kv_low": Text("of the physical KV tokens", "Least that is promised of a replica."),
    "replica.kv_high": Text("of the physical KV tokens", "Most that is promised of a replica."),
    "replica.kv_down": Text("", "The promise is multiplied by this when the engine preempts or is nearly full."),
    "replica.kv_up": Text("", "Else it is multiplied by this."),
    "replica.kv_seconds": Text("s", "Least time between two changes of the promise."),
    "replica.kv_usage": Text("of the engine's KV cache", "Nearly full is above this."),
    "replica.rate_min_tokens": Text("uncached tokens", "Shorter prompts do not count for the prefill rate."),
    "replica.rate_quantile": Text("", "Which quantile of the samples is the peak prefill rate."),
    "replica.rate_samples": Text("samples", "How many are kept."),
    "replica.rate_min_samples": Text("samples", "So many replace the first figure."),
    "replica.health_low": Text("observed / peak prefill rate", "Least health of a replica."),
    "replica.health_high": Text("observed / peak prefill rate", "Most health of a replica."),
    "replica.health_alpha": Text("of the moving average", "How much the newest sample counts for health."),
    "ejection.failures": Text("in a row", "So many failures eject a replica."),
    "ejection.seconds": Text("s", "For how long, times the number of its ejections."),
    "ejection.most_seconds": Text("s", "The longest ejection."),
    "ejection.most_share": Text("of a pool", "Most that are ejected at a time, but always one."),
    "ejection.off_share": Text("of a pool", "If more look bad, the fault is elsewhere and nobody is ejected."),
    "ejection.half_open_requests": Text("at a time", "Requests for a replica that returns, until one succeeds."),
    "ejection.first_token_factor": Text("times its prediction", "Without a first token for so long it has failed."),
    "ejection.first_token_seconds": Text("s", "The same until there are predictions."),
    "ejection.silence_seconds": Text("s", "Without a next token for so long it has failed."),
    "ejection.silence_factor": Text("times the longest prefill step", "Or for so long, whichever is longer."),
    "prefix.seconds": Text("s", "How long a prefix is remembered without use."),
    "prefix.checkpoints": Text("of one prompt", "Points of a prompt that are remembered."),
    "prefix.most": Text("hashes", "Most that one index holds."),
    "prediction.quantile": Text("", "Which quantile is called p90 here."),
    "prediction.samples": Text("samples", "How many are kept of each size of wait."),
    "prediction.min_samples": Text("samples", "Until a size has so many nothing is decided by it."),
    "prediction.remember_seconds": Text("s", "A size of wait that has not come for so long is forgotten."),
    "prediction.shortest_seconds": Text("s", "A shorter prediction is compared as this."),
    "admission.queue_to": Text("predicted p90 / objective", "Below this everybody may wait."),
    "admission.fallback_from": Text("predicted p90 / objective", "Above this a smaller model is used, if allowed."),
    "admission.offer_smaller_seconds": Text("s", "Who waits longer is offered a smaller model."),
    "admission.queue_cap": Text("requests", "Most that wait in a lane. In batch, organizations then have equal parts."),
    "admission.retry_after_jitter": Text("of Retry-After", "By so much it is varied, up and down."),
    "admission.retry_after_low": Text("s", "Shortest Retry-After."),
    "admission.retry_after_high": Text("s", "Longest Retry-After."),
    "admission.max_preemptions": Text("of one request", "Most often that it gives its place up after its first token."),
    "admission.retry_share": Text("of dispatched tokens", "Most that are retried."),
    "admission.retry_window_seconds": Text("s", "The time over which they are counted."),
    "admission.retry_floor": Text("in that time", "Retries that are always allowed."),
}


def text_of(path: str) -> Text:
    """Of a setting by its dotted path. Raises KeyError for one that is not described."""
    section, _, rest = path.partition(".")
    return LANE[rest.partition(".")[2]] if section == "lanes" else OTHERS[path]
