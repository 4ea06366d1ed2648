"""What can go wrong with conversations, beyond the common tree."""

from chatsite.errors import Conflict, Unavailable


class ReplyRunning(Conflict):
    """A reply is still running in this conversation. Wait for it, or stop it."""

    code = "reply_running"
    should_retry = False


class NotWaiting(Conflict):
    """This reply waits no more, or no other model is free for it now."""

    should_retry = False


class NotContinuable(Conflict):
    """Only the last reply of a branch can be continued, once it was stopped, has failed or reached its length limit."""

    should_retry = False


class WaitedTooLong(Unavailable):
    """High demand: the wait was too long."""

    code = "high_demand"
