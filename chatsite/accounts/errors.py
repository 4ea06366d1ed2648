"""What can go wrong with accounts and keys."""

from chatsite.errors import Conflict, NotAuthenticated, Unavailable


class KeyExpired(NotAuthenticated):
    """This API key has expired."""


class KeyExists(Conflict):
    """This form was sent before, and its key was made then. Its text was shown once; without it, rotate this key."""


class TooManyKeys(Conflict):
    """You have as many keys as one user may have. Revoke one that is not in use."""


class KeyEnded(Conflict):
    """This key does not work any more. Make a new one."""


class KeyReplaced(Conflict):
    """Another key has taken this one's place already."""


class MailNotSent(Unavailable):
    """The mail could not be sent, and nothing was changed. Try again in a few minutes."""


class ProviderFailed(Unavailable):
    """The identity provider did not answer as it should. Try again shortly, or ask whoever runs this site."""

    should_retry = False  # the same address would be used twice: sign in anew
